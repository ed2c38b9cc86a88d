"""Vectors of one's own, in memory or in a file, as a data set: embeddings of texts or sounds, rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...errors import InputError, shortened
from ...files import as_text
from ..dataset import Dataset
from ..vectors import Vectors, vector_statistics, views_of_vectors
from .array_files import Array, missing_array, read_npy, read_npz
from .arrays import Values, number_labels
from .tables import ENDINGS, LABEL_NAMES, SPLITS, Table, cell_text, find_column, is_table, open_table
from .vector_files import KEYS, as_views, find_vectors, vectors_in

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
    train = Vectors(
        torch.from_numpy(as_views(train_vectors, "train_vectors", len(numbers))),
        torch.tensor(numbers, dtype=torch.int64),
    )
    test = None
    if test_vectors is not None:
        views = as_views(test_vectors, "test_vectors", len(test_numbers))[:, :1]
        test = _labeled(views, test_numbers)
        if test.shape != train.shape:
            raise InputError(
                f"The test vectors of '{name}' have {test.shape[0]:,} numbers but the training vectors "
                f"{train.shape[0]:,}: make both in the same way."
            )
    mean, std = vector_statistics(train.pixels)
    return Dataset(name, names, train, test, mean, std, views_of_vectors(train.views.shape[1] // 2, mean, std))


def _labeled(views: Array, labels: Sequence[int]) -> Vectors:
    return Vectors(torch.from_numpy(views), torch.tensor(labels, dtype=torch.int64))


def open_vectors(path: Path, label_column: str | None = None, *, labels_needed: bool = True) -> Dataset:
    """The data set in an .npz or .npy file or in a table; without `labels_needed` there may be no labels at all."""
    if not labels_needed and not _has_labels(path, label_column):
        vectors = find_vectors(path).vectors
        found = _labeled(vectors[:, None], [-1] * len(vectors))
        mean, std = vector_statistics(found.pixels)
        return Dataset(as_text(path.stem), (), found, None, mean, std, views_of_vectors(0, mean, std))
    if path.suffix.lower() == ".npz":
        return _open_npz(path)
    if is_table(path):
        table = open_table(path)
        label = _label_column(path, table, label_column)
        vectors, _ = vectors_in(path, table, label)
        return _divided(path, path, table, vectors, label)
    vectors = read_npy(path)
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
    return _located(path, vectors, read_npy(labels))


def _has_labels(path: Path, label_column: str | None) -> bool:
    """Whether a file, or a table beside it, says of any vector what it is."""
    if path.suffix.lower() == ".npz" or path.with_name(_LABELS).is_file():
        return True
    tables = [path] if is_table(path) else [path.with_suffix(ending) for ending in ENDINGS]
    for table in (open_table(place) for place in tables if place.is_file()):
        names = [name for name in table.columns if name == label_column or name.lower() in LABEL_NAMES]
        return any(cell_text(path, names[0], cell) for cell in table.take(names[:1])[0]) if names else False
    return False


def _located(path: Path, *arrays: Any) -> Dataset:
    """The data set of these arrays, whose faults are those of a file."""
    try:
        return from_vectors(*arrays, name=as_text(path.stem))
    except InputError as error:
        raise InputError(f"In '{path}': {error}") from None


def _open_npz(path: Path) -> Dataset:
    arrays = read_npz(path, KEYS)
    part = "train_" if "train_vectors" in arrays else ""
    if f"{part}labels" not in arrays:
        raise missing_array(path, f"{part}labels", arrays)
    wanted = [f"{part}vectors", f"{part}labels", "test_vectors", "test_labels"]
    unused = arrays.keys() - {*wanted, f"{part}names", "test_names"}
    return replace(_located(path, *map(arrays.get, wanted)), unused=tuple(sorted(unused)))


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
