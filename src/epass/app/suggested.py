"""Suggestions as files that a person fills in: a table, tasks for Label Studio, and a page with the pictures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ..errors import InputError
from ..files import from_home, write_atomically
from ..untrusted import spreadsheet_path, spreadsheet_text
from .pools import Pool
from .words import percent

TYPICAL, UNCERTAIN, WRONG, ODD = "typical", "uncertain", "label error", "outlier"
HEADINGS = {
    TYPICAL: "Label next: each stands for a group of images like it",
    UNCERTAIN: "Label next: the model hesitates between two classes",
    WRONG: "Is the label right? It says one class, the other images another",
    ODD: "Outliers: is this what the model is for?",
}
SERVED = "/data/local-files/?d="  # by Label Studio, from below its document root


class Suggestion(NamedTuple):
    """An image that somebody should look at."""

    place: int  # among the training images
    why: str
    guess: str = ""
    confidence: float | None = None  # of the guess
    known: str = ""  # its label


def write_suggestions(file: Path, pool: Pool, chosen: Sequence[Suggestion]) -> dict[str, Path]:
    """Write the file that was asked for and, beside it, the page; returns what was written, by what it is."""
    written = {}
    if file.suffix.lower() == ".csv":
        write_atomically(file, as_table(pool, chosen))
        written["table"] = file
    elif file.suffix.lower() == ".json":
        write_atomically(file, as_tasks(pool, chosen))
        written["tasks"] = file
    elif pool.thing == "vector":
        raise InputError(f"Vectors have no pictures for a page: choose a .csv file instead of '{file}' with --out.")
    if pool.thing == "image":
        page = file.with_suffix(".html")
        write_atomically(page, as_page(pool, chosen).encode())
        written["page"] = page
    return written


def names_in(pool: Pool) -> tuple[str, Sequence[str]]:
    """What the training images are called: file, with their names, or row, with their numbers."""
    if pool.dataset.train_names:
        return "file", pool.dataset.train_names
    rows = pool.dataset.train_rows or range(len(pool.dataset.train))
    return "row", list(map(str, rows))


def as_table(pool: Pool, chosen: Sequence[Suggestion]) -> bytes:
    """A row for each, whose last cell a person fills in."""
    column, names = names_in(pool)
    as_name = spreadsheet_path if column == "file" else str
    rows = [
        [
            as_name(names[one.place]),
            one.why,
            spreadsheet_text(one.guess),
            "" if one.confidence is None else f"{one.confidence:.4f}",
            spreadsheet_text(one.known),
            "",
        ]
        for one in chosen
    ]
    return csv_bytes([[column, "why", "guess", "confidence", "known", "label"], *rows])


def csv_bytes(rows: Sequence[Iterable[str]], delimiter: str = ",") -> bytes:
    """Rows of cells in UTF-8."""
    rows = [list(row) for row in rows]
    # Python 3.11 takes a carriage return for a letter like others, and no reader does.
    quoted = any("\r" in cell for row in rows for cell in row)
    text = io.StringIO()
    writer = csv.writer(
        text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    )
    writer.writerows(rows)
    return text.getvalue().encode()


def as_tasks(pool: Pool, chosen: Sequence[Suggestion]) -> bytes:
    """Tasks that Label Studio imports. It serves the files if its document root is the folder around the data."""
    path = from_home(pool.data)
    if (
        not pool.dataset.train_names
        or not path.exists()
        or not (path.is_dir() or path.suffix.lower() in (".csv", ".tsv"))
    ):
        raise InputError(
            f"'{pool.data}' holds no image files that Label Studio could show: choose a .csv file with --out."
        )
    home = (path if path.is_dir() else path.parent).absolute()
    tasks = []
    for one in chosen:
        name = pool.dataset.train_names[one.place]
        facts = {"image": served_at(home.name, name), "file": name, "why": one.why, "known": one.known}
        task: dict[str, Any] = {"data": facts}
        if one.guess:
            task["predictions"] = [{"model_version": "epass", "score": one.confidence, "result": [choice(one.guess)]}]
        tasks.append(task)
    return json.dumps(tasks, indent=1, ensure_ascii=False).encode()


def served_at(folder: str, name: str) -> str:
    """Where Label Studio serves an image of a folder."""
    return f"{SERVED}{quote(f'{folder}/{name}')}"


def choice(label: str) -> dict[str, Any]:
    """A label as Label Studio writes it."""
    return {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [label]}}


def as_page(pool: Pool, chosen: Sequence[Suggestion]) -> str:
    """The pictures with a field below each, and a button that saves what was typed as a table."""
    import torch

    from ..report.contact_sheet import Entry, contact_sheet

    column, names = names_in(pool)
    strips = []
    for why, heading in HEADINGS.items():
        ones = [one for one in chosen if one.why == why]
        if not ones:
            continue
        pictures = pool.dataset.train.look(torch.tensor([one.place for one in ones])).cpu().numpy()
        entries = [
            Entry(str(names[one.place]), pixels, in_words(one), one.known)
            for one, pixels in zip(ones, pictures, strict=True)
        ]
        strips.append((heading, entries))
    return contact_sheet(f"Images of {pool.dataset.name} to label", column, pool.all_classes, strips)


def in_words(one: Suggestion) -> str:
    """What is known of an image, and what it looks like."""
    guess = f"looks like {one.guess}" if one.guess else ""
    guess += f", {percent(one.confidence, 0)}" if one.confidence is not None else ""
    return "; ".join(filter(None, [f"labeled {one.known}" if one.known else "", guess]))
