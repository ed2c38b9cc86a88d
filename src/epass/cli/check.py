"""`epass check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..errors import InputError
from ..extensions import trust_typed
from ..untrusted import printable
from .progress import reading
from .screen import screen, show_facts, show_json

if TYPE_CHECKING:
    from ..check import Findings
    from ..data import ProgressCallback, Survey

LISTED = 5  # findings of a kind that are named on the screen


def check(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A built-in data set, a folder of images or an .npz file.")
    ],
    labels: Annotated[int | None, typer.Option(help="How many images keep their label, as for 'epass train'.")] = None,
    seed: Annotated[int, typer.Option(help="Decides which ones.")] = 0,
    image_size: Annotated[int | None, typer.Option(help="Scale images to this side, as for 'epass train'.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page with the images side by side: report.html")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Look for what spoils a result before training: leaks, duplicates, contradictions, damaged files.

    The exit code is 1 if a test image or a copy of it is among the labeled
    images, or if a file cannot be read; 0 if not, whatever else was found.

    [cyan]epass check photos/ --out report.html[/]   your images, side by side

    [cyan]epass check digits --labels 40 --json[/]   for a program
    """
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise InputError(f"'{out}' cannot be written: name a file in a folder that exists.")

    from ..check import as_values, examine, write_check

    console = screen()
    with reading(console) as progress:
        survey = look_at(data, image_size, progress)
    findings = examine(survey, labels=labels, seed=seed)
    if out is not None:
        write_check(out, findings, survey.dataset)
    if json:
        show_json({**as_values(findings), "labels": labels, "seed": seed})
    else:
        show_findings(console, findings, out)
    if findings.serious:
        raise typer.Exit(1)


def look_at(data: str, image_size: int | None, progress: ProgressCallback | None) -> Survey:
    """The images with the names of their files, damaged ones set aside."""
    from ..data import DATASETS, open_dataset, recognize, survey_arrays, survey_folder

    trust_typed(data)
    path = Path(data).expanduser()
    if data and data not in DATASETS and path.is_dir() and recognize(path) is None:
        return survey_folder(path, 32 if image_size is None else image_size, progress)
    return survey_arrays(open_dataset(data, image_size=image_size, progress=progress))


def show_findings(console: Console, findings: Findings, page: Path | None) -> None:
    """A verdict, one line for everything that was looked for, and the first names of what was found."""
    from ..check import describe, facts, verdict

    console.print(Text(printable(verdict(findings)), "bold"), soft_wrap=True)
    console.print()
    show_facts(console, f"Check of {findings.name}", facts(findings))
    show_some(console, "Cannot be read", [f"{name} {reason}" for name, reason in findings.unreadable])
    for part in ("labeled", "unlabeled"):
        found = findings.leaks_into(part)
        lines = [f"{describe(leak.test)} = {describe(leak.other)}, {leak.kind} {leak.likeness:.2f}" for leak in found]
        show_some(console, f"Test images among the {part} ones", lines)
    lines = [" = ".join(map(describe, group.members)) for group in findings.contradictions]
    show_some(console, "Duplicates with different labels", lines)
    show_some(console, "Of one color", [describe(member) for member in findings.constant])
    show_some(console, "Odd files", [f"{odd.name}: {odd.reason}" for odd in findings.odd])
    if page is not None:
        console.print(Text(f"Open the page: {page}"), soft_wrap=True)
    elif findings.groups:
        console.print("To see the images side by side: --out report.html", markup=False, soft_wrap=True)


def show_some(console: Console, heading: str, lines: Sequence[str]) -> None:
    """The first of these lines under a heading, and how many there are besides."""
    if not lines:
        return
    console.print(Text(heading, "bold"))
    more = [f"... and {len(lines) - LISTED:,} more"] if len(lines) > LISTED else []
    for line in [*lines[:LISTED], *more]:
        console.print(Text(printable(f"  {line}")), soft_wrap=True)
    console.print()
