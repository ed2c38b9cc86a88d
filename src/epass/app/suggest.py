"""Say which images to label next, which labels look wrong, and which images are unlike all others."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import count
from os import fspath
from pathlib import Path
from typing import Annotated

from .. import extensions
from ..errors import InputError
from ..files import check_writable, from_home
from ..runs import RunFolder
from .events import Event, Notice, Result, Section, Table, work
from .flags import Device, Flag, Images, ImageSize, Reading, SkipUnreadable, Stop, Trust, go_on
from .label_files import can_be_labeled
from .pools import Pool, pool_of_data, pool_of_run
from .suggested import ODD, TYPICAL, UNCERTAIN, WRONG, Suggestion, names_in, write_suggestions
from .words import counted, percent

LISTED = 10  # images that are named
LABELS_TO_JUDGE = 5  # of a class on average: from fewer, nobody can say which ones are wrong
WRITTEN = {
    "table": "A table to fill in",
    "tasks": "Tasks to import into Label Studio",
    "page": "The pictures, with a field for each label",
}
ENDINGS = (".csv", ".json", ".html")


@work
def suggest(
    source: Annotated[
        Images, Flag("Images or vectors with few labels or none, or the folder of a finished run.", metavar="DATA|RUN")
    ],
    *,
    n: Annotated[int, Flag("How many images to label next.", least=1)] = 50,
    out: Annotated[
        str | Path | None,
        Flag("A .csv table, .json for Label Studio, or the .html page alone.", default="suggested.csv"),
    ] = None,
    image_size: ImageSize = None,
    skip_unreadable: SkipUnreadable = False,
    trust: Trust = None,
    device: Device = "auto",
    stop: Stop = go_on,
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Say which images to label next: typical ones of a data set, or those a run hesitates about.

    Labels that look wrong and images unlike all others are lists of their own. A
    page with the pictures is written beside the table. Fill in one of them, and
    'epass label' takes the labels.
    """
    from ..machine.device import choose_device

    place, file = choose_device(device), free_file(out)
    extensions.trust(*(trust or ()))
    home = RunFolder(from_home(source))
    if home.exists():
        pool = yield from pool_of_run(home, skip_unreadable, place, stop, reading)
    else:
        pool = yield from pool_of_data(fspath(source), image_size, skip_unreadable, place, stop, reading)
    if not len(pool.candidates):
        raise InputError(
            f"Every {pool.thing} of '{pool.data}' has a label already: add some without, or name a run that learned "
            "from a part of the labels."
        )
    chosen = choose(pool, n)
    written = write_suggestions(file, pool, chosen)
    yield from summarize(pool, chosen)
    yield from (Notice(f"{WRITTEN[kind]}: {path}") for kind, path in written.items())
    filled_in = {"table": str(file), "tasks": "EXPORT.json", "page": "labeled.csv"}[next(iter(written))]
    _, names = names_in(pool)
    rows = [{"file": str(names[one.place]), **one._asdict()} for one in chosen]
    yield Result(
        values={"data": pool.data, "candidates": len(pool.candidates), "suggestions": rows},
        files=written,
        following=shlex.join(["epass", "label", pool.data, filled_in]) if can_be_labeled(pool.data) else "",
    )


def free_file(out: str | Path | None) -> Path:
    """What to write: never a file that is there, which may hold somebody's labels."""
    if out is None:
        names = (Path(f"suggested{f'-{number}' if number > 1 else ''}.csv") for number in count(1))
        return next(name for name in names if not name.exists() and not name.with_suffix(".html").exists())
    file = Path(out)
    check_writable(file)
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"'{file}' is no name for a list of images: choose one that ends in .csv, .json or .html.")
    for written in (file, file.with_suffix(".html")):
        if written.exists():
            raise InputError(f"'{written}' exists and may hold labels: choose another file with --out.")
    return file


def choose(pool: Pool, n: int) -> list[Suggestion]:
    """The three lists, one after the other; an image is in one of them only."""
    wrong, odd = wrong_ones(pool), odd_ones(pool)
    chosen = [*next_ones(pool, n, without=[one.place for one in odd]), *wrong[:n]]
    listed = {one.place for one in chosen}
    return [*chosen, *[one for one in odd if one.place not in listed][:n]]


def next_ones(pool: Pool, n: int, without: list[int]) -> list[Suggestion]:
    """Those to label: typical ones or, if a run can say what it is unsure of, these; `without` outliers."""
    import numpy as np

    from ..evaluation.selection import typical, uncertain

    usual = np.setdiff1d(pool.candidates, without)
    candidates = usual if len(usual) >= n else pool.candidates
    if pool.trained and pool.probs is not None:
        places = candidates[uncertain(pool.vectors[candidates], pool.probs[candidates], n)]
    else:
        places = typical(pool.vectors, n, candidates, np.flatnonzero(pool.labels >= 0))
    return [with_guess(pool, place, UNCERTAIN if pool.trained else TYPICAL) for place in places.tolist()]


def wrong_ones(pool: Pool) -> list[Suggestion]:
    """Labels that look wrong to a classifier which has seen the others."""
    import numpy as np

    from ..evaluation.selection import out_of_fold, suspected

    known = np.flatnonzero(pool.labels >= 0)
    labels, classes = pool.labels[known], pool.dataset.classes
    if len(known) < LABELS_TO_JUDGE * max(2, len(np.unique(labels))):
        return []
    found = suspected(out_of_fold(pool.vectors[known], labels, len(classes)), labels)
    triples = zip(known[found.places].tolist(), found.guesses.tolist(), found.confidences.tolist(), strict=True)
    return [Suggestion(at, WRONG, classes[guess], share, classes[pool.labels[at]]) for at, guess, share in triples]


def odd_ones(pool: Pool) -> list[Suggestion]:
    """Images unlike all others."""
    from ..evaluation.selection import outlying

    return [with_guess(pool, place, ODD) for place in outlying(pool.vectors).tolist()]


def with_guess(pool: Pool, place: int, why: str) -> Suggestion:
    """An image with its label, if it has one, and what the model takes it for, if there is a model."""
    known = pool.dataset.classes[pool.labels[place]] if pool.labels[place] >= 0 else ""
    if pool.probs is None:
        return Suggestion(place, why, known=known)
    best = int(pool.probs[place].argmax())
    return Suggestion(place, why, pool.classes[best], float(pool.probs[place, best]), known)


def summarize(pool: Pool, chosen: list[Suggestion]) -> Iterator[Section | Table]:
    """How many of each list and why, and the first to label."""
    counts = {why: sum(one.why == why for one in chosen) for why in (TYPICAL, UNCERTAIN, WRONG, ODD)}
    labeled, thing = int((pool.labels >= 0).sum()), pool.thing
    how = (
        f"the run hesitates between two classes, and they differ in their {pool.made_of}"
        if pool.trained
        else f"each in the middle of a group that is alike in its {pool.made_of}"
    )
    first = [one for one in chosen if one.why in (TYPICAL, UNCERTAIN)]
    facts = {"label next": f"{len(first):,} of {counted(len(pool.candidates), thing)} without a label: {how}"}
    if counts[WRONG] or labeled >= LABELS_TO_JUDGE * max(2, len(pool.dataset.classes)):
        facts["label errors"] = f"{counts[WRONG]:,} of {counted(labeled, 'label')} are listed because they look wrong"
    facts["outliers"] = (
        f"{counts[ODD]:,} of {counted(len(pool.labels), thing)} are listed because they are unlike all others"
    )
    yield Section(f"What to look at in {pool.dataset.name}", facts)
    _, names = names_in(pool)
    guessed = pool.probs is not None
    heads = ("label next", "looks like", "confidence") if guessed else ("label next",)
    rows = [
        [str(names[one.place]), *([one.guess, percent(one.confidence or 0.0, 0)] if guessed else [])]
        for one in first[:LISTED]
    ]
    if len(first) > LISTED:
        rows.append([f"... and {len(first) - LISTED:,} more in the files", *[""] * (len(heads) - 1)])
    yield Table(heads, rows)
    wrong = [one for one in chosen if one.why == WRONG][:LISTED]
    if wrong:
        rows = [[str(names[one.place]), one.known, one.guess, percent(one.confidence or 0.0, 0)] for one in wrong]
        yield Table(("label error?", "labeled", "looks like", "confidence"), rows)
