"""Vectors of one's own, in memory or in a file, as a data set: embeddings of texts or sounds, rows of a table."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError, shortened
from ...files import as_text
from ...untrusted import parse_json
from ..dataset import Dataset
from ..vectors import Vectors, vector_statistics, views_of_vectors
from .arrays import Values, missing_array, number_labels, read_npz, reading
from .conversion import Array
from .listing import nothing_at
from .tables import ENDINGS, LABEL_NAMES, PATH_NAMES, SPLITS, Table, cell_text, find_column, is_table, open_table

VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings", "features")  # of a column of lists
NAME_NAMES = ("name", "id", "index", "")  # pandas writes its index under no name
_PARTS = ("", "train_", "test_")  # before `vectors`, `labels` and `names` in an .npz file
_KEYS = {part + word for part in _PARTS for word in ("vectors", "labels", "names")}
_LABELS = "labels.npy"  # beside an .npy file of vectors


def from_vectors(
    train_vectors: Values,
    train_labels: Values,
    test_vectors: Values | None = None,
    test_labels: Values | None = None,
    *,
    name: str = "vectors",
    classes: Sequence[str] | None = None,
) -> Dataset:
    """A data set from vectors in memory.

    Args:
        train_vectors: (N, D), any numbers, of which training makes noisy views; or (N, V, D) with views of your own:
            first the plain one, then as many weak ones as strong ones.
        train_labels: (N,), integers from 0 or texts; None, NaN, -1 or "" where nobody labeled the vector.
        test_vectors: Vectors of the same width D; of several views only the plain one is used.
        test_labels: Like `train_labels`, all of them known.
        name: What reports call this data set.
        classes: As for `from_arrays`.
    """
    if (test_vectors is None) != (test_labels is None):
        missing = "test_vectors" if test_vectors is None else "test_labels"
        raise InputError(f"The test set of '{name}' needs vectors and labels, but {missing} is missing.")
    names, (numbers, test_numbers) = number_labels(train_labels, test_labels, name, classes)
    train = Vectors(as_views(train_vectors, "train_vectors", len(numbers)), torch.tensor(numbers, dtype=torch.int64))
    test = None
    if test_vectors is not None:
        views = as_views(test_vectors, "test_vectors", len(test_numbers))[:, :1]
        test = Vectors(views, torch.tensor(test_numbers, dtype=torch.int64))
        if test.shape != train.shape:
            raise InputError(
                f"The test vectors of '{name}' have {test.shape[0]:,} numbers but the training vectors "
                f"{train.shape[0]:,}: make both in the same way."
            )
    mean, std = vector_statistics(train.pixels)
    return Dataset(name, names, train, test, mean, std, views_of_vectors(train.views.shape[1] // 2, mean, std))


def as_views(vectors: Any, what: str, count: int | None = None) -> Tensor:
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
    return torch.from_numpy(finite(array, lambda row: f"{what}[{row}]"))


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


@dataclass(frozen=True, eq=False)
class FoundVectors:
    """Vectors of unknown classes: what a trained model is asked about."""

    names: list[str]  # or positions, from 0
    column: str  # what the names are: name or row
    vectors: Vectors  # the plain ones, without labels


def holds_vectors(name_or_path: str, *, path_column: str | None = None) -> bool:
    """Whether a file holds vectors instead of images, as far as a look at its beginning tells."""
    path = Path(name_or_path).expanduser()
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


def open_vectors(path: Path, label_column: str | None = None, *, labels_needed: bool = True) -> Dataset:
    """The data set in an .npz or .npy file or in a table; without `labels_needed` there may be no labels at all."""
    if not labels_needed and not _has_labels(path, label_column):
        found = find_vectors(path).vectors
        mean, std = vector_statistics(found.pixels)
        return Dataset(as_text(path.stem), (), found, None, mean, std, views_of_vectors(0, mean, std))
    if path.suffix.lower() == ".npz":
        return _open_npz(path)
    if is_table(path):
        table = open_table(path)
        label = _label_column(path, table, label_column)
        vectors, _ = _vectors_in(path, table, label)
        return _divided(path, path, table, vectors, label)
    vectors = _read_npy(path)
    beside = [path.with_suffix(ending) for ending in ENDINGS if path.with_suffix(ending).is_file()]
    if beside:
        table = open_table(beside[0])
        if len(table.lines) != len(vectors):
            raise InputError(
                f"'{beside[0]}' has {len(table.lines):,} rows for the {len(vectors):,} vectors of '{path}': give every "
                "vector one row."
            )
        return _divided(path, beside[0], table, vectors, _label_column(beside[0], table, label_column))
    if not (labels := path.with_name(_LABELS)).is_file() or labels.samefile(path):
        raise InputError(
            f"There are no labels of '{path}': put '{path.with_suffix('.csv').name}' with a column label beside it, or "
            f"an array '{_LABELS}'."
        )
    return _located(path, vectors, _read_npy(labels))


def _has_labels(path: Path, label_column: str | None) -> bool:
    """Whether a file, or a table beside it, says of any vector what it is."""
    if path.suffix.lower() == ".npz" or path.with_name(_LABELS).is_file():
        return True
    tables = [path] if is_table(path) else [path.with_suffix(ending) for ending in ENDINGS]
    for table in (open_table(place) for place in tables if place.is_file()):
        names = [name for name in table.columns if name == label_column or name.lower() in LABEL_NAMES]
        return any(cell_text(path, names[0], cell) for cell in table.take(names[:1])[0]) if names else False
    return False


def find_vectors(path: str | Path, *, label_column: str | None = None) -> FoundVectors:
    """All vectors of a file, whatever their labels and parts.

    Args:
        path: An .npz or .npy file or a table, as for training.
        label_column: What the column of labels in a table may be called besides its usual names.
    """
    place, names = Path(path).expanduser(), []
    if not str(path) or not place.is_file():
        raise nothing_at(path)
    if place.suffix.lower() == ".npz":
        arrays = read_npz(place, _KEYS)
        parts = [part for part in _PARTS if f"{part}vectors" in arrays]
        if not parts:
            raise missing_array(place, "vectors", arrays)
        views = [as_views(arrays[f"{part}vectors"], f"{part}vectors of '{place}'")[:, :1] for part in parts]
        if len({made.shape[2] for made in views}) > 1:
            raise InputError(f"The vectors of '{place}' have different widths: make all in the same way.")
        vectors = torch.cat(views)
        if all(f"{part}names" in arrays for part in parts):
            names = [str(name) for part in parts for name in arrays[f"{part}names"].tolist()]
    elif is_table(place):
        found, names = _vectors_in(place, open_table(place), label_column)
        vectors = as_views(found, f"'{place}'")[:, :1]
    elif place.suffix.lower() == ".npy":
        vectors = as_views(_read_npy(place), f"'{place}'")[:, :1]
    else:
        raise InputError(f"'{path}' holds no vectors: give an .npz or .npy file, or a .csv or .parquet table.")
    if names and len(names) != len(vectors):
        raise InputError(
            f"'{place}' has {len(names):,} names for {len(vectors):,} vectors: give every vector one name."
        )
    rows = list(map(str, range(len(vectors))))
    return FoundVectors(names or rows, "name" if names else "row", Vectors(vectors, torch.full((len(vectors),), -1)))


def _located(path: Path, *arrays: Any) -> Dataset:
    """The data set of these arrays, whose faults are those of a file."""
    try:
        return from_vectors(*arrays, name=as_text(path.stem))
    except InputError as error:
        raise InputError(f"In '{path}': {error}") from None


def _open_npz(path: Path) -> Dataset:
    arrays = read_npz(path, _KEYS)
    part = "train_" if "train_vectors" in arrays else ""
    if f"{part}labels" not in arrays:
        raise missing_array(path, f"{part}labels", arrays)
    wanted = [f"{part}vectors", f"{part}labels", "test_vectors", "test_labels"]
    unused = arrays.keys() - {*wanted, f"{part}names", "test_names"}
    return replace(_located(path, *map(arrays.get, wanted)), unused=tuple(sorted(unused)))


def _read_npy(path: Path) -> Array:
    with reading(path, "no .npy file: save it again with numpy.save"), path.open("rb") as stream:
        array = np.load(stream, allow_pickle=False)
        if isinstance(array, np.ndarray):
            return array
    raise InputError(f"'{path}' holds several arrays: call it .npz.")


def _label_column(path: Path, table: Table, chosen: str | None) -> str:
    return find_column(path, table.columns, chosen, LABEL_NAMES, "say which one it is with data.label_column")


def _divided(path: Path, where: Path, table: Table, vectors: Array, label: str) -> Dataset:
    """The data set of `vectors` with the labels, and perhaps the splits, of the table at `where`."""
    split = [name for name in table.columns if name.lower() == "split"][:1]
    cells = [
        [cell_text(where, name, cell) for cell in column]
        for name, column in zip([label, *split], table.take([label, *split]), strict=True)
    ]
    rows: dict[str, list[int]] = {"labeled": [], "validation": [], "test": []}
    for row, word in enumerate(cells[1] if split else [""] * len(vectors)):
        role = SPLITS.get(word.lower())
        if role is None:
            line, word = table.lines[row], shortened(word)
            raise InputError(f"Row {line} of '{where}' has the split '{word}': use train, val or test.")
        if role != "labeled" and not cells[0][row]:
            line = table.lines[row]
            raise InputError(f"Row {line} of '{where}' is a {role} vector without a label: give it one or remove it.")
        rows[role].append(row)
    if not rows["test"]:
        rows["test"], rows["validation"] = rows["validation"], []
    train, test = rows["labeled"] + rows["validation"], rows["test"]
    parts = [
        part for chosen in (train, test) if chosen for part in (vectors[chosen], [cells[0][row] for row in chosen])
    ]
    return replace(_located(path, *parts), validation=len(rows["validation"]), train_rows=tuple(train))


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


def _vectors_in(path: Path, table: Table, label_column: str | None) -> tuple[Array, list[str]]:
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
