"""Write the page of any runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InputError
from ..files import check_writable
from .events import Caution, Event, Notice, Result, work
from .flags import Flag

if TYPE_CHECKING:
    from ..runs import Run


@work
def report(
    runs: Annotated[str | Path | list[str | Path], Flag("Run folders, finished or not.", metavar="RUN...")],
    *,
    out: Annotated[str | Path, Flag("The page.")] = "report.html",
    card: Annotated[
        str | Path | None, Flag("Also write a model card of the one run that is given: model-card.md")
    ] = None,
    figures: Annotated[
        str | Path | None, Flag("Also write every figure as .svg, .pdf and .png there.", metavar="FOLDER")
    ] = None,
    maps: Annotated[bool, Flag("Draw maps of the test images: seconds for every method.")] = True,
    title: Annotated[str | None, Flag("The heading.", default="what was trained on what")] = None,
) -> Iterator[Event]:
    """Write the page of any runs, and the model card of one, from what their folders hold.

    A run that is damaged, incomplete or of a newer version is named and left out;
    the exit code is then 1, and 2 if none is left.
    """
    from ..report import group_runs, sort_out, warnings_of, write_card, write_figures, write_page

    named = [runs] if isinstance(runs, str | Path) else runs
    folders = list({Path(run).resolve(): Path(run) for run in named}.values())  # one named twice is still one run
    targets = {"page": Path(out)}
    targets |= {name: Path(path) for name, path in {"card": card, "figures": figures}.items() if path is not None}
    check_targets(targets, len(folders))
    usable, problems = sort_out(folders)
    if not usable:
        *others, last = problems.values()
        for problem in others:
            yield Caution(problem, "Error")
        raise InputError(last)
    for problem in problems.values():
        yield Caution(problem, "Left out")
    heading = title or describe_runs(usable)
    if "card" in targets:
        write_card(targets["card"], usable[0], title=heading)  # first: it refuses a run that has no model yet
    page = write_page(targets["page"], usable, title=heading, maps=maps)
    warnings = warnings_of(group_runs(usable))
    for warning in warnings:
        yield Caution(warning)
    if "figures" in targets:
        written, left_out = write_figures(targets["figures"], usable, maps=maps)
        for name, reason in left_out.items():
            yield Caution(f"{name}: {reason}", "No figure")
        yield Notice(f"Figures: {len(written)} in {targets['figures']}")
    if "card" in targets:
        yield Notice(f"Model card: {targets['card']}")
    yield Notice(f"Open the page: {page.resolve()}")
    values = {
        "title": heading,
        "runs": [str(run.path) for run in usable],
        "left_out": {str(folder): problem for folder, problem in problems.items()},
        "warnings": list(warnings),
        "files": {name: str(path) for name, path in targets.items()},
    }
    yield Result(values=values, files=targets, partial=bool(problems))


def check_targets(targets: dict[str, Path], number: int) -> None:
    """Refuse what cannot be written before any run is read."""
    if not number:
        raise InputError("Name at least one run folder.")
    out, card, figures = targets["page"], targets.get("card"), targets.get("figures")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InputError(f"'{figures}' is a file: give --figures a folder, which need not exist yet.")
    for target in (out, card):
        if target is not None:
            check_writable(target)
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
