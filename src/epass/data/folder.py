"""A folder of image files as a data set.

Two layouts are understood, both with folders of any depth inside a class:

- `labeled/<class>/...`, optionally `unlabeled/...` and `test/<class>/...`
- `<class>/...`, where every image has a label
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ..augment import reflect_padding
from ..errors import InputError, unknown
from .dataset import Dataset, channel_statistics
from .decode import Progress, decode_all
from .images import Images
from .resize import check_size

EXTENSIONS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class Listing(NamedTuple):
    """The files of a data set and their classes."""

    classes: list[str]
    train: list[Path]
    labels: list[int]  # of the training files
    test: list[Path]
    test_labels: list[int]


def open_folder(path: Path, image_size: int = 32, progress: Progress | None = None) -> Dataset:
    """The images under `path`, each cut to its central square and scaled to `image_size`.

    Classes and images are in the order of their paths, so it does not matter which file system they lie on.
    """
    check_size(image_size)
    if not path.is_dir():
        raise InputError(f"There is no folder '{path}': give the folder that holds the images.")
    files = list_files(path)
    pixels = decode_all(files.train + files.test, image_size, progress)
    train = Images(pixels[: len(files.train)], torch.tensor(files.labels))
    test = Images(pixels[len(files.train) :], torch.tensor(files.test_labels)) if files.test else None
    return assemble(path, files.classes, train, test)


def assemble(path: Path, classes: Sequence[str], train: Images, test: Images | None) -> Dataset:
    """The data set of a folder whose images are decoded."""
    mean, std = channel_statistics(train.pixels)
    return Dataset(
        name=path.resolve().name,
        classes=tuple(classes),
        train=train,
        test=test,
        mean=mean,
        std=std,
        augment={"padding": reflect_padding(train.pixels.shape[-1], 0.875), "horizontal_flip": True},
    )


def list_files(path: Path) -> Listing:
    """The classes and the image files of a folder, none of which is opened."""
    folders = {entry.name: entry for entry in _visible(path) if entry.is_dir()}
    for folder in folders.values():
        _check_link(folder, path)
    if "labeled" in folders:
        return _list_parts(path, folders)
    for name in folders:  # otherwise such a folder would quietly become a class
        if name.lower() in ("labeled", "labelled", "unlabeled", "unlabelled", "test"):
            raise InputError(f"'{path}' has a folder '{name}' but none called 'labeled': put the classes in there.")
    classes, train, labels = _list_classes(path, path)
    _check_number(path, classes)
    return Listing(classes, train, labels, [], [])


def _list_parts(path: Path, folders: dict[str, Path]) -> Listing:
    classes, train, labels = _list_classes(folders["labeled"], path)
    _check_number(folders["labeled"], classes)
    if "unlabeled" in folders:
        unlabeled = list(_walk(folders["unlabeled"], path))
        if not unlabeled:
            raise InputError(f"The folder '{folders['unlabeled']}' holds no image: add images or remove it.")
        train += unlabeled
        labels += [-1] * len(unlabeled)
    if "test" not in folders:
        return Listing(classes, train, labels, [], [])
    names, test, numbers = _list_classes(folders["test"], path)
    for name in names:
        if name not in classes:
            raise unknown("test class", name, classes)
    return Listing(classes, train, labels, test, [classes.index(names[number]) for number in numbers])


def _list_classes(folder: Path, root: Path) -> tuple[list[str], list[Path], list[int]]:
    """The classes in `folder`, the image files in them, and the labels of these."""
    paths: list[Path] = []
    labels: list[int] = []
    classes: list[str] = []
    for entry in _visible(folder):
        _check_link(entry, root)
        if _is_image(entry):
            raise InputError(f"The image '{entry}' lies outside of the class folders: move it into one of them.")
        if not entry.is_dir():
            continue
        found = list(_walk(entry, root))
        if not found:
            raise InputError(f"The class folder '{entry}' holds no image: add images or remove it.")
        paths += found
        labels += [len(classes)] * len(found)
        classes.append(entry.name)
    if not classes:
        raise InputError(f"The folder '{folder}' holds no class: give every class a folder with its images.")
    return classes, paths, labels


def _check_number(folder: Path, classes: list[str]) -> None:
    if len(classes) == 1:
        raise InputError(f"The folder '{folder}' holds the single class '{classes[0]}': add a second one.")


def _walk(folder: Path, root: Path) -> Iterator[Path]:
    """Every image file under `folder`, in the order of the paths."""
    for entry in _visible(folder):
        _check_link(entry, root)
        if entry.is_dir():
            yield from _walk(entry, root)
        elif _is_image(entry):
            yield entry


def _visible(folder: Path) -> list[Path]:
    entries = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(entries, key=lambda entry: entry.name)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.is_dir()


def _check_link(path: Path, root: Path) -> None:
    """A link may name an image inside the data folder: any other could show files nobody meant to, or never end."""
    if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(root.resolve())):
        raise InputError(
            f"The link '{path}' leads to '{path.readlink()}': only links to files inside of '{root}' are followed."
        )
