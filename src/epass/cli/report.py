"""`epass report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..errors import InputError
from ..runs import Run
from .readable import sort_out
from .screen import complain, screen


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, finished or not.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    card: Annotated[
        Path | None, typer.Option(help="Also write a model card of the one run that is given: model-card.md")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write every figure as .svg, .pdf and .png there."),
    ] = None,
    maps: Annotated[bool, typer.Option(help="Draw maps of the test images: seconds for every method.")] = True,
    title: Annotated[
        str | None, typer.Option(help="The heading. [dim]\\[default: what was trained on what][/]")
    ] = None,
) -> None:
    """Write the page of any runs, and the model card of one, from what their folders hold.

    A run that is damaged, incomplete or of a newer version is named and left out;
    the exit code is then 1, and 2 if none is left.

    [cyan]epass report runs/a runs/b --out both.html[/]      two runs, one page

    [cyan]epass report runs/a --card model-card.md[/]        to put beside a model

    [cyan]epass report runs/a runs/b --figures paper/[/]     to put into a paper
    """
    from ..report import group_runs, warnings_of, write_card, write_figures, write_page

    folders = list({folder.resolve(): folder for folder in runs}.values())  # one named twice is still one run
    check_targets(out, card, figures, len(folders))
    usable, problems = sort_out(folders)
    for problem in problems.values():
        complain(problem, "Left out" if usable else "Error")
    if not usable:
        raise typer.Exit(2)
    heading = title or describe_runs(usable)
    if card is not None:
        write_card(card, usable[0], title=heading)  # first: it refuses a run that has no model yet
    page = write_page(out, usable, title=heading, maps=maps)
    for warning in warnings_of(group_runs(usable)):
        complain(warning, "Warning")
    console = screen()
    if figures is not None:
        written, left_out = write_figures(figures, usable, maps=maps)
        for name, reason in left_out.items():
            complain(f"{name}: {reason}", "No figure")
        console.print(Text(f"Figures: {len(written)} in {figures}"), soft_wrap=True)
    if card is not None:
        console.print(Text(f"Model card: {card}"), soft_wrap=True)
    console.print(Text(f"Open the page: {page.resolve()}"), soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def check_targets(out: Path, card: Path | None, figures: Path | None, number: int) -> None:
    """Refuse what cannot be written before any run is read."""
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InputError(f"'{figures}' is a file: give --figures a folder, which need not exist yet.")
    for target in (out, card):
        if target is not None and (target.is_dir() or not target.absolute().parent.is_dir()):
            raise InputError(f"'{target}' cannot be written: name a file in a folder that exists.")
    if card is not None and number > 1:
        raise InputError(f"A model card is about one run, not {number}: leave --card out or name one run.")
    if card is not None and card.resolve() == out.resolve():
        raise InputError(f"Page and model card cannot both be '{out}': give --card another name.")


def describe_runs(runs: Sequence[Run]) -> str:
    """What was trained on what, as a heading."""
    from ..report import data_name, group_runs

    data = " and ".join(dict.fromkeys(data_name(run.recipe) for run in runs))
    if len(runs) > 1:
        return f"{len(runs)} runs on {data}"
    labels = (runs[0].results or {}).get("labels")
    return f"{group_runs(runs)[0].label} on {data}" + (f", {labels:,} labels" if labels is not None else "")
