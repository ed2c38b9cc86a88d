"""Readers of data sets in the files of their owners, one module for each format.

A module offers what a `Format` consists of: a name, a `Layout` that says which files belong together and how to tell
that they are whole, `find(path)`, which names the files that are missing there, and `read(path)`, which makes a
`Dataset` of them or says in an `InputError` which file is wrong. To add a format, add its module to the table.
"""

from __future__ import annotations

from pathlib import Path

from ....errors import InputError
from . import cifar, eurosat, idx, imagenet, medmnist, semi_aves, stl10, svhn
from .layout import File, Format, Layout

__all__ = ["FORMATS", "File", "Format", "Layout", "closest", "recognize"]

FORMATS: tuple[Format, ...] = (
    *cifar.FORMATS,
    *idx.FORMATS,
    *medmnist.FORMATS,
    Format(svhn.NAME, Layout(svhn.TEXT), svhn.missing, svhn.read),
    Format(stl10.NAME, Layout(stl10.TEXT), stl10.missing, stl10.read),
    Format(eurosat.NAME, Layout(eurosat.TEXT), eurosat.missing, eurosat.read, scales=True),
    Format(imagenet.NAME, Layout(imagenet.TEXT), imagenet.missing, imagenet.read, scales=True),
    Format(semi_aves.NAME, Layout(semi_aves.TEXT), semi_aves.missing, semi_aves.read, scales=True),
)


def recognize(path: Path) -> Format | None:
    """The format whose files are all at `path`, a folder or one of the files; None for data of another kind."""
    found = [entry for entry in FORMATS if not entry.find(path)]
    if len(found) > 1:
        names = ", ".join(entry.name for entry in found)
        raise InputError(f"'{path}' holds several data sets ({names}): give the path of one of their files.")
    return found[0] if found else None


def closest(path: Path) -> tuple[Format, list[str]] | None:
    """The format of which the fewest files are missing at `path`, and these; None if no file of any format is there."""
    found = []
    for entry in FORMATS:
        missing, whole = list(entry.find(path)), len(entry.layout.files)
        if len(missing) < whole:
            found.append((len(missing) / whole, entry, missing))
    return min(found, key=lambda candidate: candidate[0])[1:] if found else None
