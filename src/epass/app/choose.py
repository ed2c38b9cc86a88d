"""Which of the compared ways should be used? Decided by labels that are left out in turn, never by the test images."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import write_atomically
from ..recipe import Recipe
from ..runs import Run
from ..untrusted import LARGEST_JSON, parse_json, read_limited
from .contenders import LABELS_ONLY
from .events import Caution, Event, Section, Table
from .features import watched
from .flags import DEFAULT_METHOD, Stop
from .words import counted, percent

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ..data import Dataset, Split

    Missed = dict[Path, NDArray[np.bool_]]

ANSWERS = "left_out.json"  # of a comparison: which labels were missed, so that nothing is trained twice
HEADS = ("method", "error, labels left out", "95 % interval", "test error, which decides nothing")


@dataclass(frozen=True)
class Election:
    """Ways of training, by the folders of their runs with one seed, among which the labels of this seed choose."""

    recipes: Mapping[Path, Recipe]
    dataset: Dataset
    split: Split
    device: torch.device
    answers: Path


def election_of(jobs: Mapping[Path, Recipe], dataset: Dataset, device: torch.device, out: Path) -> Election:
    """All ways with the first seed, but for those that are told labels that the others are not."""
    from ..engine.build import split_for
    from ..engine.models import method_class
    from ..evaluation.baselines import BASELINES

    first = next(iter(jobs.values()))
    able = {
        folder: recipe
        for folder, recipe in jobs.items()
        if recipe.seed == first.seed
        and (recipe.method["name"] in BASELINES or not method_class(recipe.method["name"]).all_labels)
    }
    split = split_for(replace(first, method={"name": LABELS_ONLY}), dataset)
    if max(split.label_counts) < 2:
        raise InputError("No class has two labels, of which one could be left out: use more --labels, or no --choose.")
    return Election(able, dataset, split, device, out / ANSWERS)


def cost_of(election: Election) -> str:
    """What a choice adds to a comparison."""
    from ..engine.crossfit import FOLDS, shortened

    first, labels = next(iter(election.recipes.values())), counted(len(election.split.labeled), "label")
    return (
        f"Then each is trained {FOLDS} times more, with {shortened(first, election.split).plan['steps']:,} steps, each "
        f"time without a fifth of the {labels} of seed {first.seed}: these choose one."
    )


def elect(election: Election, runs: Sequence[Run], stop: Stop) -> Generator[Event, None, dict[str, Any]]:
    """Leave labels out in turn, choose, and say so; returns what the record of a comparison keeps."""
    from ..evaluation.left_out import choose, estimate_error
    from ..report import group_runs

    ended = {run.path: run for run in runs if run.results is not None and run.path in election.recipes}
    missed, failed = yield from watched(leave_out(election, list(ended)), stop, "fold step")
    yield from (Caution(f"{folder.name} has no part in the choice: {reason}") for folder, reason in failed.items())
    if not missed:
        return {}
    usual = usual_of({folder: election.recipes[folder] for folder in missed})
    chosen, clear = choose(missed, usual)
    names = {folder: group_runs([ended[folder]])[0].label for folder in missed}
    errors = {folder: estimate_error(each) for folder, each in missed.items()}
    tests = {folder: float((ended[folder].results or {})["last"]["error"]) for folder in missed}
    ranges = {folder: f"{100 * error.low:.1f} to {100 * error.high:.1f} %" for folder, error in errors.items()}
    ranked = sorted(missed, key=lambda folder: errors[folder].value)
    rows = [[names[at], percent(errors[at].value, 1), ranges[at], percent(tests[at], 1)] for at in ranked]
    yield Table(HEADS, rows)
    reason = "which misses the fewest; the difference to the others may be luck"
    if clear:
        reason = f"which is better than {names[chosen if usual is None else usual]} by more than luck"
    elif usual is not None:
        reason = "the way of epass train, for no other one is better by more than luck"
    yield Section(
        f"Chosen by {counted(errors[chosen].labels, 'label')} left out in turn: {names[chosen]}, {reason}. It misses "
        f"{percent(errors[chosen].value, 1)} of them (95 % interval {ranges[chosen]}); its test error, which decided "
        f"nothing, is {percent(tests[chosen], 1)}."
    )
    told = {at.name: {**errors[at]._asdict(), "test_error": tests[at]} for at in ranked}
    return {"run": chosen.name, "method": names[chosen], "more_than_luck": clear, "left_out": told}


def usual_of(recipes: Mapping[Path, Recipe]) -> Path | None:
    """What 'epass train' would do, if it is among them, with as few projectors as there are."""
    own = {folder: recipe for folder, recipe in recipes.items() if recipe.method["name"] == DEFAULT_METHOD}
    return min(own, key=lambda folder: (own[folder].projector or {}).get("size", 1), default=None)


def leave_out(
    election: Election, folders: Sequence[Path]
) -> Generator[tuple[int, int], None, tuple[Missed, dict[Path, str]]]:
    """Which labels each way misses that it was not told, and why some have no answer; yields the steps done."""
    import numpy as np

    from ..engine.crossfit import FOLDS, baseline_out_of_fold, going_on, out_of_fold, shortened
    from ..evaluation.baselines import BASELINES
    from ..evaluation.left_out import mistakes
    from ..training.window import NotFiniteError

    split, dataset, labels = election.split, election.dataset, election.split.labeled.labels
    missed: Missed = {}
    failed: dict[Path, str] = {}
    known, done = read_answers(election.answers), 0
    recipes = {folder: shortened(election.recipes[folder], split) for folder in folders}
    asked = FOLDS, split.positions.labeled.tolist(), labels.tolist()
    keys = {folder: sha256(repr((recipe.to_toml(), *asked)).encode()).hexdigest() for folder, recipe in recipes.items()}
    new = [folder for folder in folders if keys[folder] not in known]
    trained = [folder for folder in new if recipes[folder].method["name"] not in BASELINES]
    total = sum(FOLDS * recipes[folder].plan["steps"] for folder in trained)
    for folder, recipe in recipes.items():
        if folder in new:
            try:
                if folder not in trained:
                    logits = baseline_out_of_fold(recipe.method["name"], dataset, split, recipe.seed)
                else:
                    answers = out_of_fold(recipe, dataset, split, election.device)
                    logits = yield from going_on(answers, done, total)
                    done += FOLDS * recipe.plan["steps"]
            except NotFiniteError as problem:
                failed[folder] = str(problem)
                continue
            known[keys[folder]] = mistakes(logits, labels).tolist()
            write_atomically(election.answers, json.dumps(known).encode())
        missed[folder] = np.array(known[keys[folder]], dtype=bool)
    return missed, failed


def read_answers(path: Path) -> dict[str, list[bool]]:
    """What was found out earlier, by what it depends on; nothing if the file is damaged."""
    try:
        found = parse_json(read_limited(path, LARGEST_JSON)) if path.is_file() else {}
    except (InputError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(each, list) for each in found.values()) else {}
