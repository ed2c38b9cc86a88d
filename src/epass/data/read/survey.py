"""A data set with what its files say: names, sizes, color modes, and those that cannot be read.

Training stops at a damaged image. Before training, one wants to know all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import InputError
from ...files import as_text
from ..dataset import Dataset
from ..images import Images
from .decode import FORMATS, ProgressCallback, decode, without_name
from .folder import list_folder
from .listing import dataset_from_listing
from .resize import check_image_size


class ImageFile(NamedTuple):
    """What the header of an image file says."""

    name: str  # relative to the data folder
    width: int
    height: int
    mode: str  # as Pillow calls it: RGB, L for gray, P for a palette, ...


@dataclass(frozen=True, eq=False)
class Survey:
    """The images of a data set that can be read, by name, and the files that cannot."""

    dataset: Dataset
    train_names: tuple[str, ...]
    test_names: tuple[str, ...]
    files: tuple[ImageFile, ...]  # in the order of the names, training images first; empty where there are no files
    unreadable: tuple[tuple[str, str], ...]  # (name, reason)


def survey_arrays(dataset: Dataset) -> Survey:
    """A data set that is in memory: images that are no files are called by their positions."""
    test_count = len(dataset.test) if dataset.test is not None else 0
    train_names = dataset.train_names or tuple(f"train {number}" for number in range(len(dataset.train)))
    test_names = dataset.test_names or tuple(f"test {number}" for number in range(test_count))
    return Survey(dataset, train_names, test_names, (), ())


def survey_folder(path: Path, image_size: int = 32, progress: ProgressCallback | None = None) -> Survey:
    """The data set that `open_dataset` would return if the files that cannot be read were removed."""
    check_image_size(image_size)
    listing = list_folder(path)
    on_disk = [[place for place in part if isinstance(place, Path)] for part in (listing.train, listing.test)]
    train, train_files, bad = _read(on_disk[0], listing.labels, path, image_size, progress)
    test, test_files, also_bad = _read(on_disk[1], listing.test_labels, path, image_size, progress)
    readable = set(train.labels.tolist())
    for number, name in enumerate(listing.classes):
        if number not in readable:
            raise InputError(f"None of the labeled images of class '{name}' in '{path}' can be read: replace them.")
    if listing.test and not test_files:
        raise InputError(f"None of the test images in '{path}' can be read: replace them.")
    train_names, test_names = (tuple(file.name for file in files) for files in (train_files, test_files))
    dataset = dataset_from_listing(listing, train, test if listing.test else None, train_names, test_names)
    return Survey(dataset, train_names, test_names, (*train_files, *test_files), (*bad, *also_bad))


def _read(
    paths: Sequence[Path], labels: Sequence[int], root: Path, image_size: int, progress: ProgressCallback | None
) -> tuple[Images, list[ImageFile], list[tuple[str, str]]]:
    """Images and headers of the files that can be read; name and reason of the others."""
    pixels = torch.empty(len(paths), 3, image_size, image_size, dtype=torch.uint8)
    files: list[ImageFile] = []
    kept: list[int] = []
    unreadable: list[tuple[str, str]] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda path: _look(path, root, image_size), paths)
        for number, (path, seen) in enumerate(zip(paths, found, strict=True)):
            if isinstance(seen, str):
                unreadable.append((as_text(path.relative_to(root)), seen))
            else:
                pixels[len(files)], header = seen
                files.append(header)
                kept.append(labels[number])
            if progress is not None:
                progress(number + 1, len(paths))
    return Images(pixels[: len(files)], torch.tensor(kept, dtype=torch.int64)), files, unreadable


def _look(path: Path, root: Path, image_size: int) -> tuple[Tensor, ImageFile] | str:
    """The pixels and the header of a file, or why it cannot be read."""
    from PIL import Image

    try:
        pixels = decode(path, image_size)
    except InputError as problem:
        return without_name(problem, path)
    with Image.open(path, formats=FORMATS) as file:  # reads the header only
        return pixels, ImageFile(as_text(path.relative_to(root)), *file.size, file.mode)
