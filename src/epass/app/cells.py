"""The cells of a table of the paper: which are trained, which cannot be, and what came out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import from_home
from ..recipe import Recipe, read_recipe
from ..runs import Run, RunFolder, load_run
from .request import Request, compose

if TYPE_CHECKING:
    from ..data import Dataset
    from ..reproduce import Benchmark, Gap, Sheet, Trial
    from .reproduce import Asked


@dataclass(eq=False)
class Job:
    """One run of a trial."""

    trial: Trial
    seed: int
    folder: Path
    recipe: Recipe | None = None
    results: dict[str, Any] | None = None  # of a finished run
    odd: str = ""  # why these cannot be held against the paper's
    gap: Gap | None = None

    @property
    def changes(self) -> str:
        """What the cell sets in its recipe."""
        found = dict(self.trial.column.settings)
        if self.trial.projectors:
            found["projector.size"] = self.trial.projectors
        return ", ".join(f"{key}={value}" for key, value in found.items())


def plan_jobs(trials: Sequence[Trial], asked: Asked, out: Path) -> tuple[list[Job], dict[Path, str]]:
    """Every run, with its recipe and whether it is done or cannot be; and the folders that cannot be read."""
    from ..report import sort_out
    from ..reproduce import Gap

    jobs = [Job(trial, seed, out / f"{trial.name}-{seed}") for trial in trials for seed in range(asked.seeds)]
    usable, damaged = sort_out([job.folder for job in jobs if RunFolder(job.folder).exists()])
    there = {run.path: run for run in usable}
    for job in jobs:
        complete(job, there.get(job.folder), asked)
        if job.folder in damaged:
            job.gap = Gap("damaged", damaged[job.folder].removesuffix("."))
    return jobs, damaged


def complete(job: Job, there: Run | None, asked: Asked) -> None:
    """Give a job its recipe, and the results of the run that is there; or say what it lacks."""
    from ..engine.build import check_recipe
    from ..reproduce import Gap

    trial, root = job.trial, Path(asked.root)
    if trial.recipe is None:
        job.gap = Gap("no recipe", f"{trial.title}: {trial.lacking}")
        return
    job.results = None if there is None else there.results
    recipe = recipe_of_trial(trial, read_recipe(trial.recipe), job.seed, asked)
    if asked.instead is None:
        place = find_data(trial.column.data, recipe.data["name"], root)
        if there is not None and there.results is not None:  # wherever the images were then
            job.odd = odd_normalization(trial, (there.model or {}).get("mean"), (there.model or {}).get("std"))
            recipe = recipe.with_settings({"data.name": there.recipe["data"]["name"]})
        elif place is not None:
            recipe = recipe.with_settings({"data.name": str(place.absolute())})
        else:
            job.gap = Gap("no data", absent(trial.column.data, root))
    check_recipe(recipe)
    job.recipe = recipe


def recipe_of_trial(trial: Trial, start: Recipe, seed: int, asked: Asked) -> Recipe:
    """The recipe of a cell, from its built-in one, shortened."""
    is_path = asked.instead is not None and from_home(asked.instead).exists()
    start = start.with_settings(trial.column.settings)
    request = Request(
        data=asked.instead if is_path else start.data.get("name", asked.instead),
        projectors=trial.projectors,
        wrap=trial.wrapper,
        steps=max(1, round(asked.scale * start.plan["steps"])),
        seed=seed,
        settings=asked.settings,
    )
    return compose(request, start)


def odd_normalization(trial: Trial, mean: object, std: object) -> str:
    """Why runs with this mean and deviation are not the paper's; "" if they have the published ones."""
    from ..reproduce import other_normalization

    found = other_normalization(trial.column.data, mean, std)
    return f"{trial.column.title}: normalized by {found}" if found else ""


def find_data(name: str, own: str, root: Path) -> Path | None:
    """The files of a data set: where `epass download` puts them, or under the name that its recipe has for them."""
    from ..data.read.download import contents

    for place in (from_home(root) / name, from_home(root) / own, Path(own)):
        if place.is_file():
            return place
        if place.is_dir() and any(place.iterdir()):
            return contents(place)
    return None


def absent(name: str, root: Path) -> str:
    """How to get a data set that is not there."""
    from ..data.read.download import SOURCES

    if name not in SOURCES:
        return f"{name} is not here: put its original files into {root / name} (see `epass datasets`)"
    command = ["epass", "download", name, *([] if root == Path("data") else ["--to", str(root)])]
    return f"{name} is not here: `{shlex.join(command)}`"


def by_column(table: Benchmark, jobs: Sequence[Job], asked: Asked) -> Iterator[tuple[str, Dataset, list[Job]]]:
    """The runs of columns with one title that can be trained, with their data set, of which one at a time is open."""
    from ..data import open_dataset
    from ..engine.build import reading_settings, split_for
    from ..reproduce import Gap

    opened: tuple[object, Dataset] | None = None
    order = {title: place for place, title in enumerate(dict.fromkeys(job.trial.column.title for job in jobs))}
    in_order = sorted(jobs, key=lambda job: (order[job.trial.column.title], job.seed))
    for title, group in groupby(in_order, key=lambda job: job.trial.column.title):
        members = list(group)
        first = members[0].recipe
        assert first is not None
        key = (first.data["name"], reading_settings(first))
        if opened is None or opened[0] != key:
            opened = None  # its memory is needed
            try:
                opened = key, open_dataset(first.data["name"], **reading_settings(first), progress=asked.reading)
            except InputError as problem:
                if asked.instead is not None:
                    raise
                for job in members:
                    job.gap = Gap("no data", str(problem).removesuffix("."))
                continue
        if asked.instead is None and (odd := odd_normalization(members[0].trial, opened[1].mean, opened[1].std)):
            for job in members:
                job.gap = Gap("other normalization", f"{odd}: give the owner's files, or these with --data")
            continue
        if table.varied:
            split_for(first, opened[1])  # all ask for the same labels: says why these cannot be had
        refuse_splits(members, opened[1])
        if possible := [job for job in members if job.gap is None]:
            yield title, opened[1], possible


def refuse_splits(jobs: Sequence[Job], dataset: Dataset) -> None:
    """Note which runs ask for labels that the data set does not have; runs of one column mostly ask alike."""
    from ..engine.build import split_for
    from ..engine.models import method_class
    from ..reproduce import Gap

    answers: dict[str, Gap | None] = {}
    for job in jobs:
        assert job.recipe is not None
        key = repr((sorted(job.recipe.data.items()), method_class(job.trial.method).all_labels))
        if key not in answers:
            try:
                split_for(job.recipe, dataset)
                answers[key] = None
            except InputError as problem:
                answers[key] = Gap("impossible", f"{job.trial.column.title}: {str(problem).removesuffix('.')}")
        job.gap = answers[key]


def note_outcome(jobs: Sequence[Job], failed: Mapping[Path, str]) -> None:
    """Take the results of runs that have just ended, well or not."""
    from ..reproduce import Gap

    for job in jobs:
        if job.folder in failed:
            job.gap = Gap("failed", f"{job.folder.name}: {failed[job.folder]}")
        elif job.results is None and RunFolder(job.folder).exists():
            job.results = load_run(job.folder).results


def sheet_of(table: Benchmark, jobs: Sequence[Job], odd: Sequence[str], asked: Asked) -> Sheet:
    """The table as it stands."""
    from ..report import data_name
    from ..reproduce import Gap, Outcome, ablation_sheet, benchmark_sheet

    outcomes: dict[Trial, Outcome] = {}
    for trial, group in groupby(jobs, key=lambda job: job.trial):
        members = list(group)
        results = [job.results for job in members if job.results is not None]
        gaps = [job.gap for job in members if job.gap is not None]
        waiting = Gap("not yet", "their turn has not come, use the same command again")
        apart = next((job.odd for job in members if job.odd), "")
        outcomes[trial] = Outcome(members[0].recipe, results, None if results else next(iter(gaps), waiting), apart)
    if table.varied and asked.instead is not None:
        name = data_name({"data": {"name": asked.instead}})
        return ablation_sheet(table, outcomes, odd=odd, instead=name, scale=asked.scale)
    return benchmark_sheet(table, outcomes, odd=odd, instead=asked.instead, scale=asked.scale)
