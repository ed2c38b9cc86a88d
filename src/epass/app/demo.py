"""See it work: labels only, SimMatch and SimMatch + EPASS on the embedded digits, and what came out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import RunError
from ..files import check_folder
from ..machine.cpu import count_cores
from ..machine.signals import stopped_with
from ..recipe import Recipe, read_recipe
from ..runs import RunFolder, load_run
from .events import Event, Notice, Result, Section, Table, work
from .flags import Flag, Stop, go_on
from .many_runs import beginnings, tell
from .words import duration
from .workers import How, train_runs

if TYPE_CHECKING:
    from ..data import Dataset
    from ..report import Group

CONTENDERS = (("supervised", None), ("simmatch", 1), ("simmatch", 3))  # method, projectors


@work
def demo(
    *,
    seeds: Annotated[int, Flag("Runs of each kind; more seeds, more certainty.", least=1)] = 3,
    labels: Annotated[int, Flag("Labeled images in all, equally many of each digit.")] = 40,
    steps: Annotated[int | None, Flag("Optimization steps of each run.", least=1)] = None,
    out: Annotated[str | Path, Flag("Where the runs and the page go; earlier ones are replaced.")] = "runs/demo",
    stop: Stop = go_on,
) -> Iterator[Event]:
    """See it work: do 1,402 unlabeled scans of digits help a classifier that has 40 labels?

    Needs no download and no GPU. Trains without and with the unlabeled images, with one projector and with three.
    """
    from ..data import open_dataset
    from ..engine.build import check_recipe, split_for
    from ..report import comparison_record, group_runs, verdict, write_page

    jobs = {
        Path(out) / "-".join([method, *(["epass"] if (projectors or 1) > 1 else []), str(seed)]): recipe_for(
            method, projectors, seed, labels, steps
        )
        for method, projectors in CONTENDERS
        for seed in range(seeds)
    }
    check_folder(Path(out))
    digits = open_dataset("digits")
    for folder, recipe in jobs.items():
        check_recipe(recipe)
        split_for(recipe, digits)  # says why so many labels cannot be had
        if folder.exists() and not RunFolder(folder).exists():
            RunFolder(folder).create(force=True)  # says why this folder cannot be used
    yield Notice(
        f"Training {len(jobs)} small networks on scans of digits, {labels} of them labeled: "
        f"{len(CONTENDERS)} ways of training, {seeds} seed{'s' * (seeds != 1)} each."
    )
    started = time.perf_counter()
    with stopped_with(f"finished runs are in {out}; the same command starts over."):
        yield from train_side_by_side(jobs, digits, stop)
    seconds = time.perf_counter() - started
    runs = [load_run(folder) for folder in jobs]
    groups, title = group_runs(runs), f"Digits with {labels} labels: did the unlabeled images help?"
    page = write_page(Path(out) / "report.html", runs, title=title)
    yield Table(("", "test error", "accuracy", "ECE", "seconds", "seeds"), [outcome_row(group) for group in groups])
    yield Section(verdict(groups))
    yield Notice(f"{len(runs)} runs in {duration(seconds)}. Open the page: {page.resolve()}")
    yield Result(values=comparison_record(runs, title=title, missing={}), files={"page": page})


def recipe_for(method: str, projectors: int | None, seed: int, labels: int, steps: int | None) -> Recipe:
    """The recipe of one run."""
    settings = {"seed": seed, "data.labels": labels, "projector.size": projectors, "plan.steps": steps}
    return read_recipe(f"digits-{method}").with_settings({k: v for k, v in settings.items() if v is not None})


def train_side_by_side(jobs: dict[Path, Recipe], digits: Dataset, stop: Stop) -> Iterator[Event]:
    """Train in parallel, one core each: for networks this small that is faster than all cores on one run."""
    yield from beginnings(jobs)
    places, how = ["cpu"] * count_cores(), How("epass demo", anew=True)
    with closing(train_runs(jobs, digits, places, how, stop)) as updates:
        for update in updates:
            if update.lost:
                raise RunError(
                    "A training process was killed, perhaps for lack of memory; the same command starts over."
                )
            if update.problem is not None:
                raise RunError(f"{update.folder.name} failed: {update.problem}")
            yield from tell(update, jobs[update.folder], several=False)


def outcome_row(group: Group) -> list[str]:
    """One way of training: its scores at the last step, mean ± std over seeds, and the time of one run."""
    from ..evaluation import SCORES

    spreads = {replace(SCORES[key], digits=1): group.spread("last", key) for key in ("error", "accuracy", "ece")}
    shares = [score.text(spread.mean, spread.deviation) if spread else "-" for score, spread in spreads.items()]
    seconds = group.spread("seconds")
    return [group.label, *shares, f"{seconds.mean:.0f}" if seconds else "-", str(len(group.seeds))]
