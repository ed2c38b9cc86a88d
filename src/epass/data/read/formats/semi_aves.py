"""Semi-Aves: photos of 200 species of birds, and many more of the same and of other species without a label.

J.-C. Su and S. Maji, "The Semi-Supervised iNaturalist-Aves Challenge at FGVC7 Workshop", arXiv:2103.06937.
"""

from __future__ import annotations

from pathlib import Path

from ....errors import InputError
from ...dataset import Dataset
from ...stream.disk import Streaming
from ..decode import ProgressCallback
from .layout import check_layout
from .photos import IMAGENET_MEAN, IMAGENET_STD, PhotoList, crop_padding, open_photos
from .textfile import read_lines, whole_number

NAME = "semi_aves"
TEXT = "l_train.txt, val.txt, u_train_in.txt, test.txt and, if wanted, u_train_out.txt, with the images they name"

_LABELED = ("l_train.txt", "val.txt")
_UNLABELED, _OTHER_SPECIES, _TEST = "u_train_in.txt", "u_train_out.txt", "test.txt"
_MOST_CLASSES = 200


def missing(folder: Path) -> list[str]:
    """The list files that Semi-Aves needs and `folder` lacks."""
    return [name for name in (*_LABELED, _UNLABELED, _TEST) if not (folder / name).is_file()]


def read(
    folder: Path,
    *,
    other_species: bool = False,
    image_size: int = 224,
    progress: ProgressCallback | None = None,
    streaming: Streaming = False,
) -> Dataset:
    """Semi-Aves: the labeled images of both labeled lists, then the unlabeled ones.

    Args:
        folder: Where the lists and the folders of images lie.
        other_species: Also take the unlabeled images of species that are not among the classes.
        image_size: Side of the square images.
        progress: Called with (images done, images in all).
        streaming: As in `open_dataset`.
    """
    check_layout(NAME, folder, missing(folder))
    train = PhotoList([], [])
    for name in _LABELED:
        _append(train, folder, name)
    number = max(train.labels) + 1
    for label in range(number):
        if label not in train.labels:
            raise InputError(
                f"No image in '{folder / _LABELED[0]}' has label {label}, but some have label {number - 1}: expected "
                f"images of all classes from 0."
            )
    if number < 2:
        raise InputError(f"All images in '{folder / _LABELED[0]}' have label 0: expected two classes or more.")
    for name in (_UNLABELED, _OTHER_SPECIES)[: 1 + other_species]:
        _append(train, folder, name, labeled=False)
    test = PhotoList([], [])
    _append(test, folder, _TEST, most=number)
    return open_photos(
        NAME,
        [str(label) for label in range(number)],
        train,
        test,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augment={"padding": crop_padding(image_size), "horizontal_flip": True},
        image_size=image_size,
        progress=progress,
        streaming=streaming,
    )


def _append(listing: PhotoList, folder: Path, name: str, *, labeled: bool = True, most: int = _MOST_CLASSES) -> None:
    """Add the images of a list, which has a path and a label in every line."""
    list_file, root = folder / name, folder.resolve()
    lines = read_lines(list_file)
    if not lines:
        raise InputError(f"'{list_file}' is empty: expected a path and a label in every line.")
    for number, line in enumerate(lines, 1):
        words = line.rsplit(maxsplit=1)
        if len(words) != 2 or not _is_inside(folder / words[0], root):
            raise InputError(
                f"Line {number} of '{list_file}' says '{line[:80]}': expected the path of an image in '{folder}' and "
                "a label."
            )
        # Whoever knows the classes of unlabeled images may have them in the list; here nobody does.
        known = whole_number(words[1], list_file, number, 0 if labeled else -1, most - 1 if labeled else 999)
        listing.paths.append(folder / words[0])
        listing.labels.append(known if labeled else -1)


def _is_inside(path: Path, root: Path) -> bool:
    """A list may name files of its data set only."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # a name that no file can have, or links in a circle
        return False
