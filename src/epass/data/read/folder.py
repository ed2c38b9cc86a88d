"""A folder of image files as a data set.

Two layouts are understood, both with folders of any depth inside a class:

- `labeled/<class>/...`, optionally `unlabeled/...` and `test/<class>/...`
- `<class>/...`, where every image has a label
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError, unknown
from .listing import Listing, Place, check_number

EXTENSIONS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def list_folder(path: Path) -> Listing:
    """The images under `path`.

    Classes and images are in the order of their paths, so it does not matter which file system they lie on.
    """
    return list_layout(path, path.resolve().name, path)


def list_layout(path: Place, name: str, root: Path) -> Listing:
    """The images under a folder on disk or in an archive, which is called `name` and was found at `root`."""
    folders = {entry.name: entry for entry in _visible(path) if entry.is_dir()}
    for folder in folders.values():
        _check_link(folder, path)
    if "labeled" in folders:
        return _list_parts(path, folders, name, root)
    for part in folders:  # otherwise such a folder would quietly become a class
        if part.lower() in ("labeled", "labelled", "unlabeled", "unlabelled", "test"):
            raise InputError(f"'{path}' has a folder '{part}' but none called 'labeled': put the classes in there.")
    classes, train, labels = list_classes(path, path)
    check_number(classes, f"The folder '{path}'")
    return Listing(name, root, classes, train, labels)


def _list_parts(path: Place, folders: dict[str, Place], name: str, root: Path) -> Listing:
    classes, train, labels = list_classes(folders["labeled"], path)
    check_number(classes, f"The folder '{folders['labeled']}'")
    if "unlabeled" in folders:
        unlabeled = list(walk(folders["unlabeled"], path))
        if not unlabeled:
            raise InputError(f"The folder '{folders['unlabeled']}' holds no image: add images or remove it.")
        train += unlabeled
        labels += [-1] * len(unlabeled)
    if "test" not in folders:
        return Listing(name, root, classes, train, labels)
    names, test, numbers = list_classes(folders["test"], path)
    for known in names:
        if known not in classes:
            raise unknown("test class", known, classes)
    return Listing(name, root, classes, train, labels, test, [classes.index(names[number]) for number in numbers])


def list_classes(folder: Place, root: Place) -> tuple[list[str], list[Place], list[int]]:
    """The classes in `folder`, the image files in them, and the labels of these."""
    paths: list[Place] = []
    labels: list[int] = []
    classes: list[str] = []
    for entry in _visible(folder):
        _check_link(entry, root)
        if _is_image(entry):
            raise InputError(f"The image '{entry}' lies outside of the class folders: move it into one of them.")
        if not entry.is_dir():
            continue
        found = list(walk(entry, root))
        if not found:
            raise InputError(f"The class folder '{entry}' holds no image: add images or remove it.")
        paths += found
        labels += [len(classes)] * len(found)
        classes.append(entry.name)
    if not classes:
        raise InputError(f"The folder '{folder}' holds no class: give every class a folder with its images.")
    return classes, paths, labels


def walk(folder: Place, root: Place) -> Iterator[Place]:
    """Every image file under `folder`, in the order of the paths."""
    for entry in _visible(folder):
        _check_link(entry, root)
        if entry.is_dir():
            yield from walk(entry, root)
        elif _is_image(entry):
            yield entry


def _visible(folder: Place) -> list[Place]:
    entries: Iterator[Place] = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(entries, key=lambda entry: entry.name)


def _is_image(path: Place) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.is_dir()


def _check_link(path: Place, root: Place) -> None:
    """A link may name an image inside the data folder: any other could show files nobody meant to, or never end."""
    if not (isinstance(path, Path) and isinstance(root, Path) and path.is_symlink()):
        return
    if not (path.is_file() and path.resolve().is_relative_to(root.resolve())):
        raise InputError(
            f"The link '{path}' leads to '{path.readlink()}': only links to files inside of '{root}' are followed."
        )
