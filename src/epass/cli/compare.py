"""`epass compare`: several methods on one data set, over several seeds, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from ..errors import InputError
from ..extensions import short
from ..recipe import Recipe
from ..runs import Run, RunFolder, load_run
from .contenders import parse_contenders, recipes_for
from .demo import describe_run
from .flags import Trust
from .progress import overall, reading
from .readable import sort_out
from .screen import complain, screen, show_json, show_table
from .settings import Request, trusting
from .stopping import Stop, exit_code, stop_signals
from .workers import News, train_runs

if TYPE_CHECKING:
    import torch

    from ..data import Dataset

COMPARISONS = """[bold]Examples[/]

[cyan]epass compare digits --methods all[/]                        every method

[cyan]epass compare digits --methods simmatch,simmatch+3[/]        +3: EPASS

[cyan]epass compare digits --projectors 1,3 --strategies mean,concat[/]   a grid

[cyan]epass compare photos/ --labels 100 --seeds 5[/]              your images

[bold]What it shows[/]

Mean ± standard deviation over seeds of the test error at the last step, at the
step that validation images select (with --set data.validation=0.2) and at the
best step on test, as papers report; then the differences to labels only, and of
EPASS to one projector, with 95 % intervals that resample seeds and test images;
and one sentence each: did the unlabeled images help, did EPASS, by how much, is
it more than noise.

[bold]What it writes[/]

OUT/table.md and OUT/report.html for people, OUT/results.csv with one line per
run and OUT/comparison.json for programs, and for each run an ordinary run
folder OUT/METHOD-SEED. Stop it whenever you like: the same command
goes on where it was."""


def compare(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A built-in data set, a folder of images or an .npz file.")
    ],
    methods: Annotated[
        str,
        typer.Option(help="Names from 'epass methods', with commas between them; simmatch+3 has 3 projectors; or all."),
    ] = "fixmatch,simmatch,simmatch+3",
    projectors: Annotated[
        str | None,
        typer.Option(help="Numbers of projectors, 1,3 for instance, for each method that has an embedding."),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(help="How several projectors are combined, each with each: some of mean, sum, concat."),
    ] = None,
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
    device: Annotated[str, typer.Option(help="auto, cpu, cuda (all that are visible), cuda:0 or mps.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where runs and tables go; finished runs in it are kept.")] = Path(
        "runs/compare"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON and nothing else.")] = False,
    trust: Trust = None,
) -> None:
    """Which method is best on these images? Train several alike and put them in one table.

    Network, steps and labels are the same for all. Labels only (supervised) is
    always among them: it shows what the unlabeled images are worth. A seed
    decides which images are labeled, so methods are compared seed by seed. Runs
    follow one another, so that their times can be compared, too, and every
    method has run with the first seed before the second one begins. Where there
    are several GPUs, each trains one run at a time.
    """
    from ..data import open_dataset
    from ..engine.build import reading_settings, split_for
    from ..machine.device import choose_device
    from ..report import comparison_record

    request = Request(
        data=data, net=net, labels=labels, steps=steps, settings=tuple(settings or ()), trust=tuple(trust or ())
    )
    request = trusting(request)
    contenders = parse_contenders(methods, projectors, strategies)
    jobs = {
        out / f"{contender.name}-{seed}": recipe
        for seed in range(seeds)
        for contender, recipe in recipes_for(request, contenders, seed).items()
    }
    damaged = sort_out([folder for folder in jobs if RunFolder(folder).exists()])[1]
    wanted = {folder: recipe for folder, recipe in jobs.items() if folder not in damaged}
    check_folders(out, wanted)
    place, first = choose_device(device), next(iter(jobs.values()))
    console = Console(quiet=True) if json else screen()
    with reading(console) as progress:
        dataset = open_dataset(first.data["name"], **reading_settings(first), progress=progress)
    split_for(first, dataset)  # says why so many labels cannot be had
    for problem in damaged.values():
        complain(problem, "Left out")
    console.print(
        f"{len(contenders)} ways of training on {dataset.name}, {seeds} seed{'s' * (seeds != 1)} each: "
        f"{len(jobs)} runs of {first.plan['steps']:,} steps with the network {short(first.net['name'])}, in {out}.",
        markup=False,
        soft_wrap=True,
    )
    amount = f"{first.data['labels']:,}" if "labels" in first.data else "all"
    title = f"{dataset.name} with {amount} labels: which method?"

    def keep(failed: Mapping[Path, str]) -> list[Run]:
        return write_tables(list(wanted), {**damaged, **failed}, out, title)

    failed = train_all(wanted, dataset, place, console, out, keep)
    runs = keep(failed)
    if runs:
        show_outcome(runs, out, title, console)
    if json:
        missing = {folder.name: reason for folder, reason in {**damaged, **failed}.items()}
        show_json(comparison_record(runs, title=title, missing=missing))
    if damaged:
        names = ", ".join(folder.name for folder in damaged)
        complain(f"{len(damaged)} of {len(jobs)} runs are left out ({names}); without their folders they start anew.")
    exit_if_failed(failed, len(jobs))
    if damaged:
        raise typer.Exit(1)


def check_folders(out: Path, jobs: Mapping[Path, Recipe]) -> None:
    """Refuse folders that hold something else, before anything is trained."""
    from ..engine.run import check_same

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
    from ..machine.device import all_devices

    try:
        with stop_signals() as stop:
            return train_each(jobs, dataset, all_devices(place), console, after_each, stop)
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
    places: Sequence[torch.device],
    console: Console,
    after_each: Callable[[Mapping[Path, str]], object],
    stop: Stop,
) -> dict[Path, str]:
    """Every run that is not finished, until `stop` raises."""
    failed: dict[Path, str] = {}
    kept = [folder for folder in jobs if RunFolder(folder).exists() and load_run(folder).results is not None]
    left = {folder: recipe for folder, recipe in jobs.items() if folder not in kept}
    for folder in kept:
        console.print(Text(f"  {describe_run(folder)} (was there)"), soft_wrap=True)
    if kept:
        after_each(failed)
    with overall(console) as bar, closing(train_runs(left, dataset, places, stop)) as told:
        overview = Overview(bar, jobs, kept)
        for news in told:
            overview.update(news, apart=len(places) > 1)
            if news.warning is not None:
                complain(f"{news.folder.name}: {news.warning}", "Warning")
            if news.ended:
                if news.problem is not None:
                    failed[news.folder] = news.problem
                    complain(f"{news.folder.name} failed: {news.problem}")
                else:
                    where = f" on {news.place}" if len(places) > 1 else ""
                    console.print(Text(f"  {describe_run(news.folder)}{where}"), soft_wrap=True)
                after_each(failed)
    return failed


class Overview:
    """A bar over the steps of all runs and, where several devices train, one for the run of each."""

    def __init__(self, bar: Progress, jobs: Mapping[Path, Recipe], kept: Sequence[Path]) -> None:
        self.bar, self.steps = bar, {folder: int(recipe.plan["steps"]) for folder, recipe in jobs.items()}
        self.done = {folder: self.steps[folder] if folder in kept else 0 for folder in jobs}
        self.all = bar.add_task("training", total=sum(self.steps.values()), completed=sum(self.done.values()))
        self.lines: dict[str, TaskID] = {}

    def update(self, news: News, *, apart: bool) -> None:
        steps = self.steps[news.folder]
        self.done[news.folder] = steps if news.ended else max(news.step, self.done[news.folder])
        self.bar.update(self.all, completed=sum(self.done.values()))
        if apart:
            if news.place not in self.lines:
                self.lines[news.place] = self.bar.add_task("")
            text = f"{news.place}: {news.folder.name}"
            self.bar.update(self.lines[news.place], description=text, completed=self.done[news.folder], total=steps)


def write_tables(folders: Sequence[Path], failed: Mapping[Path, str], out: Path, title: str) -> list[Run]:
    """The CSV, JSON and Markdown files of the runs that there are and can be read; returns these."""
    from ..report import comparison_record, group_runs, write_record, write_rows, write_table

    runs, unreadable = sort_out([folder for folder in folders if RunFolder(folder).exists()])
    if runs:
        missing = {folder.name: reason for folder, reason in {**unreadable, **failed}.items()}
        write_rows(out / "results.csv", runs)
        write_record(out / "comparison.json", comparison_record(runs, title=title, missing=missing))
        write_table(out / "table.md", group_runs(runs), title=title, missing=missing)
    return runs


def show_outcome(runs: Sequence[Run], out: Path, title: str, console: Console) -> None:
    """The tables, the verdict and the page."""
    from ..report import DIFFERENCE_HEADS, difference_rows, group_runs, table_heads, table_rows, verdict, write_page

    groups = group_runs(runs)
    for heads, rows in (
        (table_heads(groups, "screen"), [cells for _, cells in table_rows(groups, "screen")]),
        (DIFFERENCE_HEADS, difference_rows(groups)),
    ):
        if rows:
            console.print()
            show_table(console, *without_empty(heads, rows))
    console.print()
    console.print(Text(verdict(groups)), soft_wrap=not console.is_terminal)
    console.print()
    page = write_page(out / "report.html", runs, title=title)
    files = ", ".join(str(out / name) for name in ("table.md", "results.csv", "comparison.json"))
    console.print(f"Every column: {files}", markup=False, soft_wrap=True)
    console.print(f"Open the page: {page.resolve()}", markup=False, soft_wrap=True)


def without_empty(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Only the columns in which some row says something."""
    kept = [column for column in range(len(heads)) if any(row[column] != "–" for row in rows)]
    return [heads[column] for column in kept], [[row[column] for column in kept] for row in rows]
