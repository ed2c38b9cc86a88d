"""STL-10: photos of 96 x 96 pixels, 10 classes, most of them without a label (the binary version).

A. Coates, H. Lee and A. Y. Ng, "An Analysis of Single-Layer Networks in Unsupervised Feature Learning", AISTATS 2011.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ....augment import reflect_padding
from ....errors import InputError
from ...dataset import Dataset
from ...images import Images
from .layout import check_layout
from .textfile import read_lines, whole_number

NAME = "stl10"
TEXT = "train_X.bin, train_y.bin, test_X.bin, test_y.bin, unlabeled_X.bin and class_names.txt, the binary version"

_NEEDED = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "class_names.txt")
_FOLDS = "fold_indices.txt"  # only some copies have it
_SIDE = 96
_IMAGE = 3 * _SIDE * _SIDE  # bytes
_BLOCK = 512  # images at a time: what is needed beside the final pixels


def missing(folder: Path) -> list[str]:
    """The files that STL-10 needs and `folder` lacks."""
    return [name for name in _NEEDED if not (folder / name).is_file()]


def read(folder: Path) -> Dataset:
    """STL-10: the training images, then the unlabeled ones, so that the folds are positions in `train`."""
    check_layout(NAME, folder, missing(folder))
    classes = tuple(read_lines(folder / "class_names.txt"))
    if len(classes) != 10 or len(set(classes)) != 10:
        raise InputError(f"'{folder / 'class_names.txt'}' has {len(set(classes))} different lines: expected 10 names.")
    labels, test_labels = (_labels(folder / name) for name in ("train_y.bin", "test_y.bin"))
    unlabeled = _count(folder / "unlabeled_X.bin")
    train = torch.empty(len(labels) + unlabeled, 3, _SIDE, _SIDE, dtype=torch.uint8)
    test = torch.empty(len(test_labels), 3, _SIDE, _SIDE, dtype=torch.uint8)
    _fill(train[: len(labels)], folder / "train_X.bin")
    _fill(train[len(labels) :], folder / "unlabeled_X.bin")
    _fill(test, folder / "test_X.bin")
    return Dataset(
        name=NAME,
        classes=classes,
        train=Images(train, torch.cat([labels, torch.full((unlabeled,), -1)])),
        test=Images(test, test_labels),
        mean=(112.4 / 255, 109.1 / 255, 98.6 / 255),
        std=(68.4 / 255, 66.6 / 255, 68.5 / 255),
        augment={"padding": reflect_padding(_SIDE, 0.875), "horizontal_flip": True},
        folds=tuple(map(tuple, read_folds(folder))) if (folder / _FOLDS).is_file() else (),
    )


def read_folds(folder: Path) -> list[list[int]]:
    """The official folds in fold_indices.txt: for each the positions, from 0, of its images in the training set."""
    path = folder / _FOLDS
    count = _count(folder / "train_X.bin")
    folds = [
        [whole_number(word, path, line, 0, count - 1) for word in text.split()]
        for line, text in enumerate(read_lines(path), 1)
    ]
    if not folds:
        raise InputError(f"'{path}' is empty: expected one line of positions for every fold.")
    for line, fold in enumerate(folds, 1):
        if len(fold) != len(folds[0]) or len(set(fold)) != len(fold) or not fold:
            raise InputError(
                f"Line {line} of '{path}' names {len(set(fold))} different images in {len(fold)} words: expected "
                f"{len(folds[0])} different ones, as in line 1."
            )
    return folds


def _labels(path: Path) -> Tensor:
    """Class numbers from 0; the file counts from 1."""
    try:
        numbers = np.fromfile(path, np.uint8)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not len(numbers):
        raise InputError(f"'{path}' has 0 bytes: expected one for every image.")
    if numbers.min() < 1 or numbers.max() > 10:
        wrong = numbers[(numbers < 1) | (numbers > 10)][0]
        raise InputError(f"'{path}' holds the label {wrong}: expected 1 to 10.")
    return torch.from_numpy(numbers.astype(np.int64) - 1)


def _count(path: Path) -> int:
    """How many images the file holds."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if size % _IMAGE or not size:
        raise InputError(f"'{path}' has {size:,} bytes: expected a multiple of {_IMAGE:,}, the bytes of an image.")
    return size // _IMAGE


def _fill(pixels: Tensor, path: Path) -> None:
    """Read as many images as `pixels` has, block by block: all at once they would need their memory twice."""
    expected, found = len(pixels), _count(path)
    if found != expected:
        raise InputError(
            f"'{path}' has {found * _IMAGE:,} bytes: expected {expected * _IMAGE:,}, one image for every label."
        )
    try:
        with path.open("rb") as file:
            for start in range(0, expected, _BLOCK):
                part = pixels[start : start + _BLOCK].numpy()
                by_column = np.fromfile(file, np.uint8, part.size).reshape(part.shape)
                np.copyto(part, by_column.swapaxes(2, 3))
    except (OSError, ValueError) as error:  # ValueError: the file has become shorter
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"'{path}' cannot be read ({error}): unpack the archive again.")
