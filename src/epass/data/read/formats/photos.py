"""Data sets whose images are single files, decoded to squares of one size."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ....errors import InputError
from ...dataset import Dataset
from ...images import Images, ImageSource
from ...stream.disk import Files, Streaming, is_streamed, stream
from ..decode import ProgressCallback, decode_all
from ..folder import Problem, Problems, list_classes, named, walk
from ..listing import cannot_be_used
from ..square import SMALLEST, check_image_size

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PhotoList(NamedTuple):
    """Image files and their labels."""

    paths: list[Path]
    labels: list[int]


def list_class_files(folder: Path, root: Path) -> tuple[list[str], list[Path], list[int]]:
    """The classes in a folder on disk, the image files in them, and the labels of these."""
    problems = Problems()
    classes, places, labels = list_classes(folder, root, problems)
    _check(problems, root)
    return classes, [place for place in places if isinstance(place, Path)], labels


def list_files(folder: Path, root: Path) -> list[Path]:
    """Every image file under a folder on disk."""
    problems = Problems()
    places = list(walk(folder, root, problems))
    _check(problems, root)
    return [place for place in places if isinstance(place, Path)]


def _check(problems: Sequence[Problem], root: Path) -> None:
    """A published data set is used whole or not at all."""
    if problems:
        raise cannot_be_used(named(problems, root), root)


def open_photos(
    name: str,
    classes: Sequence[str],
    train: PhotoList,
    test: PhotoList,
    *,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    augment: Mapping[str, object],
    image_size: int,
    progress: ProgressCallback | None,
    streaming: Streaming,
) -> Dataset:
    """The data set of the files in `train` and `test`, all in memory unless they are streamed."""
    check_image_size(image_size)
    paths = [*train.paths, *test.paths]
    parts: tuple[ImageSource, ImageSource]
    if is_streamed((len(paths), 3, image_size, image_size), streaming):
        parts = stream(Files(paths, image_size), train.labels, test.labels)
    else:
        _check_memory(name, len(paths), image_size, _memory())
        found, reasons = decode_all(enumerate(paths), len(paths), image_size, progress)
        if reasons:
            raise cannot_be_used([(str(paths[place]), reasons[place]) for place in sorted(reasons)], Path(), name)
        pixels, split = torch.from_numpy(found), len(train.paths)
        parts = Images(pixels[:split], torch.tensor(train.labels)), Images(pixels[split:], torch.tensor(test.labels))
    return Dataset(
        name=name,
        classes=tuple(classes),
        train=parts[0],
        test=parts[1],
        mean=mean,
        std=std,
        augment=augment,
    )


def crop_padding(image_size: int) -> int:
    """The padding that moves a crop as far as one of 224 pixels out of 256: 16 pixels, or as much of another size."""
    return (int(image_size / 0.875) - image_size) // 2


def _memory() -> int | None:
    """Bytes of main memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _check_memory(name: str, count: int, image_size: int, memory: int | None) -> None:
    """Systems promise more memory than they have and end the program later, without a word."""
    needed = 3 * image_size**2 * count
    if memory is None or needed <= memory:
        return
    largest = int((memory / (3 * count)) ** 0.5)
    choice = f"choose an image size of at most {largest}" if largest >= SMALLEST else "leave images out"
    raise InputError(
        f"The {count:,} images of '{name}' need {needed / 1e9:,.0f} GB at {image_size} x {image_size} pixels, and this "
        f"machine has {memory / 1e9:,.0f} GB: {choice}, or leave them on disk (data.streaming=true)."
    )
