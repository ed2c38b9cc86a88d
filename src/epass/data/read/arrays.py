"""NumPy arrays, in memory or in an .npz file (the layout of MedMNIST), as a data set."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...augment import reflect_padding
from ...errors import InputError
from ...untrusted import check_growth
from ..dataset import Dataset, channel_statistics
from ..images import Images
from .resize import resize

Array = np.ndarray[Any, np.dtype[Any]]
_ABSURD = (
    MemoryError,
    OverflowError,
    SyntaxError,
    TokenError,
    TypeError,
)  # what NumPy raises on headers that nobody wrote
_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def from_arrays(
    train_images: Array,
    train_labels: Array,
    test_images: Array | None = None,
    test_labels: Array | None = None,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
) -> Dataset:
    """A data set from uint8 images and integer labels.

    Args:
        train_images: (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels; where both are possible the last
            dimension is the channel.
        train_labels: (N,) or (N, 1) integers from 0, where -1 marks an image that nobody labeled.
        test_images: Like `train_images`, of the same size.
        test_labels: Like `train_labels`, without -1.
        name: What reports call this data set.
        classes: The names of the classes 0, 1, ...; without them the classes are called by their numbers.
        image_size: Scale the images to squares of this side; without it they must be square already.
    """
    if (test_images is None) != (test_labels is None):
        missing = "test_images" if test_images is None else "test_labels"
        raise InputError(f"The test set of '{name}' needs images and labels, but {missing} is missing.")
    labels = _labels(train_labels, "train_labels")
    names = tuple(classes) if classes is not None else _numbered(labels, name)
    _check_classes(labels, names, "train_labels", lowest=-1)
    train = Images(_pixels(train_images, "train_images", len(labels), image_size), labels)
    test = None
    if test_images is not None and test_labels is not None:
        labels = _labels(test_labels, "test_labels")
        _check_classes(labels, names, "test_labels", lowest=0)
        test = Images(_pixels(test_images, "test_images", len(labels), image_size), labels)
        if test.pixels.shape[1:] != train.pixels.shape[1:]:
            raise InputError(
                f"The test images of '{name}' have shape {tuple(test.pixels.shape[1:])} but the training images "
                f"{tuple(train.pixels.shape[1:])} (channels, height, width): store both alike."
            )
    mean, std = channel_statistics(train.pixels)
    padding = reflect_padding(train.pixels.shape[-1], 0.875)
    return Dataset(name, names, train, test, mean, std, {"padding": padding, "horizontal_flip": True})


def open_npz(
    path: Path, image_size: int | None = None, *, name: str | None = None, classes: Sequence[str] | None = None
) -> Dataset:
    """The data set in the .npz file at `path`; a validation part (val_images, val_labels) is not used.

    Keys: train_images, train_labels and, for a test set, test_images, test_labels, each as `from_arrays` takes them.
    Without a `name`, that of the file is taken.
    """
    arrays = _read(path)
    for key in ("train_images", "train_labels"):
        if key not in arrays:
            raise _missing(path, key, arrays)
    test_images, test_labels = arrays.get("test_images"), arrays.get("test_labels")
    if (test_images is None) != (test_labels is None):
        raise _missing(path, "test_images" if test_images is None else "test_labels", arrays)
    try:
        return from_arrays(
            arrays["train_images"],
            arrays["train_labels"],
            test_images,
            test_labels,
            name=name or path.stem,
            classes=classes,
            image_size=image_size,
        )
    except InputError as error:
        raise InputError(f"In '{path}': {error}") from None


def _read(path: Path) -> dict[str, Array]:
    """The arrays of the file that matter here, and every other key with nothing, so that an error can list them."""
    try:
        check_growth(path)
        with path.open("rb") as stream:
            # Unpickling runs code from the file, so object arrays are refused.
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                return {key: file[key] if key in _KEYS else np.empty(0) for key in file.files}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError, *_ABSURD) as error:
        if "Object arrays" in str(error):
            reason = "it holds Python objects, which are never loaded: save plain numeric arrays with numpy.savez"
        else:
            reason = "it is damaged or no .npz archive: save it again with numpy.savez"
        raise InputError(f"'{path}' cannot be read because {reason}.") from error
    raise InputError(f"'{path}' holds a single array instead of several: save them with numpy.savez.")


def _missing(path: Path, key: str, arrays: Mapping[str, Array]) -> InputError:
    found = ", ".join(sorted(arrays)) or "nothing"
    return InputError(f"'{path}' has no array called '{key}': it holds {found}.")


def _pixels(images: Array, what: str, count: int, image_size: int | None) -> Tensor:
    """(N, C, H, W) uint8, square."""
    images = np.asarray(images)
    if images.dtype != np.uint8:
        raise InputError(f"{what} holds {images.dtype} values: convert them to uint8 with values from 0 to 255.")
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"{what} has shape {images.shape}: use (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels."
        )
    if len(images) != count:
        raise InputError(f"{what} holds {len(images)} images for {count} labels: give every image one label.")
    if not images.size:
        raise InputError(f"{what} is empty: give at least one image.")
    pixels = torch.from_numpy(np.array(images, order="C"))  # a copy: the caller's array may change or be read-only
    if image_size is not None:
        return resize(pixels, image_size)
    height, width = images.shape[2:]
    if height != width:
        side = min(height, width)
        raise InputError(f"{what} holds images of {height} x {width} pixels: choose an image size such as {side}.")
    return pixels


def _labels(labels: Array, what: str) -> Tensor:
    """(N,) int64."""
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{what} has shape {labels.shape}: give one class number per image, shape (N,) or (N, 1).")
    if labels.dtype.kind not in "iu":
        raise InputError(f"{what} holds {labels.dtype} values: convert them to integers, -1 for unlabeled images.")
    return torch.from_numpy(labels.astype(np.int64))


def _numbered(labels: Tensor, name: str) -> tuple[str, ...]:
    """The classes "0", "1", ... up to the largest label, all of which must occur."""
    known = sorted(set(labels[labels >= 0].tolist()))
    if not known:
        raise InputError(f"No training image of '{name}' has a label: give some of them a class number from 0.")
    if known != list(range(len(known))):
        gap = next(number for number, label in enumerate(known) if number != label)
        raise InputError(
            f"No training image of '{name}' has label {gap}, but some have label {known[-1]}: "
            f"number the {len(known)} classes from 0 to {len(known) - 1}."
        )
    return tuple(str(number) for number in known)


def _check_classes(labels: Tensor, classes: tuple[str, ...], what: str, lowest: int) -> None:
    if len(classes) < 2:
        raise InputError(f"{what} knows {len(classes)} class, but a classifier needs at least two.")
    wrong = labels[(labels < lowest) | (labels >= len(classes))]
    if len(wrong):
        unlabeled = ", or -1 for unlabeled images" if lowest < 0 else ""
        raise InputError(f"{what} holds {wrong[0].item()}: use 0 to {len(classes) - 1}{unlabeled}.")
