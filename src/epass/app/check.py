"""Look for what spoils a result before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InputError, shortened
from ..extensions import trust_typed
from ..files import check_writable, from_home
from .doubts import doubts_about
from .events import Event, Notice, Result, Section, work
from .flags import Flag, Images, Reading

if TYPE_CHECKING:
    from ..checking import Findings
    from ..data import Survey

LISTED = 5  # findings of a kind that are named
UNREADABLE = "Cannot be read"


@work
def check(
    data: Annotated[
        Images, Flag("A built-in data set, or a folder, archive, table or .npz file of yours.", metavar="DATA")
    ],
    *,
    labels: Annotated[int | None, Flag("How many images keep their label, as for 'epass train'.")] = None,
    seed: Annotated[int, Flag("Decides which ones.")] = 0,
    image_size: Annotated[int | None, Flag("Scale images to this side, as for 'epass train'.")] = None,
    out: Annotated[str | Path | None, Flag("Write a page with the images side by side: report.html")] = None,
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Look for what spoils a result before training: leaks, duplicates, contradictions, damaged files.

    The exit code is 1 if a test image or a copy of it is among the labeled
    images, if a file cannot be read, or if there are too few labels to train;
    0 if not, whatever else was found.
    """
    page = None if out is None else Path(out)
    if page is not None:
        check_writable(page)

    from ..checking import as_values, examine, facts, verdict, write_check

    survey = open_survey(str(data), image_size, reading)
    try:
        findings = examine(survey, labels=labels, seed=seed)
    except InputError as problem:
        if not (skipped := survey.dataset.skipped):
            raise
        name, reason = skipped[0]
        others = f" (and {len(skipped) - 1:,} more files cannot be used)" if len(skipped) > 1 else ""
        raise InputError(f"'{shortened(name)}' {reason}{others}. Without it: {problem}") from None
    yield from doubts_about(survey.dataset)
    if page is not None:
        write_check(page, findings, survey.dataset)
    yield Section(verdict(findings))
    yield Section(f"Check of {findings.name}", facts(findings))
    for heading, lines in by_kind(findings).items():
        listed = len(lines) if heading == UNREADABLE else LISTED  # what keeps a training from starting is all told
        if lines:
            more = [f"... and {len(lines) - listed:,} more"] if len(lines) > listed else []
            yield Section(heading, lines=[*lines[:listed], *more])
    if page is not None:
        yield Notice(f"Open the page: {page}")
    elif findings.groups:
        yield Notice("To see the images side by side: --out report.html")
    yield Result(
        values={**as_values(findings), "labels": labels, "seed": seed},
        files={} if page is None else {"page": page},
        partial=findings.serious,
    )


def open_survey(data: str, image_size: int | None, reading: Reading | None) -> Survey:
    """The images with the names of their files, damaged ones set aside."""
    from ..data import DATASETS, Vectors, open_dataset, recognize, survey_arrays, survey_folder

    trust_typed(data)
    path = from_home(data)
    if data and data not in DATASETS and path.is_dir() and recognize(path) is None:
        return survey_folder(path, 32 if image_size is None else image_size, reading)
    dataset = open_dataset(data, image_size=image_size, progress=reading, skip_unreadable=True)
    if isinstance(dataset.train, Vectors):
        raise InputError(f"'{data}' holds vectors, and a check looks at images: check what the vectors were made of.")
    return survey_arrays(dataset)


def by_kind(findings: Findings) -> dict[str, Sequence[str]]:
    """A line for everything that was found, the gravest first."""
    from ..checking import describe

    leaks = {
        f"Test images among the {part} ones": [
            f"{describe(leak.test)} = {describe(leak.other)}, {leak.kind} {leak.likeness:.2f}"
            for leak in findings.leaks_into(part)
        ]
        for part in ("labeled", "unlabeled")
    }
    return {
        UNREADABLE: [f"{shortened(name)} {reason}" for name, reason in findings.unreadable],
        **leaks,
        "Duplicates with different labels": [
            " = ".join(map(describe, group.members)) for group in findings.contradictions
        ],
        "Of one color": [describe(member) for member in findings.constant],
        "Odd files": [f"{odd.name}: {odd.reason}" for odd in findings.odd],
    }
