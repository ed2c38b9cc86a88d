"""Fill a table of the paper: its numbers, ours, and the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import InputError, one_of
from ..extensions import trust_typed
from ..files import check_folder
from ..machine.signals import stopped_with
from ..recipe import parse_setting
from .cells import Job, by_column, note_outcome, plan_jobs, sheet_of
from .contenders import refuse_decided, words_of
from .events import Caution, Event, Notice, Result, Table, with_arguments_of, work
from .flags import Device, Flag, Images, Reading, Settings, Stop, go_on
from .many_runs import check_folders, describe_damaged, describe_failures, places_for, train_all
from .words import counted
from .workers import How

if TYPE_CHECKING:
    from ..reproduce import Benchmark, Sheet

ABLATIONS = {
    "projectors": "CoMatch and SimMatch with one to four projectors.",
    "strategies": "CoMatch and SimMatch with three projectors, concatenated, added up or averaged.",
}
BENCHMARKS = {
    "classic": "Eleven methods, EPASS and all labels on CIFAR-10, CIFAR-100, SVHN and STL-10.",
    "imagenet": "Top-1 and top-5 error of six methods and EPASS on ImageNet.",
    "imagenet-detail": "Epochs, parameters and accuracy on ImageNet with 1 % and 10 % of the labels.",
    "longtail": "Six methods, with and without EPASS and ABC, on long-tailed CIFAR-10 and CIFAR-100.",
    "usb": "Nine methods, EPASS and all labels with the ViTs of the USB benchmark on five data sets.",
    "prf": "Precision, recall, F1 and AUC of seven methods and EPASS on four data sets.",
}
SKIPPING = (
    "Cells whose data or recipe is missing are skipped, and the table says so. Finished runs are kept: stop it "
    "whenever you like, the same command goes on."
)
DECIDED = {
    "seed": "--seeds",
    "plan.steps": "--scale",
    "data.name": "--data or --root",
    "method.name": "--only",
    "projector.size": "--only simmatch+3",
}


@dataclass(frozen=True)
class Asked:
    """What can be said of a table."""

    table: Annotated[str, Flag("A table of the paper.", metavar="TABLE")]
    _: KW_ONLY
    only: Annotated[str, Flag("Rows, with commas between them: simmatch,simmatch+3; +3 is EPASS.")] = ""
    columns: Annotated[
        str, Flag("Columns as in --dry-run, or data sets: cifar10-40,svhn. With commas between them.")
    ] = ""
    seeds: Annotated[int, Flag("Runs of every cell.", least=1)] = 1
    scale: Annotated[float, Flag("Train for this share of the recipe's steps; 1 is all of them.")] = 1.0
    data: Annotated[
        Images | None,
        Flag(
            "Train on this in place of the table's data: digits, or images of yours. Without differences.",
            default="the table's; digits for projectors and strategies",
        ),
    ] = None
    root: Annotated[str | Path, Flag("Where the data sets are, as 'epass download' puts them.", metavar="FOLDER")] = (
        "data"
    )
    settings: Settings = ()
    out: Annotated[
        str | Path | None,
        Flag("Where runs and tables go; finished runs are kept.", default="runs/reproduce-TABLE"),
    ] = None
    device: Device = "auto"
    dry_run: Annotated[bool, Flag("List the runs and what is missing; train nothing.")] = False
    command: str = ""
    stop: Stop = go_on
    reading: Reading | None = None

    @property
    def instead(self) -> str | None:
        """The data set in the place of the table's."""
        return None if self.data is None else str(self.data)


@work
def parameters(
    *, out: Annotated[str | Path | None, Flag("A folder for table.csv, table.md and table.tex.")] = None
) -> Iterator[Event]:
    """How many parameters every network of the paper has. Nothing is trained."""
    from ..reproduce import parameters as count_all

    folder = None if out is None else Path(out)
    if folder is not None:
        refuse_file(folder)
    sheet = count_all()
    yield from tell(sheet, folder, "table")
    yield Result(values=sheet.cells, files=files_of(folder, "table"))


@with_arguments_of(Asked)
def reproduce(asked: Asked) -> Iterator[Event]:
    """Fill a table of the paper: its numbers, ours, and the difference."""
    from ..reproduce import choose, on_other_data, read_benchmark

    one_of("table", asked.table, (*ABLATIONS, *BENCHMARKS))
    check_scale(asked.scale)
    refuse_decided(asked.settings, DECIDED)
    trust_typed(asked.instead, *[value for _, value in map(parse_setting, asked.settings)])
    table = read_benchmark(asked.table)
    asked = replace(asked, data=table.stand_in if asked.data is None else asked.data)
    trials = choose(table.trials, words_of(asked.only), words_of(asked.columns))
    if asked.instead is not None:
        trials = [on_other_data(trial, asked.instead) for trial in trials]
    out = Path("runs") / f"reproduce-{table.runs}" if asked.out is None else Path(asked.out)
    refuse_file(out)
    jobs, damaged = plan_jobs(trials, asked, out)
    check_folders(out, {job.folder: job.recipe for job in jobs if job.recipe is not None and job.gap is None})
    if asked.dry_run:
        yield from tell_plan(jobs)
    else:
        yield from train_jobs(table, jobs, damaged, asked, out)


def check_scale(scale: float) -> None:
    """A share of the steps, and not none of them."""
    if not 0 < scale <= 1:
        raise InputError(f"--scale is a share of the recipe's steps, above 0 and at most 1, not {scale:g}.")


def refuse_file(out: Path) -> None:
    """Tables need a folder."""
    if out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; the tables need a folder: choose another one with --out.")
    check_folder(out)


def train_jobs(
    table: Benchmark, jobs: Sequence[Job], damaged: Mapping[Path, str], asked: Asked, out: Path
) -> Iterator[Event]:
    """Column by column, with the table in files as it grows."""
    from ..reproduce import obstacles

    places = places_for(asked.device)
    waiting = [job for job in jobs if job.results is None and job.gap is None]
    there = sum(job.results is not None for job in jobs)
    for problem in damaged.values():
        yield Caution(problem, "Left out")
    yield Notice(
        f"{table.title}: {counted(len(waiting), 'run')} to train, {there} finished, "
        f"{len(jobs) - len(waiting) - there} skipped, in {out}."
    )
    recipes = [job.recipe for job in jobs if job.recipe is not None]
    settings = dict(map(parse_setting, asked.settings))
    odd = obstacles(table, recipes, instead=asked.instead, settings=settings, scale=asked.scale)

    def keep(failed: Mapping[Path, str]) -> None:
        note_outcome(waiting, failed)
        sheet_of(table, jobs, odd, asked).write(out, table.file)

    failed: dict[Path, str] = {}
    with stopped_with(f"the same command goes on from here; finished runs are in {out}."):
        for title, dataset, members in by_column(table, waiting, asked):
            new = {job.folder: job.recipe for job in members if job.recipe is not None}
            steps = max(recipe.plan["steps"] for recipe in new.values())
            yield Notice(f"{title}: {counted(len(new), 'run')} of {counted(steps, 'step')}", apart=True)
            failed |= yield from train_all(new, dataset, places, How(asked.command), asked.stop, keep)
    sheet = sheet_of(table, jobs, odd, asked)
    yield from tell(sheet, out, table.file)
    left_out = describe_damaged(damaged, len(jobs))
    if damaged and failed:
        yield Caution(left_out, "Error")
    complaint = describe_failures(failed, len(waiting)) or left_out
    yield Result(values=sheet.cells, files=files_of(out, table.file), complaint=complaint)


def tell(sheet: Sheet, out: Path | None, name: str) -> Iterator[Event]:
    """A table below what one must know to read it, and the same in files."""
    yield Table(sheet.heads, sheet.rows, sheet.title, sheet.notes)
    if out is not None:
        sheet.write(out, name)
        yield Notice(f"The same as files: {out / name}.csv, {name}.md, {name}.tex")


def files_of(out: Path | None, name: str) -> dict[str, Path]:
    """Where a table is written, by kind."""
    return {} if out is None else {kind: out / f"{name}.{kind}" for kind in ("csv", "md", "tex")}


def tell_plan(jobs: Sequence[Job]) -> Iterator[Event]:
    """The runs of a table, how they are made and where they stand."""
    plans: list[dict[str, Any]] = [
        {
            "method": job.trial.row,
            "column": job.trial.column.name,
            "seed": job.seed,
            "recipe": job.trial.recipe,
            "changes": job.changes,
            "steps": job.recipe.plan["steps"] if job.recipe else None,
            "folder": str(job.folder),
            "state": "skipped" if job.gap else "finished" if job.results else "to train",
            "missing": job.gap.reason if job.gap else None,
        }
        for job in jobs
    ]
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
    yield Table(heads, rows)
    states = [plan["state"] for plan in plans]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("to train", "finished", "skipped"))
    yield Notice(f"{counted(len(plans), 'run')}: {counts}")
    yield Result(values=plans)
