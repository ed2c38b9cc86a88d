"""Vectors in files: embeddings of texts or sounds, rows of a table."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, shortened
from ...files import from_home
from ...untrusted import parse_json
from .array_files import Array, missing_array, read_npy, read_npz
from .listing import nothing_at
from .tables import LABEL_NAMES, PATH_NAMES, Table, cell_text, is_table, open_table

VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings", "features")  # of a column of lists
NAME_NAMES = ("name", "id", "index", "")  # pandas writes its index under no name
_PARTS = ("", "train_", "test_")  # before `vectors`, `labels` and `names` in an .npz file
KEYS = {part + word for part in _PARTS for word in ("vectors", "labels", "names")}


@dataclass(frozen=True, eq=False)
class FoundVectors:
    """Vectors of unknown classes: what a trained model is asked about."""

    names: list[str]  # or positions, from 0
    column: str  # what the names are: name or row
    vectors: Array  # (N, D), the plain ones


def holds_vectors(name_or_path: str, *, path_column: str | None = None) -> bool:
    """Whether a file holds vectors instead of images, as far as a look at its beginning tells."""
    path = from_home(name_or_path)
    if not name_or_path or not path.is_file():
        return False
    with suppress(OSError, ValueError, zipfile.BadZipFile):  # whoever reads the file says what is wrong with it
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                keys = {member.removesuffix(".npy") for member in archive.namelist()}
            return bool({"vectors", "train_vectors"} & keys) and "train_images" not in keys
        if is_table(path) and path_column is None:
            return _has_vectors(path, open_table(path, peek=True))
    return path.suffix.lower() == ".npy"


def find_vectors(path: str | Path, *, label_column: str | None = None) -> FoundVectors:
    """All vectors of a file, whatever their labels and parts.

    Args:
        path: An .npz or .npy file or a table, as for training.
        label_column: What the column of labels in a table may be called besides its usual names.
    """
    place, names = from_home(path), []
    if not str(path) or not place.is_file():
        raise nothing_at(path)
    if place.suffix.lower() == ".npz":
        arrays = read_npz(place, KEYS)
        parts = [part for part in _PARTS if f"{part}vectors" in arrays]
        if not parts:
            raise missing_array(place, "vectors", arrays)
        views = [as_views(arrays[f"{part}vectors"], f"{part}vectors of '{place}'")[:, 0] for part in parts]
        if len({made.shape[1] for made in views}) > 1:
            raise InputError(f"The vectors of '{place}' have different widths: make all in the same way.")
        vectors = np.concatenate(views)
        if all(f"{part}names" in arrays for part in parts):
            names = [str(name) for part in parts for name in arrays[f"{part}names"].tolist()]
    elif is_table(place):
        found, names = vectors_in(place, open_table(place), label_column)
        vectors = as_views(found, f"'{place}'")[:, 0]
    elif place.suffix.lower() == ".npy":
        vectors = as_views(read_npy(place), f"'{place}'")[:, 0]
    else:
        raise InputError(f"'{path}' holds no vectors: give an .npz or .npy file, or a .csv or .parquet table.")
    if names and len(names) != len(vectors):
        raise InputError(
            f"'{place}' has {len(names):,} names for {len(vectors):,} vectors: give every vector one name."
        )
    rows = list(map(str, range(len(vectors))))
    return FoundVectors(names or rows, "name" if names else "row", vectors)


def as_views(vectors: Any, what: str, count: int | None = None) -> Array:
    """(N, V, D) floats of `count` examples: first the plain view, then as many weak ones as strong ones."""
    try:
        array: Array = np.asarray(vectors)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition(". ")[0].partition("\n")[0].rstrip(".")
        raise InputError(f"{what} is no array ({reason}): give vectors of one width.") from None
    if array.dtype.kind not in "biuf":
        found = "texts" if array.dtype.kind in "SU" else f"{array.dtype} values"
        raise InputError(f"{what} holds {found}: give numbers, such as an embedding of each example.")
    if array.ndim not in (2, 3):
        raise InputError(f"{what} has shape {array.shape}: use (N, D), or (N, V, D) for vectors with views.")
    if not array.size:
        raise InputError(f"{what} has shape {array.shape}, which is empty: give at least one vector.")
    if count is not None and len(array) != count:
        raise InputError(f"{what} holds {len(array):,} vectors for {count:,} labels: give every vector one label.")
    array = array[:, None] if array.ndim == 2 else array
    if array.shape[1] % 2 == 0:
        raise InputError(
            f"{what} has {array.shape[1]} views of every example: store a plain one, then as many weak ones as strong "
            "ones, which is an odd number."
        )
    return finite(array, lambda row: f"{what}[{row}]")


def finite(array: Array, place: Callable[[int], str]) -> Array:
    """A copy in 16 bits, if it had no more, or in 32; `place` says where a row is that has no such numbers."""
    with np.errstate(over="ignore"):
        made = array.astype(np.float16 if array.dtype == np.float16 else np.float32)
    good = np.isfinite(made).reshape(len(made), -1)
    if not good.all():
        row = int((~good.all(1)).argmax())
        value = array[row].reshape(-1)[(~good[row]).argmax()]
        raise InputError(f"{place(row)} holds {value}, which is no number to learn from: repair or remove it.")
    return made


def vectors_in(path: Path, table: Table, label_column: str | None) -> tuple[Array, list[str]]:
    """The vector of every row and, where there is a column of names, its name."""
    column, numbers = _columns_of(table, label_column)
    chosen = [column] if column is not None else numbers
    if not chosen or not table.lines:
        raise InputError(f"'{path}' holds no vectors: give it a column of lists called vector, or columns of numbers.")
    lower = {name.lower(): name for name in reversed(table.columns)}
    named = next((lower[name] for name in (*NAME_NAMES, *PATH_NAMES) if name in lower), None)
    names: list[str] = []
    parts: list[Array] = []
    done = 0
    for batch in table.batches([*chosen, *([] if named is None else [named])]):
        if named is not None:
            names += [cell_text(path, named, cell) for cell in batch.pop()]
        lines = table.lines[done : done + len(batch[0])]
        done += len(lines)
        rows = list(map(_listed, batch[0])) if column is not None else list(zip(*batch, strict=True))
        parts.append(_numbers(path, lines, rows, [] if column is not None else chosen))
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(f"'{path}' holds vectors of different widths: make all in the same way.")
    return np.concatenate(parts), names


def _has_vectors(path: Path, table: Table) -> bool:
    if not table.lines:
        return False
    column, numbers = _columns_of(table, None)
    chosen = [column] if column is not None else numbers
    first = dict(zip(chosen, (cells[0] for cells in table.take(chosen)), strict=True))
    if column is not None:
        return isinstance(first[column], list) or str(first[column]).lstrip().startswith("[")
    return not any(name.lower() in PATH_NAMES for name in table.columns) and any(map(_is_number, first.values()))


def _columns_of(table: Table, label_column: str | None) -> tuple[str | None, list[str]]:
    """The column of lists, if there is one, and the columns that hold one number each, if not."""
    lower = {name.lower(): name for name in reversed(table.columns)}
    column = next((lower[name] for name in VECTOR_NAMES if name in lower), None)
    other = {*LABEL_NAMES, *NAME_NAMES, "split"}
    return column, [name for name in table.columns if name.lower() not in other and name != label_column]


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _listed(cell: object) -> object:
    """A list, which a .csv file writes as text."""
    with suppress(ValueError):
        return parse_json(cell.encode()) if isinstance(cell, str) else cell
    return cell


def _numbers(path: Path, lines: Sequence[int], rows: Sequence[Any], columns: Sequence[str]) -> Array:
    """Rows of numbers as an array; what is none is named with its row and, where each has its own, its column."""
    try:
        array = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.ndim > 1:
        return finite(array, lambda row: f"Row {lines[row]} of '{path}'")
    for line, row in zip(lines, rows, strict=True):
        if not isinstance(row, list | tuple):
            raise InputError(
                f"Row {line} of '{path}' holds {_quoted(row)} where a list of numbers is needed: repair it."
            )
        if len(row) != len(rows[0]):
            raise InputError(
                f"Row {line} of '{path}' holds a vector of width {len(row)}, but row {lines[0]} one of width "
                f"{len(rows[0])}: make all in the same way."
            )
        odd = next(
            (place for place, cell in enumerate(row) if not isinstance(cell, list) and not _is_number(cell)), None
        )
        if odd is not None:
            where = f" in the column '{shortened(columns[odd])}'" if columns else ""
            raise InputError(f"Row {line} of '{path}' holds {_quoted(row[odd])}{where}, which is no number: repair it.")
    raise InputError(f"'{path}' holds vectors with views of different widths: make all in the same way.")


def _quoted(cell: object) -> str:
    return f"'{shortened(str(cell))}'" if cell not in (None, "") else "nothing"
