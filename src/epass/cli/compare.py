"""`epass compare`: several methods on one data set, over several seeds, in one table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..errors import InputError
from ..recipe import Recipe
from ..runs import Run, RunFolder, load_run
from .contenders import parse_methods, recipes_for
from .demo import describe_run
from .progress import overall, reading
from .screen import complain, screen, show_table
from .settings import Request, fitting
from .stopping import Stop, exit_code, stop_signals

if TYPE_CHECKING:
    import torch

    from ..data import Dataset

SHOWN = 7  # columns of the table that fit a screen
COMPARISONS = """[bold]Examples[/]

[cyan]epass compare digits --methods all[/]                        every method

[cyan]epass compare digits --methods simmatch,simmatch+3[/]        +3: EPASS

[cyan]epass compare photos/ --labels 100 --seeds 5[/]              your images

[bold]What it writes[/]

OUT/table.md and OUT/report.html for people, OUT/results.csv with one line per
run for programs, and for each run an ordinary run folder OUT/METHOD-SEED. Stop
it whenever you like: the same command goes on where it was."""


def compare(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A built-in data set, a folder of images or an .npz file.")
    ],
    methods: Annotated[
        str,
        typer.Option(help="Names from 'epass methods', with commas between them; simmatch+3 has 3 projectors; or all."),
    ] = "fixmatch,simmatch,simmatch+3",
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs of each method; less than 3 can hardly tell luck from merit.")
    ] = 3,
    labels: Annotated[
        int | None, typer.Option(help="How many images keep their label, equally many of every class.")
    ] = None,
    net: Annotated[str | None, typer.Option(help="The network of all runs; see 'epass networks'.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimization steps of every run.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any key of a recipe; method.threshold=0.9 is for those that have one."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where runs and tables go; finished runs in it are kept.")] = Path(
        "runs/compare"
    ),
) -> None:
    """Which method is best on these images? Train several alike and put them in one table.

    Network, steps and labels are the same for all. Labels only (supervised) is
    always among them: it shows what the unlabeled images are worth. A seed
    decides which images are labeled, so methods are compared seed by seed. Runs
    follow one another, so that their times can be compared, too, and every
    method has run with the first seed before the second one begins.
    """
    from ..data import open_dataset
    from ..device import choose_device
    from ..experiment import reading_settings, split_for

    request = Request(data=data, net=net, labels=labels, steps=steps, settings=tuple(settings or ()))
    contenders = parse_methods(methods)
    jobs = {
        out / f"{contender.name}-{seed}": recipe
        for seed in range(seeds)
        for contender, recipe in recipes_for(request, contenders, seed).items()
    }
    check_folders(out, jobs)
    place, console, first = choose_device(device), screen(), next(iter(jobs.values()))
    with reading(console) as progress:
        dataset = open_dataset(first.data["name"], **reading_settings(first), progress=progress)
    split_for(first, dataset)  # says why so many labels cannot be had
    console.print(
        f"{len(contenders)} ways of training on {dataset.name}, {seeds} seed{'s' * (seeds != 1)} each: "
        f"{len(jobs)} runs of {first.plan['steps']:,} steps with the network {first.net['name']}, in {out}.",
        markup=False,
        soft_wrap=True,
    )
    amount = f"{first.data['labels']:,}" if "labels" in first.data else "all"
    title = f"{dataset.name} with {amount} labels: which method?"
    failed = train_all(jobs, dataset, place, console, out, lambda failed: write_tables(list(jobs), failed, out, title))
    show_outcome(list(jobs), failed, out, title, console)
    exit_if_failed(failed, len(jobs))


def check_folders(out: Path, jobs: Mapping[Path, Recipe]) -> None:
    """Refuse folders that hold something else, before anything is trained."""
    from ..running import check_same

    if out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; the runs need a folder: choose another one with --out.")
    for folder, recipe in jobs.items():
        if RunFolder(folder).exists():
            load_run(folder)  # says which file is damaged
            with RunFolder(folder).hold():  # says which process is in it
                pass
            try:
                check_same(recipe, RunFolder(folder))
            except InputError as problem:
                raise InputError(f"{str(problem).removesuffix('.')}: choose another folder with --out.") from None
        elif folder.exists():
            RunFolder(folder).create(force=False)  # says why this folder cannot be used


def train_all(
    jobs: Mapping[Path, Recipe],
    dataset: Dataset,
    place: torch.device,
    console: Console,
    out: Path,
    after_each: Callable[[Mapping[Path, str]], object],
) -> dict[Path, str]:
    """Train what is not finished, and let `after_each` keep tables up to date; returns why runs failed."""
    try:
        with stop_signals() as stop:
            return train_each(jobs, dataset, place, console, after_each, stop)
    except KeyboardInterrupt as stopped:
        complain(f"the same command goes on from here; finished runs are in {out}.", "Stopped")
        raise typer.Exit(exit_code(stopped)) from None


def exit_if_failed(failed: Mapping[Path, str], count: int) -> None:
    """Say which of so many runs are missing, and end with exit code 1, if there are some."""
    if failed:
        names = ", ".join(folder.name for folder in failed)
        complain(f"{len(failed)} of {count} runs failed ({names}); the same command tries them again.")
        raise typer.Exit(1)


def train_each(
    jobs: Mapping[Path, Recipe],
    dataset: Dataset,
    place: torch.device,
    console: Console,
    after_each: Callable[[Mapping[Path, str]], object],
    stop: Stop,
) -> dict[Path, str]:
    """One run after the other, until `stop` raises."""
    failed: dict[Path, str] = {}
    with overall(console) as bar:
        task = bar.add_task("training", total=sum(recipe.plan["steps"] for recipe in jobs.values()))
        before = 0
        for folder, recipe in jobs.items():
            kept = RunFolder(folder).exists() and load_run(folder).results is not None
            try:
                for step in () if kept else train_one(folder, recipe, dataset, place, stop):
                    bar.update(task, completed=before + step)
            except Exception as problem:  # whatever one method trips over, the others still can be compared
                kind = "" if isinstance(problem, InputError) else f"{type(problem).__name__}: "
                failed[folder] = kind + " ".join(str(problem).split())
                complain(f"{folder.name} failed: {failed[folder]}")
            else:
                console.print(Text(f"  {describe_run(folder)}{' (was there)' if kept else ''}"), soft_wrap=True)
            before += recipe.plan["steps"]
            bar.update(task, completed=before)
            after_each(failed)
    return failed


def train_one(folder: Path, recipe: Recipe, dataset: Dataset, place: torch.device, stop: Stop) -> Iterator[int]:
    """Start a run or go on with it, and yield the steps done."""
    import torch

    from ..experiment import build
    from ..running import run

    if place.type == "cuda":
        torch.compiler.reset()  # it compiles a function for a few networks only, and there are many runs
    with fitting(recipe.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
        experiment = build(recipe, place, dataset)
        command = shlex.join(["epass", *sys.argv[1:]])
        with stop.patiently():
            for report in run(recipe, folder, resume=True, command=command, experiment=experiment, stop=stop):
                yield report.step
    stop()  # if a signal came when the last step was done


def write_tables(folders: Sequence[Path], failed: Mapping[Path, str], out: Path, title: str) -> list[Run]:
    """The CSV and the Markdown file of the runs that there are; returns these."""
    from ..report import group_runs, write_rows, write_table

    runs = [load_run(folder) for folder in folders if RunFolder(folder).exists()]
    if runs:
        write_rows(out / "results.csv", runs)
        missing = {folder.name: reason for folder, reason in failed.items()}
        write_table(out / "table.md", group_runs(runs), title=title, missing=missing)
    return runs


def show_outcome(folders: Sequence[Path], failed: Mapping[Path, str], out: Path, title: str, console: Console) -> None:
    """The table, the verdict and the page."""
    from ..report import HEADS, group_runs, table_rows, verdict, write_page

    runs = write_tables(folders, failed, out, title)
    if runs:
        groups = group_runs(runs)
        console.print()
        show_table(console, HEADS[:SHOWN], [cells[:SHOWN] for _, cells in table_rows(groups)])
        console.print()
        console.print(Text(verdict(groups)), soft_wrap=not console.is_terminal)
        console.print()
        page = write_page(out / "report.html", runs, title=title)
        console.print(f"Every column: {out / 'table.md'}, {out / 'results.csv'}", markup=False, soft_wrap=True)
        console.print(f"Open the page: {page.resolve()}", markup=False, soft_wrap=True)
