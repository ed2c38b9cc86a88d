"""A data set with what its files say: names, sizes, color modes, and those that cannot be read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..dataset import Dataset
from .decode import FORMATS, ProgressCallback
from .folder import list_folder
from .listing import names_inside
from .pixels import read_listing


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
    """A data set that is open already: images that are no files are called by their positions."""
    test_count = len(dataset.test) if dataset.test is not None else 0
    train_names = dataset.train_names or tuple(f"train {number}" for number in range(len(dataset.train)))
    test_names = dataset.test_names or tuple(f"test {number}" for number in range(test_count))
    return Survey(dataset, train_names, test_names, (), dataset.skipped)


def survey_folder(path: Path, image_size: int = 32, progress: ProgressCallback | None = None) -> Survey:
    """The data set that `open_dataset` would return if the files that cannot be read were removed."""
    listing = list_folder(path)
    dataset = read_listing(listing, image_size, progress, skip_unreadable=True)
    skipped = {name for name, _ in dataset.skipped}
    named = list(zip(names_inside(listing.files, path), listing.files, strict=True))
    readable = [(name, file) for name, file in named if name not in skipped and isinstance(file, Path)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        files = tuple(pool.map(lambda pair: _look(*pair), readable))
    return Survey(dataset, dataset.train_names, dataset.test_names, files, dataset.skipped)


def _look(name: str, path: Path) -> ImageFile:
    from PIL import Image

    with Image.open(path, formats=FORMATS) as file:  # reads the header only
        return ImageFile(name, *file.size, file.mode)
