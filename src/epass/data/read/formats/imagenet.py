"""ImageNet (ILSVRC 2012): 1.28 million photos, 1,000 classes.

O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 115, 2015.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ....errors import InputError, unknown
from ...dataset import Dataset
from ...stream.disk import Streaming
from ..decode import ProgressCallback
from .layout import check_layout
from .matlab import list_variables
from .photos import IMAGENET_MEAN, IMAGENET_STD, PhotoList, crop_padding, list_class_files, list_files, open_photos
from .textfile import read_lines, whole_number

NAME = "imagenet"
TEXT = (
    "train/<wnid>/*.JPEG and either val/<wnid>/*.JPEG or val/ILSVRC2012_val_*.JPEG with "
    "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt and meta.mat"
)

_DEVKIT = Path("ILSVRC2012_devkit_t12") / "data"
_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_WNID = re.compile(r"n\d{8}")
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


def missing(folder: Path) -> list[str]:
    """What ImageNet needs and `folder` lacks."""
    lacking = [f"{part}/<wnid>/*.JPEG" for part in ("train", "val") if not _has_classes(folder / part)]
    if lacking == ["val/<wnid>/*.JPEG"] and any((folder / "val").glob("ILSVRC2012_val_*.JPEG")):
        return [str(_DEVKIT / name) for name in (_TRUTH, _META) if not (folder / _DEVKIT / name).is_file()]
    return lacking


def read(
    folder: Path, *, image_size: int = 224, progress: ProgressCallback | None = None, streaming: Streaming = False
) -> Dataset:
    """ImageNet, the validation images as its test set; the classes are called by their WordNet numbers.

    Unless they are streamed, all images are decoded into memory: at 224 pixels they are 200 GB, at 64 they are 16 GB.
    """
    check_layout(NAME, folder, missing(folder))
    classes, paths, labels = list_class_files(folder / "train", folder)
    for name in classes:
        if not _WNID.fullmatch(name):
            raise InputError(
                f"The class folder '{folder / 'train' / name}' is not called by a WordNet number: expected n and "
                "8 digits."
            )
    test = _validation_classes(folder, classes) if _has_classes(folder / "val") else _validation_list(folder, classes)
    return open_photos(
        NAME,
        classes,
        PhotoList(paths, labels),
        test,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augment={"padding": crop_padding(image_size), "horizontal_flip": True},
        image_size=image_size,
        progress=progress,
        streaming=streaming,
    )


def _has_classes(folder: Path) -> bool:
    return folder.is_dir() and any(_WNID.fullmatch(entry.name) and entry.is_dir() for entry in folder.iterdir())


def _validation_classes(folder: Path, classes: list[str]) -> PhotoList:
    names, paths, labels = list_class_files(folder / "val", folder)
    for name in names:
        if name not in classes:
            raise unknown("validation class", name, classes)
    numbers = [classes.index(name) for name in names]
    return PhotoList(paths, [numbers[label] for label in labels])


def _validation_list(folder: Path, classes: list[str]) -> PhotoList:
    """The images of a folder without classes; line n of the owner's list gives the ILSVRC number of image n."""
    truth = folder / _DEVKIT / _TRUTH
    lines = read_lines(truth)
    wnids = _numbered_classes(folder / _DEVKIT / _META)
    numbers = {name: number for number, name in enumerate(classes)}
    paths = list_files(folder / "val", folder)
    labels = []
    for path in paths:
        match = _VALIDATION.fullmatch(path.name)
        line = int(match[1]) if match else 0
        if not 1 <= line <= len(lines):
            raise InputError(
                f"The image '{path}' is none of the {len(lines):,} that '{truth}' is about: expected names from "
                f"ILSVRC2012_val_{1:08}.JPEG to ILSVRC2012_val_{len(lines):08}.JPEG."
            )
        number = whole_number(lines[line - 1], truth, line, 1, max(wnids))
        wnid = wnids.get(number, f"number {number}")
        if wnid not in numbers:
            raise InputError(f"The image '{path}' is of class {wnid}, which has no folder in '{folder / 'train'}'.")
        labels.append(numbers[wnid])
    return PhotoList(paths, labels)


def _numbered_classes(path: Path) -> dict[int, str]:
    """The WordNet number of every ILSVRC number, which are in no order that could be guessed."""
    found = list_variables(path)
    if "synsets" not in found:
        raise InputError(f"'{path}' has no variable 'synsets': it holds {', '.join(found) or 'nothing'}.")
    wnids: dict[int, str] = {}
    for row in found["synsets"].table():
        number, wnid = row.get("ILSVRC2012_ID"), row.get("WNID")
        if not isinstance(wnid, str) or not _WNID.fullmatch(wnid):
            raise InputError(f"A row of 'synsets' in '{path}' has no WNID: expected n and 8 digits.")
        # Fractions and what is no number are in no range.
        if not isinstance(number, np.ndarray) or len(number) != 1 or number[0] not in range(1, 10**6):
            raise InputError(f"'{wnid}' of 'synsets' in '{path}' has no ILSVRC2012_ID: expected a number from 1.")
        wnids[int(number[0])] = wnid
    if not wnids:
        raise InputError(f"'synsets' in '{path}' has no row: unpack the development kit again.")
    return wnids
