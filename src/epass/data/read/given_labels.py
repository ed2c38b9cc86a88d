"""Labels in a table beside images, for folders in which not every class has a folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from posixpath import normpath

from ...errors import MOST_CHOICES, InputError, shortened
from .listing import as_known
from .tables import LABEL_NAMES, PATH_NAMES, SPLITS, cell_text, find_column, open_table
from .ways import Ways

LABELS = "labels.csv"  # in the folder of images


@dataclass(frozen=True)
class GivenLabels:
    """What a table in a folder of images says about some of them."""

    table: Path
    rows: dict[str, tuple[str, int]]  # label and line by the path of the image inside of the folder

    def apply(self, names: Sequence[str], known: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The labels of the images with these names, "" for none, and rows that name no such image.

        The table has the last word: whoever corrects the label of an image in a class folder need not move it.
        """
        here = dict.fromkeys(names)  # in their order, which decides what is named
        rows = self.among(here).rows
        given = [rows.get(name, ("", 0))[0] for name in names]
        called = as_known(given, known)
        labels = [called[text] or label for text, label in zip(given, known, strict=True)]
        ways = Ways(self.table.parent, here)
        lacking = [(name, line) for name, (_, line) in rows.items() if name not in here]
        table = self.table.name
        return labels, [(name, f"in row {line} of {table} {self._reason(name, ways)}") for name, line in lacking]

    def among(self, known: Collection[str]) -> GivenLabels:
        """The same with the `known` images called as they are, whatever way to them is written."""
        ways, rows = Ways(self.table.parent, known), dict[str, tuple[str, int]]()
        for way, row in self.rows.items():
            name = ways.find(way)
            _refuse_two_rows(self.table, name, rows, row[1])
            rows[name] = row
        return replace(self, rows=rows)

    def _reason(self, name: str, ways: Ways) -> str:
        there = os.path.exists(self.table.parent / name)  # which takes any text for a path
        near = [shortened(one) for one in ways.near(name)[:1]]
        beside = f"; '{near[0]}' is" if near else ""
        return f"is no image to train on{beside}" if there else f"is not there (no such file{beside})"


def own_table(folder: Path) -> Path:
    """Where a folder's own table is, or would be; to some systems 'Labels.CSV' is the same name."""
    path = folder / LABELS
    if not path.is_file():
        with suppress(OSError), os.scandir(folder) as entries:
            path = next((folder / entry.name for entry in entries if entry.name.lower() == LABELS), path)
    return path


def find_labels(path: Path) -> GivenLabels | None:
    """The labels in a folder's own table at `path`, if there is one with a column of paths and one of labels."""
    if not path.is_file():
        return None
    table = open_table(path)
    columns = {name.lower() for name in table.columns}
    if not (columns & {*PATH_NAMES} and columns & {*LABEL_NAMES}):
        return None  # a table of something else, which folders of classes may have beside them
    chosen = [find_column(path, table.columns, None, usual, "") for usual in (PATH_NAMES, LABEL_NAMES)]
    chosen += [name for name in table.columns if name.lower() == "split"][:1]
    cells = [
        [cell_text(path, name, cell) for cell in column]
        for name, column in zip(chosen, table.take(chosen), strict=True)
    ]
    _refuse_split(path, *cells[2:], lines=table.lines)
    rows: dict[str, tuple[str, int]] = {}
    for line, value, label in zip(table.lines, *cells[:2], strict=True):
        if not value:
            raise InputError(f"Row {line} of '{path}' has no path: fill it in or remove the row.")
        name = normpath(value)
        _refuse_two_rows(path, name, rows, line)
        rows[name] = (label, line)
    return GivenLabels(path, rows)


def of_something_else(table: Path) -> InputError:
    """The error for a table that is no one of labels, where only such a one is of use."""
    columns = ", ".join(f"'{shortened(name)}'" for name in open_table(table, peek=True).columns[:MOST_CHOICES])
    return InputError(
        f"'{table}' is a table of something else than paths and labels, since its first row has {columns}: call the "
        "two columns 'path' and 'label', or the table otherwise."
    )


def _refuse_split(path: Path, splits: Sequence[str] = (), *, lines: Sequence[int]) -> None:
    """Images for a test would be trained on: a folder says by its own folders what is tested."""
    for line, split in zip(lines, splits, strict=False):
        if SPLITS.get(split.lower()) != "labeled":
            raise InputError(
                f"Row {line} of '{path}' has the split '{shortened(split)}', which counts where the table itself is "
                f"the data: give '{path}', or put images for a test into folders test/<class> and take the column out."
            )


def _refuse_two_rows(table: Path, name: str, rows: Mapping[str, tuple[str, int]], line: int) -> None:
    if name in rows:
        raise InputError(
            f"Rows {rows[name][1]} and {line} of '{table}' both name '{shortened(name)}': remove one of them."
        )
