"""Arrays or lists of files, in memory or in an .npz file (the layout of MedMNIST), as a data set."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...augment import reflect_padding
from ...errors import InputError, shortened
from ..dataset import Dataset, channel_statistics
from ..images import Images
from .array_files import Array, missing_array, read_npz
from .conversion import as_array, as_labels, as_paths, as_pixels
from .listing import Listing, Place, number, number_classes
from .pixels import read_listing
from .resize import scaled

Values = Array | Sequence[Any]
_IMAGES = ("train_images", "test_images")
_KEYS = {*_IMAGES, "train_labels", "test_labels"}


def from_arrays(
    train_images: Values,
    train_labels: Values,
    test_images: Values | None = None,
    test_labels: Values | None = None,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
) -> Dataset:
    """A data set from what is in memory.

    Args:
        train_images: (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels; where both are possible the last
            dimension is the channel. The values are uint8, or other numbers from 0 to 1 or from 0 to 255: a warning
            says which they were taken for. Or the paths of N image files.
        train_labels: (N,) or (N, 1), integers from 0 or texts; None, NaN, -1 or "" where nobody labeled the image.
        test_images: Like `train_images`, of the same size.
        test_labels: Like `train_labels`, all of them known.
        name: What reports call this data set.
        classes: The names of the classes 0, 1, ..., or the texts in their order; without them the classes are called by
            their numbers, or are the texts in alphabetical order.
        image_size: Scale the images to squares of this side; without it they must be square already, and files are
            scaled to 32.
    """
    if (test_images is None) != (test_labels is None):
        missing = "test_images" if test_images is None else "test_labels"
        raise InputError(f"The test set of '{name}' needs images and labels, but {missing} is missing.")
    names, labels = number_labels(train_labels, test_labels, name, classes)
    images = [as_array(train_images, "train_images")]
    if test_images is not None:
        images.append(as_array(test_images, "test_images"))
    files = [as_paths(part) for part in images]
    if any(part is not None for part in files):
        return _open_files(files, labels, name, names, image_size)
    pixels, like, said = [], None, []
    for what, part, numbers in zip(_IMAGES, images, labels, strict=False):
        made, level = as_pixels(part, what, len(numbers), image_size, like)
        if part.dtype != np.uint8:
            like = level
            said.append(f"{what} holds {part.dtype} values, taken as levels from 0 to {255 * level:.0f}.")
        pixels.append(scaled(Images(made, torch.tensor(numbers, dtype=torch.int64)), image_size))
    train, test = pixels[0], pixels[1] if len(pixels) > 1 else None
    if test is not None and test.shape != train.shape:
        raise InputError(
            f"The test images of '{name}' have shape {test.shape} but the training images {train.shape} (channels, "
            "height, width): store both alike."
        )
    for sentence in said:
        warnings.warn(sentence, stacklevel=2)
    mean, std = channel_statistics(train)
    padding = reflect_padding(train.shape[-1], 0.875)
    return Dataset(name, names, train, test, mean, std, {"padding": padding, "horizontal_flip": True})


def number_labels(
    train_labels: Values, test_labels: Values | None, name: str, classes: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[list[int], list[int]]]:
    """The names of the classes, and the numbers of the training and the test images."""
    train = as_labels(train_labels, "train_labels")
    test = [] if test_labels is None else as_labels(test_labels, "test_labels")
    texts = any(isinstance(label, str) for label in train)
    if test and texts != any(isinstance(label, str) for label in test):
        raise InputError(f"Only the {'train' if texts else 'test'}_labels of '{name}' are texts: use texts for both.")
    if texts:
        names = tuple(classes) if classes is not None else tuple(number_classes(filter(None, map(str, train))))
        train, test = (number(map(str, part), names, "class") for part in (train, test))
    else:
        train, test = [int(label) for label in train], [int(label) for label in test]
        names = tuple(classes) if classes is not None else _numbered(train, name)
    _check_classes(train, names, "train_labels", lowest=-1)
    _check_classes(test, names, "test_labels", lowest=0)
    return names, (train, test)


def _open_files(
    files: Sequence[list[Path] | None],
    labels: tuple[list[int], list[int]],
    name: str,
    classes: tuple[str, ...],
    image_size: int | None,
) -> Dataset:
    """The data set of image files, which are read like those of a table."""
    places: list[list[Place]] = []
    seen: set[str] = set()
    for what, part, numbers in zip(_IMAGES, files, labels, strict=False):
        if part is None:
            raise InputError(f"{what} holds no paths, but other images of '{name}' are files: give paths of all.")
        if len(part) != len(numbers):
            raise InputError(f"{what} holds {len(part)} images for {len(numbers)} labels: give every image one label.")
        places.append([path.absolute() for path in part])
        for path in part:
            try:
                place = os.path.realpath(path)
            except ValueError as error:  # a zero byte
                raise InputError(f"{what} holds '{shortened(str(path))}', which is not a path ({error}).") from None
            if place in seen:  # an image in the training and in the test part would make any test look good
                raise InputError(f"The images of '{name}' have '{path}' twice: remove one of them.")
            seen.add(place)
    root = Path(os.path.commonpath([str(path.parent) for part in places for path in part if isinstance(path, Path)]))
    test = places[1] if len(places) > 1 else []
    listing = Listing(name, root, list(classes), places[0], labels[0], test, labels[1], opened=False)
    return read_listing(listing, image_size)


def open_npz(
    path: Path, image_size: int | None = None, *, name: str | None = None, classes: Sequence[str] | None = None
) -> Dataset:
    """The data set in the .npz file at `path`; a validation part (val_images, val_labels) is named as not used.

    Keys: train_images, train_labels and, for a test set, test_images, test_labels, each as `from_arrays` takes them.
    Without a `name`, that of the file is taken.
    """
    arrays = read_npz(path, _KEYS)
    for key in ("train_images", "train_labels"):
        if key not in arrays:
            raise missing_array(path, key, arrays)
    test_images, test_labels = arrays.get("test_images"), arrays.get("test_labels")
    if (test_images is None) != (test_labels is None):
        raise missing_array(path, "test_images" if test_images is None else "test_labels", arrays)
    for key in _IMAGES:
        if key in arrays and arrays[key].dtype.kind in "SU":  # paths: a stranger's file must not choose what is read
            raise InputError(f"In '{path}': {key} holds texts: save the pixels of the images.")
    try:
        made = from_arrays(
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
    return replace(made, unused=tuple(sorted(arrays.keys() - _KEYS)))


def _numbered(labels: Sequence[int], name: str) -> tuple[str, ...]:
    """The classes "0", "1", ... up to the largest label, all of which must occur."""
    known = sorted({label for label in labels if label >= 0})
    if not known:
        raise InputError(f"No training image of '{name}' has a label: give some of them a class number from 0.")
    if known != list(range(len(known))):
        gap = next(number for number, label in enumerate(known) if number != label)
        raise InputError(
            f"No training image of '{name}' has label {gap}, but some have label {known[-1]}: "
            f"number the {len(known)} classes from 0 to {len(known) - 1}."
        )
    return tuple(str(number) for number in known)


def _check_classes(labels: Sequence[int], classes: tuple[str, ...], what: str, lowest: int) -> None:
    if len(classes) < 2:
        raise InputError(f"{what} knows {len(classes)} class, but a classifier needs at least two.")
    for label in labels:
        if not lowest <= label < len(classes):
            found = "an image without a label" if label == -1 else label
            unlabeled = ", or -1 for unlabeled images" if lowest < 0 else ""
            raise InputError(f"{what} holds {found}: use 0 to {len(classes) - 1}{unlabeled}.")
