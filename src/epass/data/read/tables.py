"""A .csv, .tsv or .parquet table of image files and their labels as a data set.

Every row has a path, relative to the table, and a label, empty where nobody gave one; a column `split` tells training,
validation and test images apart.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from ...errors import MOST_CHOICES, InputError, one_of, shortened
from ...files import as_text
from .listing import ROLES, Listing, Place, check_number, number, number_classes, taken_for

ENDINGS = (".csv", ".tsv", ".parquet")
PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "photo")
LABEL_NAMES = ("label", "class", "class_name", "category", "target", "species")
MOST_COLUMNS = 10_000
MOST_ROWS = 10_000_000  # in a .parquet file, which a few bytes can fill with any number of them
LARGEST_COLUMNS = 2**30  # bytes of the columns that are read, after unpacking
_BATCH = 1024  # rows of a .parquet file at a time
SPLITS = {"": "labeled", "dev": "validation"} | {name: role for name, role in ROLES.items() if "label" not in name}


class Table(NamedTuple):
    """A table that is open, whatever its columns are."""

    columns: list[str]
    batches: Callable[[list[str]], Iterator[list[Sequence[object]]]]  # some columns, so many rows at a time
    lines: Sequence[int]  # how people count the rows

    def take(self, names: list[str]) -> list[list[object]]:
        """Some columns, each with a cell for every row."""
        columns: list[list[object]] = [[] for _ in names]
        for batch in self.batches(names):
            for column, cells in zip(columns, batch, strict=True):
                column += cells
        return columns


def is_table(path: Path) -> bool:
    """Whether a file is called like a table."""
    return path.suffix.lower() in ENDINGS


def list_table(
    path: Path, path_column: str | None = None, label_column: str | None = None, *, labels_needed: bool = True
) -> Listing:
    """The images that a table names; without column names, the first column with a usual name is taken.

    Without `labels_needed` there may be labels of a single class, or none.
    """
    table = open_table(path)
    advice = "say which one it is with data.{}_column"
    chosen = [
        find_column(path, table.columns, path_column, PATH_NAMES, advice.format("path")),
        find_column(path, table.columns, label_column, LABEL_NAMES, advice.format("label")),
        *[name for name in table.columns if name.lower() == "split"][:1],
    ]
    cells = [
        [cell_text(path, name, cell) for cell in column]
        for name, column in zip(chosen, table.take(chosen), strict=True)
    ]
    splits = cells[2] if len(cells) > 2 else [""] * len(cells[0])
    parts: dict[str, tuple[list[Place], list[str]]] = {role: ([], []) for role in ("labeled", "validation", "test")}
    called: dict[str, str] = {}
    known: list[str] = []
    problems: list[tuple[str, str]] = []
    seen: dict[Path, int] = {}
    home = _Home(path)
    for line, value, label, split in zip(table.lines, *cells[:2], splits, strict=True):
        role = SPLITS.get(split.lower())
        if role is None:
            raise InputError(f"Row {line} of '{path}' has the split '{shortened(split)}': use train, val or test.")
        if role == "labeled":
            known.append(label)
        elif not label:
            raise InputError(f"Row {line} of '{path}' is a {role} image without a label: give it one or remove it.")
        else:
            called.setdefault(role, split)
        file = home.locate(value, line)
        if isinstance(file, str):
            problems.append((value, file))
            continue
        if file in seen:  # an image in the training and in the test part would make any test look good
            raise InputError(f"Rows {seen[file]} and {line} of '{path}' both name '{file}': remove one of them.")
        seen[file] = line
        files, names = parts[role]
        files.append(file)
        names.append(label)
    classes = number_classes(filter(None, known))
    if labels_needed:
        check_number(classes, f"The column '{chosen[1]}' of '{path}'")
    else:  # what is tested may have classes that nobody has labeled yet
        parts |= {role: ([], []) for role in ("validation", "test")}
    numbers = {role: number(names, classes, f"{role} class") for role, (_, names) in parts.items()}
    if "validation" in called and "test" not in called:
        parts["test"], numbers["test"] = parts["validation"], numbers["validation"]
        parts["validation"], numbers["validation"] = ([], []), []
    return Listing(
        name=as_text(path.stem),
        root=path,
        classes=classes,
        train=parts["labeled"][0] + parts["validation"][0],
        labels=numbers["labeled"] + numbers["validation"],
        test=parts["test"][0],
        test_labels=numbers["test"],
        validation=len(numbers["validation"]),
        parts=taken_for(called),
        problems=problems,
    )


def list_named(path: Path, path_column: str | None = None) -> tuple[list[Place], list[tuple[str, str]]]:
    """The images that a table names, a file for every row, whatever their labels and splits; and rows without a file.

    `path_column` is what the column of paths may be called besides its usual names.
    """
    table = open_table(path)
    chosen = path_column if path_column in table.columns else None
    name = find_column(path, table.columns, chosen, PATH_NAMES, "rename the one that holds the paths")
    (cells,) = table.take([name])
    values = [cell_text(path, name, cell) for cell in cells]
    home = _Home(path)
    found = [(value, home.locate(value, line)) for line, value in zip(table.lines, values, strict=True)]
    files: list[Place] = [file for _, file in found if isinstance(file, Path)]
    return files, [(value, reason) for value, reason in found if isinstance(reason, str)]


def open_table(path: Path, *, peek: bool = False) -> Table:
    """The table at `path`, or only its first rows: enough to see what kind it is."""
    return _open_parquet(path, peek) if path.suffix.lower() == ".parquet" else _open_csv(path, peek)


def find_column(path: Path, columns: list[str], chosen: str | None, usual: Sequence[str], advice: str) -> str:
    """The column that was chosen or, without a choice, the first one with a usual name."""
    if chosen is not None:
        one_of(f"column of '{path}'", chosen, columns)
        return chosen
    lower = {name.lower(): name for name in reversed(columns)}
    for name in usual:
        if name in lower:
            return lower[name]
    found = ", ".join(map(repr, map(shortened, columns[:MOST_CHOICES])))
    raise InputError(f"No column of '{path}' is called '{usual[0]}' or the like, only {found}: {advice}.")


class _Home:
    """The folder of a table, below which the files must lie that its rows name."""

    def __init__(self, table: Path) -> None:
        self.table, self.real = table, table.parent.resolve()
        self.folders: dict[Path, Path | None] = {self.real: table.parent}  # where each lies; None: outside

    def locate(self, value: str, line: int) -> Path | str:
        """The file that a row names, or why it cannot be used."""
        if not value:
            raise InputError(f"Row {line} of '{self.table}' has no path: fill it in or remove the row.")
        path = self.real / value
        with suppress(OSError, ValueError):  # for which there are words below
            if S_ISREG(path.lstat().st_mode) and (folder := self.inside(path.parent)) is not None:
                return folder / path.name
        try:
            file = path.resolve()
            is_file = file.is_file()
        except (OSError, ValueError) as error:  # a name too long, or with a zero byte
            reason = error.strerror if isinstance(error, OSError) else error
            return f"in row {line} is not a path ({reason})"
        if not file.is_relative_to(self.real):
            return f"in row {line} lies outside of the table's folder"
        if not is_file and "\\" in value:  # as Windows writes it
            return self.locate(value.replace("\\", "/"), line)
        return self.given(file) if is_file else f"in row {line} is not there (no such file)"

    def inside(self, folder: Path) -> Path | None:
        """Where a folder lies: to follow links looks at every part of a path, once for all files of a folder."""
        if folder not in self.folders:
            found = folder.resolve()
            self.folders[folder] = self.given(found) if found.is_relative_to(self.real) else None
        return self.folders[folder]

    def given(self, real: Path) -> Path:
        """A path below the folder, from where the table was said to be."""
        return self.table.parent / real.relative_to(self.real)


def cell_text(path: Path, column: str, cell: object) -> str:
    """A cell as text, empty where it says nothing."""
    if cell is None or cell != cell:  # not a number: what pandas writes into empty cells
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))  # with an empty cell among them, pandas makes all class numbers fractions
    if not isinstance(cell, str | int | float):
        raise InputError(
            f"The column '{column}' of '{path}' holds {type(cell).__name__} values where text is needed: open it with "
            "the datasets library and use from_huggingface."
        )
    return str(cell).strip()


def _open_csv(path: Path, peek: bool) -> Table:
    lines, rows = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            file.seek(0)
            # Spreadsheets write semicolons where numbers have the comma.
            reader = csv.reader(file, delimiter=max(",", ";", "\t", key=header.count), strict=True)
            columns = _checked(path, next(reader, []))
            for line, row in enumerate(reader, 2):
                if not any(map(str.strip, row)):
                    continue
                if len(row) != len(columns):
                    raise InputError(
                        f"Row {line} of '{path}' has {len(row)} cells, but there are {len(columns)} columns: repair it."
                    )
                lines.append(line)
                rows.append(row)
                if peek:
                    break
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not UTF-8 text: save it as CSV in UTF-8.") from None
    except csv.Error as error:
        raise InputError(f"'{path}' is not a proper CSV file ({error}): save it again from a spreadsheet.") from None
    places = {name: place for place, name in enumerate(columns)}
    return Table(columns, lambda names: iter([[[row[places[name]] for row in rows] for name in names]]), lines)


def _checked(path: Path, names: Sequence[str]) -> list[str]:
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"'{path}' has {len(names):,} columns, more than {MOST_COLUMNS:,}: keep only paths and labels."
        )
    columns = [name.strip() for name in names]
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"'{path}' has two columns called '{shortened(twice)}': rename one.")
    if not columns:
        raise InputError(f"'{path}' is empty: its first row names the columns, such as path and label.")
    return columns


def _open_parquet(path: Path, peek: bool) -> Table:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError(f"'{path}' needs pyarrow: pip install pyarrow, or save the table as CSV.") from None
    try:
        file = parquet.ParquetFile(path)
        if file.metadata.num_rows > MOST_ROWS:
            raise InputError(f"'{path}' has {file.metadata.num_rows:,} rows, more than {MOST_ROWS:,}: divide it.")
    except InputError:
        raise
    except (ValueError, OSError) as error:  # pyarrow's own errors are among these
        raise _damaged(path, error) from None

    def batches(names: list[str]) -> Iterator[list[Sequence[object]]]:
        size = 0
        try:
            for batch in file.iter_batches(_BATCH, columns=names):
                size += batch.nbytes
                if size > LARGEST_COLUMNS:
                    raise InputError(f"'{path}' unpacks to more than {LARGEST_COLUMNS:,} bytes: do not use it.")
                yield [batch.column(name).to_pylist() for name in names]
                if peek:
                    break
        except InputError:
            raise
        except (ValueError, OSError, NotImplementedError, MemoryError, KeyError) as error:
            raise _damaged(path, error) from None

    return Table(_checked(path, file.schema_arrow.names), batches, range(1, file.metadata.num_rows + 1))


def _damaged(path: Path, error: Exception) -> InputError:
    reason = str(error).partition(". ")[0].partition("\n")[0].rstrip(".")
    return InputError(f"'{path}' cannot be read ({reason}): save it again as parquet or CSV.")
