"""The cells of a table of methods by data sets: which are trained, which cannot be, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import InputError
from ..recipe import Recipe, parse_setting, read_recipe
from ..runs import RunFolder, load_run
from .compare import check_folders, exit_if_failed, train_all
from .progress import reading
from .screen import screen, show_json, show_table
from .settings import Request, compose
from .sheets import refuse_file, show

if TYPE_CHECKING:
    from ..data import Dataset
    from ..reproduce import Benchmark, Gap, Sheet, Trial

DECIDED = {
    "seed": "--seeds",
    "plan.steps": "--scale",
    "data.name": "--data or --root",
    "method.name": "--only",
    "projector.size": "--only simmatch+3",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was typed."""

    table: str
    only: Sequence[str]
    columns: Sequence[str]
    seeds: int
    scale: float
    data: str | None  # in place of the paper's
    root: Path  # of the paper's data sets
    settings: tuple[str, ...]
    out: Path | None
    device: str


@dataclass(eq=False)
class Job:
    """One run of a trial."""

    trial: Trial
    seed: int
    folder: Path
    recipe: Recipe | None = None
    results: dict[str, Any] | None = None  # of a finished run
    gap: Gap | None = None


def check_scale(scale: float) -> None:
    """A share of the steps, and not none of them."""
    if not 0 < scale <= 1:
        raise InputError(f"--scale is a share of the recipe's steps, above 0 and at most 1, not {scale:g}.")


def check_settings(settings: Sequence[str]) -> None:
    """Refuse what another flag decides."""
    for key, _ in map(parse_setting, settings):
        if key in DECIDED:
            raise InputError(f"'{key}' is not one for all runs: it is decided by {DECIDED[key]}.")


def fill(asked: Asked, dry_run: bool, as_json: bool) -> None:
    """Train what a table still lacks, or only list it, and show the table."""
    from ..reproduce import choose, on_other_data, read_benchmark

    check_scale(asked.scale)
    check_settings(asked.settings)
    table = read_benchmark(asked.table)
    trials = choose(table.trials, asked.only, asked.columns)
    if asked.data is not None:
        trials = [on_other_data(trial, asked.data) for trial in trials]
    out = Path("runs") / f"reproduce-{table.runs}" if asked.out is None else asked.out
    refuse_file(out)
    jobs = [plan_job(trial, seed, asked, out) for trial in trials for seed in range(asked.seeds)]
    check_folders(out, {job.folder: job.recipe for job in jobs if job.recipe is not None and job.gap is None})
    if dry_run:
        show_plan(jobs, as_json)
    else:
        train_jobs(table, jobs, asked, out, as_json)


def train_jobs(table: Benchmark, jobs: Sequence[Job], asked: Asked, out: Path, as_json: bool) -> None:
    """Column by column, with the table in files as it grows."""
    from ..machine.device import choose_device

    place = choose_device(asked.device)
    console = Console(quiet=True) if as_json else screen()
    waiting = [job for job in jobs if job.results is None and job.gap is None]
    there = sum(job.results is not None for job in jobs)
    gone = sum(job.gap is not None for job in jobs)
    console.print(
        f"{table.title}: {counted(len(waiting), 'run')} to train, {there} finished, {gone} skipped, in {out}.",
        markup=False,
        soft_wrap=True,
    )
    odd = obstacles(table, asked, [job.recipe for job in jobs if job.recipe is not None])

    def keep(failed: Mapping[Path, str]) -> None:
        note_outcome(waiting, failed)
        sheet_of(table, jobs, odd, asked).write(out, table.name)

    failed: dict[Path, str] = {}
    for column, dataset, members in by_column(waiting, asked, console):
        recipes = {job.folder: job.recipe for job in members if job.recipe is not None}
        steps = max(recipe.plan["steps"] for recipe in recipes.values())
        title = f"\n{column}: {counted(len(recipes), 'run')} of {counted(steps, 'step')}"
        console.print(title, markup=False, soft_wrap=True)
        failed |= train_all(recipes, dataset, place, console, out, keep)
    console.print()
    show(sheet_of(table, jobs, odd, asked), out, console, as_json, table.name)
    exit_if_failed(failed, len(waiting))


def plan_job(trial: Trial, seed: int, asked: Asked, out: Path) -> Job:
    """The recipe of a run, and whether it is done or cannot be."""
    from ..engine.build import check_recipe
    from ..reproduce import Gap

    job = Job(trial, seed, out / f"{trial.name}-{seed}")
    if trial.recipe is None:
        job.gap = Gap("no recipe", f"{trial.title}: {trial.lacking}")
        return job
    if RunFolder(job.folder).exists():
        job.results = load_run(job.folder).results
    recipe = recipe_of(trial, read_recipe(trial.recipe), seed, asked)
    if asked.data is None:
        place = find_data(trial.column.data, recipe.data["name"], asked.root)
        if job.results is not None:  # wherever the images were then
            recipe = recipe.with_settings({"data.name": load_run(job.folder).recipe["data"]["name"]})
        elif place is not None:
            recipe = recipe.with_settings({"data.name": str(place.absolute())})
        else:
            job.gap = Gap("no data", absent(trial.column.data, asked.root))
    check_recipe(recipe)
    job.recipe = recipe
    return job


def recipe_of(trial: Trial, start: Recipe, seed: int, asked: Asked) -> Recipe:
    """The recipe of a cell, from its built-in one, shortened."""
    is_path = asked.data is not None and Path(asked.data).expanduser().exists()
    start = start.with_settings(trial.column.settings)
    request = Request(
        data=asked.data if is_path else start.data.get("name", asked.data),
        projectors=trial.projectors,
        wrap=trial.wrapper,
        steps=max(1, round(asked.scale * start.plan["steps"])),
        seed=seed,
        settings=asked.settings,
    )
    return compose(request, start)


def find_data(name: str, own: str, root: Path) -> Path | None:
    """The files of a data set: where `epass download` puts them, or under the name that its recipe has for them."""
    from ..data.read.download import contents

    for place in (root.expanduser() / name, root.expanduser() / own, Path(own)):
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
    return f"{name} is not here: `epass download {name}{'' if root == Path('data') else f' --to {root}'}`"


def obstacles(table: Benchmark, asked: Asked, recipes: Sequence[Recipe]) -> list[str]:
    """Why the runs cannot be held against the paper's: `what: paper's -> ours`."""
    found = [f"data: the table's -> {asked.data}"] if asked.data else []
    for key, value in map(parse_setting, asked.settings):
        if key not in table.needs:
            found.append(f"{key}: that of the recipe -> {value}")
    lacking = [key for key in table.needs if any(recipe.flat().get(key) is None for recipe in recipes)]
    return found + [f"{key}: set -> not set" for key in lacking]


def by_column(jobs: Sequence[Job], asked: Asked, console: Console) -> Iterator[tuple[str, Dataset, list[Job]]]:
    """The runs of each column that can be trained, with its data set, of which one at a time is open."""
    from ..data import open_dataset
    from ..engine.build import reading_settings
    from ..reproduce import Gap

    opened: tuple[object, Dataset] | None = None
    order = {name: place for place, name in enumerate(dict.fromkeys(job.trial.column.name for job in jobs))}
    in_order = sorted(jobs, key=lambda job: (order[job.trial.column.name], job.seed))
    for _, group in groupby(in_order, key=lambda job: job.trial.column.name):
        members = list(group)
        first = members[0].recipe
        assert first is not None
        key = (first.data["name"], reading_settings(first))
        if opened is None or opened[0] != key:
            opened = None  # its memory is needed
            try:
                with reading(console) as progress:
                    opened = key, open_dataset(first.data["name"], **reading_settings(first), progress=progress)
            except InputError as problem:
                if asked.data is not None:
                    raise
                for job in members:
                    job.gap = Gap("no data", str(problem).removesuffix("."))
                continue
        refuse_splits(members, opened[1])
        if possible := [job for job in members if job.gap is None]:
            yield members[0].trial.column.title, opened[1], possible


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
    from ..reproduce import Gap, Outcome, benchmark_sheet

    outcomes: dict[Trial, Outcome] = {}
    for trial, group in groupby(jobs, key=lambda job: job.trial):
        members = list(group)
        results = [job.results for job in members if job.results is not None]
        gaps = [job.gap for job in members if job.gap is not None]
        waiting = Gap("not yet", "their turn has not come, use the same command again")
        outcomes[trial] = Outcome(members[0].recipe, results, None if results else next(iter(gaps), waiting))
    return benchmark_sheet(table, outcomes, odd=odd, instead=asked.data, scale=asked.scale)


def show_plan(jobs: Sequence[Job], as_json: bool) -> None:
    """The runs of a table, how they are made and where they stand."""
    plans: list[dict[str, Any]] = [
        {
            "method": job.trial.row,
            "column": job.trial.column.name,
            "seed": job.seed,
            "recipe": job.trial.recipe,
            "changes": changes(job.trial),
            "steps": job.recipe.plan["steps"] if job.recipe else None,
            "folder": str(job.folder),
            "state": "skipped" if job.gap else "finished" if job.results else "to train",
            "missing": job.gap.reason if job.gap else None,
        }
        for job in jobs
    ]
    if as_json:
        show_json(plans)
        return
    heads = ("method", "column", "seed", "recipe", "changes", "steps", "state")
    rows = [
        [
            plan["method"],
            plan["column"],
            str(plan["seed"]),
            plan["recipe"] or "–",
            plan["changes"] or "–",
            f"{plan['steps']:,}" if plan["steps"] else "–",
            plan["missing"] or plan["state"],
        ]
        for plan in plans
    ]
    console = screen()
    show_table(console, heads, rows)
    states = [plan["state"] for plan in plans]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("to train", "finished", "skipped"))
    console.print(f"\n{counted(len(plans), 'run')}: {counts}", markup=False, soft_wrap=True)


def changes(trial: Trial) -> str:
    """What a cell sets in its recipe."""
    found = dict(trial.column.settings)
    if trial.projectors:
        found["projector.size"] = trial.projectors
    return ", ".join(f"{key}={value}" for key, value in found.items())


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {thing}{'s' * (count != 1)}"
