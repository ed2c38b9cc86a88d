"""EuroSAT, RGB version: satellite images of 64 x 64 pixels, 10 kinds of land use.

P. Helber, B. Bischke, A. Dengel and D. Borth, "EuroSAT: A Novel Dataset and Deep Learning Benchmark for Land Use and
Land Cover Classification", IEEE JSTARS 12(7), 2019.
"""

from __future__ import annotations

from pathlib import Path

from ....augment import reflect_padding
from ....errors import InputError, one_of
from ...dataset import Dataset
from ...stream.disk import Streaming
from ..decode import ProgressCallback
from .layout import check_layout
from .photos import PhotoList, list_class_files, open_photos

NAME = "eurosat"
TEXT = "AnnualCrop/*.jpg, Forest/*.jpg and the folders of the eight other classes, the RGB version"

CLASSES = (
    "AnnualCrop",
    "Forest",
    "HerbaceousVegetation",
    "Highway",
    "Industrial",
    "Pasture",
    "PermanentCrop",
    "Residential",
    "River",
    "SeaLake",
)


def missing(folder: Path) -> list[str]:
    """The class folders that EuroSAT needs and `folder` lacks; the version with 13 bands has no JPEG files in them."""
    return [f"{name}/*.jpg" for name in CLASSES if not any((folder / name).glob("*.jpg"))]


def read(
    folder: Path, *, image_size: int = 32, progress: ProgressCallback | None = None, streaming: Streaming = False
) -> Dataset:
    """EuroSAT: of every class, in the order of the file names, the last fifth (rounded down) is the test set."""
    check_layout(NAME, folder, missing(folder))
    names, paths, labels = list_class_files(folder, folder)
    for name in names:
        one_of("EuroSAT class", name, CLASSES)
    train, test = PhotoList([], []), PhotoList([], [])
    for number, name in enumerate(CLASSES):
        files = [path for path, label in zip(paths, labels, strict=True) if names[label] == name]
        if len(files) < 5:
            raise InputError(f"'{folder / name}' holds {len(files)} images: expected 5 or more, a fifth to test.")
        first_test = len(files) - len(files) // 5
        for part, share in ((train, files[:first_test]), (test, files[first_test:])):
            part.paths.extend(share)
            part.labels.extend([number] * len(share))
    return open_photos(
        NAME,
        CLASSES,
        train,
        test,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        # Seen from above, a mirrored or overturned landscape is as likely as the landscape.
        augment={"padding": reflect_padding(image_size, 0.875), "horizontal_flip": True, "vertical_flip": True},
        image_size=image_size,
        progress=progress,
        streaming=streaming,
    )
