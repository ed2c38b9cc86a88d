"""SVHN, cropped digits: house numbers from street views, 32 x 32 pixels, 10 classes.

Y. Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", NIPS workshop 2011.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ....augment import reflect_padding
from ....errors import InputError
from ...dataset import Dataset
from ...images import Images
from .layout import check_layout
from .matlab import Variable, list_variables

NAME = "svhn"
TEXT = "train_32x32.mat, test_32x32.mat and, for more training images, extra_32x32.mat"

_TRAIN, _TEST, _EXTRA = "train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"
_SIDE = 32
_IMAGE = 3 * _SIDE * _SIDE
_BLOCK = 1024  # images at a time: what is needed beside the final pixels


def missing(folder: Path) -> list[str]:
    """The files that SVHN needs and `folder` lacks."""
    return [name for name in (_TRAIN, _TEST) if not (folder / name).is_file()]


def read(folder: Path, *, extra: bool = True) -> Dataset:
    """SVHN; the extra images, where they are present and not unwanted, follow the training images."""
    check_layout(NAME, folder, missing(folder))
    training = [folder / _TRAIN]
    if extra and (folder / _EXTRA).is_file():
        training.append(folder / _EXTRA)
    return Dataset(
        name=NAME,
        classes=tuple(str(digit) for digit in range(10)),
        train=_read(training),
        test=_read([folder / _TEST]),
        mean=(0.4380, 0.4440, 0.4730),
        std=(0.1751, 0.1771, 0.1744),
        augment={"padding": reflect_padding(_SIDE, 0.875), "horizontal_flip": True},  # published code mirrors digits
    )


def _read(paths: list[Path]) -> Images:
    """The images of several files in one tensor, which is never copied."""
    files = [_variables(path) for path in paths]
    labels = torch.cat([_labels(y) for _, y in files])
    pixels = torch.empty(len(labels), 3, _SIDE, _SIDE, dtype=torch.uint8)
    start = 0
    for images, _ in files:
        for block in images.blocks(_BLOCK * _IMAGE):
            if block.dtype != np.uint8:
                raise InputError(f"'X' in '{images.path}' holds {block.dtype} values: expected uint8.")
            by_column = block.reshape(-1, 3, _SIDE, _SIDE)  # in the file the rows of a column run fastest
            np.copyto(pixels[start : start + len(by_column)].numpy(), by_column.swapaxes(2, 3))
            start += len(by_column)
    return Images(pixels, labels)


def _variables(path: Path) -> tuple[Variable, Variable]:
    """The images and the labels of a file, which fit to each other."""
    found = list_variables(path)
    for name in ("X", "y"):
        if name not in found:
            raise InputError(f"'{path}' has no variable '{name}': it holds {', '.join(found) or 'nothing'}.")
    images, labels = found["X"], found["y"]
    shape = images.shape if len(images.shape) != 3 else (*images.shape, 1)  # MATLAB drops a last dimension of one
    count = shape[-1]
    if shape != (_SIDE, _SIDE, 3, count) or not count:
        raise InputError(f"'X' in '{path}' has shape {images.shape}: expected ({_SIDE}, {_SIDE}, 3, images).")
    if sorted(labels.shape) != sorted((1, count)):
        raise InputError(f"'y' in '{path}' has shape {labels.shape}: expected ({count}, 1), one label for every image.")
    return images, labels


def _labels(variable: Variable) -> torch.Tensor:
    """The digits of the images; the file says 10 for 0."""
    numbers = np.concatenate(list(variable.blocks(2**20)))
    wrong = numbers[~np.isin(numbers, range(1, 11))]
    if len(wrong):
        raise InputError(f"'y' in '{variable.path}' holds {wrong[0]}: expected 1 to 9, and 10 for the digit 0.")
    return torch.from_numpy(numbers.astype(np.int64) % 10)
