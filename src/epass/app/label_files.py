"""Where the labels of a data set stand, and the files in which somebody hands in others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..errors import InputError
from ..files import from_home
from ..untrusted import LARGEST_JSON, parse_json, read_limited, spreadsheet_path
from .suggested import csv_bytes

TABLES = (".csv", ".tsv")  # that can be written
FILE, ROW = "file", "row"  # what a label belongs to
GIVEN = ("label", "class", "class_name", "category", "target", "species", "choice")  # columns of labels, by rank


class Answer(NamedTuple):
    """What somebody says about an image."""

    name: str
    label: str
    known: str  # the label that they were shown, if any
    where: str  # they said it


@dataclass(frozen=True)
class Sheet:
    """A table as it is written, cell by cell."""

    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    delimiter: str = ","


@dataclass(frozen=True)
class Book:
    """The labels of a data set, and the table to write others into."""

    table: Path
    key: str  # FILE or ROW
    labels: dict[str, str]  # of everything that can have one, "" for none
    sheet: Sheet
    names: Sequence[str]  # of the rows of the sheet
    tested: bool  # there are images for a test beside these

    def with_labels(self, labels: dict[str, str]) -> bytes:
        """The table with other labels; what it does not name yet is added below."""
        columns, rows = list(self.sheet.columns), [list(row) for row in self.sheet.rows]
        label_at = len(columns) if (at := _label_at(columns)) is None else at
        if label_at == len(columns):
            columns, rows = [*columns, "label"], [[*row, ""] for row in rows]
        places = {name: number for number, name in enumerate(self.names)}
        for name, label in labels.items():
            if name not in places:
                rows.append([""] * len(columns))
                rows[-1][path_at(self.table, columns)] = spreadsheet_path(name)
            rows[places.get(name, -1)][label_at] = label
        return csv_bytes([columns, *rows], self.sheet.delimiter)


def can_be_labeled(data: str) -> bool:
    """Whether there is a place for labels of these images."""
    from ..data import DATASETS, recognize

    path = from_home(data)
    if not data or data in DATASETS or not path.exists() or recognize(path) is not None:
        return False
    return path.is_dir() or path.suffix.lower() in (*TABLES, ".npy")


def open_book(data: str) -> Book:
    """The labels of a folder of images, a table of images or vectors, or an array of vectors."""
    from ..data import holds_vectors
    from ..data.read.listing import nothing_at

    path = from_home(data)
    if not data or not path.exists():
        raise nothing_at(data)
    if not can_be_labeled(data):
        raise InputError(f"'{data}' has no place for labels: give a folder of images, or a .csv table of them.")
    if path.is_dir():
        return _book_of_folder(path)
    if path.suffix.lower() == ".npy":
        return _book_of_array(path)
    sheet = read_sheet(path)
    names = list(map(str, range(len(sheet.rows))))
    if holds_vectors(data):
        return _book(path, ROW, sheet, names)
    at, home = path_at(path, sheet.columns), path.parent.absolute()
    return _book(path, FILE, sheet, [_inside(home, row[at].strip()) for row in sheet.rows])


def _inside(home: Path, value: str) -> str:
    """The path of a file from the folder of its table on, as data sets call it."""
    if "\\" in value and not (home / value).is_file():
        value = value.replace("\\", "/")
    path = Path(value)
    return normpath(path.relative_to(home).as_posix() if path.is_relative_to(home) else value)


def _book(table: Path, key: str, sheet: Sheet, names: Sequence[str]) -> Book:
    """A table that names everything itself."""
    at = _label_at(sheet.columns)
    texts = [""] * len(names) if at is None else [row[at].strip() for row in sheet.rows]
    tested = any(name.lower() == "split" for name in sheet.columns)
    return Book(table, key, dict(zip(names, texts, strict=True)), sheet, names, tested)


def _label_at(columns: Sequence[str]) -> int | None:
    """The column of labels, which is the one that those who read the table take."""
    lower = [name.lower() for name in columns]
    return next((lower.index(name) for name in GIVEN if name in lower), None)


def _book_of_folder(folder: Path) -> Book:
    """Labels by class folders and by the folder's own table, which has the last word."""
    from ..data.read.folder import list_folder
    from ..data.read.given_labels import find_labels, of_something_else, own_table
    from ..data.read.listing import names_inside
    from ..data.read.ways import Ways

    table = own_table(folder)
    if table.exists() and find_labels(table) is None:
        raise of_something_else(table)
    listing = list_folder(folder, labels_needed=False)
    texts = [listing.classes[number] if number >= 0 else "" for number in listing.labels]
    labels = dict(zip(names_inside(listing.train, folder), texts, strict=True))
    sheet = read_sheet(table) if table.exists() else Sheet(["path", "label"])
    at = path_at(table, sheet.columns)
    tested = any(text.startswith("test images") for text in listing.parts.values())
    ways = Ways(folder, labels)
    names = [ways.find(normpath(row[at].strip())) for row in sheet.rows]
    return Book(table, FILE, labels, sheet, names, tested)


def _book_of_array(path: Path) -> Book:
    """Labels in a table beside an array of vectors, a row for each."""
    from ..data import find_vectors

    count, table = len(find_vectors(path).names), path.with_suffix(".csv")
    if not table.exists() and path.with_name("labels.npy").exists():
        raise InputError(f"The labels of '{path}' are an array, labels.npy: move them to a table '{table.name}' first.")
    sheet = read_sheet(table) if table.exists() else Sheet([ROW, "label"], [[str(row), ""] for row in range(count)])
    if len(sheet.rows) != count:
        raise InputError(f"'{table}' has {len(sheet.rows):,} rows for {count:,} vectors: give every vector one row.")
    return _book(table, ROW, sheet, list(map(str, range(count))))


def path_at(path: Path, columns: list[str]) -> int:
    """The column of paths."""
    from ..data.read.tables import PATH_NAMES, find_column

    return columns.index(find_column(path, columns, None, PATH_NAMES, "rename the one that holds the paths"))


def read_sheet(path: Path) -> Sheet:
    """The cells of a table that was looked at before, and how they are separated."""
    from ..data.read.tables import open_table

    table = open_table(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = max(",", ";", "\t", key=file.readline().count)
    columns = table.take(table.columns)
    return Sheet(table.columns, [list(map(str, row)) for row in zip(*columns, strict=True)], delimiter)


def read_answers(path: Path, key: str) -> list[Answer]:
    """The labels that somebody filled in; what was left empty is passed over."""
    from ..data.read.listing import nothing_at
    from ..data.read.tables import PATH_NAMES, cell_text, find_column, is_table, open_table

    if not path.is_file():
        raise nothing_at(path)
    if path.suffix.lower() == ".json":
        found = _read_tasks(path)
    elif is_table(path):
        table = open_table(path)
        names = find_column(
            path, table.columns, None, PATH_NAMES if key == FILE else (ROW,), f"name the column of {key}s so"
        )
        given = find_column(path, table.columns, None, GIVEN, "name the column of labels so")
        known = [name for name in table.columns if name.lower() == "known"][:1]
        chosen = [names, given, *known]
        cells = [
            [cell_text(path, name, cell) for cell in column]
            for name, column in zip(chosen, table.take(chosen), strict=True)
        ]
        seen = cells[2] if known else [""] * len(cells[0])
        rows = zip(cells[0], cells[1], seen, table.lines, strict=True)
        found = [Answer(name, label, before, f"row {line}") for name, label, before, line in rows]
    else:
        saved = (
            ": press 'Save the labels' in it, and give the table"
            if path.suffix.lower() == ".html"
            else ": give a .csv file"
        )
        raise InputError(f"'{path}' is no table of labels{saved}, or what Label Studio exports as .json.")
    return [answer._replace(name=normpath(answer.name)) for answer in found if answer.label]


def _read_tasks(path: Path) -> list[Answer]:
    """The choices in an export of Label Studio, the full one or the short one."""
    try:
        tasks = parse_json(read_limited(path, LARGEST_JSON))
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise ValueError("it is no list of tasks")
        return [answer for number, task in enumerate(tasks, 1) for answer in _read_task(task, f"task {number}")]
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"'{path}' is no export of Label Studio ({problem}): export it as JSON again.") from None


def _read_task(task: dict[str, Any], where: str) -> list[Answer]:
    data: dict[str, Any] = task.get("data", task)
    name = data.get(FILE) or _path_in(str(data["image"]))
    known = str(data.get("known") or "")
    if "annotations" in task:
        results = [
            result for one in task["annotations"] if not one.get("was_cancelled") for result in one.get("result", [])
        ]
        given = [result["value"]["choices"] for result in results if result.get("type") == "choices"]
    else:
        choice: Any = next((task[key] for key in GIVEN if task.get(key)), [])
        choice = choice["choices"] if isinstance(choice, dict) else choice
        given = [choice if isinstance(choice, list) else [choice]]
    for choices in given:
        if len(choices) > 1:
            raise InputError(f"Label Studio's {where} has {len(choices)} choices for '{name}': keep one.")
    return [Answer(str(name), str(choices[0]).strip(), known, where) for choices in given if choices]


def _path_in(address: str) -> str:
    """The path inside of the data that Label Studio serves under an address: it begins with the data's own folder."""
    served = parse_qs(urlsplit(address).query).get("d", [address])[0]
    return served.partition("/")[2] or served
