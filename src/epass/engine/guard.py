"""Did the unlabeled images help? Labels only is trained beside a run, whose folder keeps the model to be trusted."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..evaluation import score
from ..evaluation.left_out import Estimate, estimate_error, estimate_gap, mistakes
from ..recipe import Recipe
from ..runs import KEPT_LABELS_ONLY, RunFolder, load_run
from .build import Experiment
from .crossfit import FOLDS, fit, going_on, out_of_fold, shortened
from .infer import answering_network, predict
from .run import finish

LABELS_ONLY = "supervised"
LEAST_LABELS = 30  # below, only a difference of 20 points and more would be told from luck

Basis = Literal["validation", "cross-validation", "nothing"]


@dataclass(frozen=True)
class Guard:
    """A run beside labels only, on labels that neither was trained on. A gap above 0: the run is the worse one."""

    basis: Basis
    labels: int  # that say which is better, or would have to
    method: Estimate | None = None  # the error of the run
    labels_only: Estimate | None = None
    gap: Estimate | None = None

    @property
    def keeps_labels_only(self) -> bool:
        """Only if they are better by more than luck, because on average they are not."""
        return self.gap is not None and self.gap.low > 0


def basis_of(experiment: Experiment, *, asked: bool) -> Basis:
    """By which labels a run is compared; few are left out in turn only if somebody `asked` for it."""
    if experiment.split.validation is not None:
        return "validation"
    return "cross-validation" if asked or len(experiment.split.labeled) >= LEAST_LABELS else "nothing"


def without_unlabeled(recipe: Recipe) -> Recipe:
    """The same recipe for labels only."""
    return replace(recipe, method={"name": LABELS_ONLY}, projector=None, wrapper=None)


def guard(experiment: Experiment, home: RunFolder, basis: Basis) -> Generator[tuple[int, int], None, Guard]:
    """Train labels only beside a finished run, and write down which is better; if it is labels only, that is kept.

    Yields the steps done and those in all.
    """
    dataset, split, device = experiment.dataset, experiment.split, experiment.device
    began, folded, total = time.perf_counter(), shortened(experiment.recipe, split), experiment.plan.steps
    if basis == "cross-validation":
        left_out = sum(count for count in split.label_counts if count > 1)
        steps_of_folds = min(FOLDS, left_out) * int(folded.plan["steps"])
        total += 2 * steps_of_folds
    done, steps = 0, fit(without_unlabeled(experiment.recipe), dataset, split, device)
    while (other := next(steps)) is None:
        done += 1
        yield done, total
    wrong: list[NDArray[np.bool_]] = []
    if basis == "cross-validation":
        for recipe in (folded, without_unlabeled(folded)):
            answers = yield from going_on(out_of_fold(recipe, dataset, split, device), done, total)
            wrong.append(mistakes(answers, split.labeled.labels))
            done += steps_of_folds
    elif split.validation is not None:
        for each in (experiment, other):
            answered = predict(answering_network(each), split.validation, dataset, device)
            wrong.append(mistakes(answered, split.validation.labels))
    found = Guard(basis, len(split.labeled))
    if wrong and len(wrong[0]):
        errors = [estimate_error(each) for each in wrong]
        found = Guard(basis, len(wrong[0]), errors[0], errors[1], estimate_gap(wrong[0], wrong[1]))
    keep(found, experiment, other, home, time.perf_counter() - began)
    return found


def keep(found: Guard, experiment: Experiment, other: Experiment, home: RunFolder, seconds: float) -> None:
    """Write what was found into the results of the run, whose model becomes labels only where that is better."""
    results = load_run(home.path).results
    assert results is not None
    split = experiment.split
    tested = score(predict(answering_network(other), split.test, other.dataset, other.device), split.test.labels)
    told = {"method": found.method, "labels_only": found.labels_only, "gap": found.gap}
    entry: dict[str, Any] = {
        "kept": KEPT_LABELS_ONLY if found.keeps_labels_only else "method",
        "basis": found.basis,
        "labels": found.labels,
        **{name: estimate._asdict() for name, estimate in told.items() if estimate is not None},
        "test": {"method": results["last"], "labels_only": tested},
        "seconds": round(seconds, 3),
    }
    with home.hold():
        if not found.keeps_labels_only:
            home.write_json("results.json", results | {"guard": entry})
            return
        row: dict[str, Any] = {"step": other.plan.steps, "seconds": results["seconds"], "test_error": tested["error"]}
        if found.labels_only is not None and found.basis == "validation":
            row["valid_error"] = found.labels_only.value
        finish(other, home, [row], {"guard": entry})
