"""Files to uint8 tensors, splits, sampling and the feed of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, unknown
from .arrays import from_arrays, open_npz
from .dataset import Dataset
from .decode import Progress
from .digits import open_digits
from .feed import Feed, Selection, render
from .folder import open_folder
from .images import Images, ImageSource, join
from .sampling import Order, Shuffle
from .splits import Split, balanced_split, divide, open_set_labels
from .survey import ImageFile, Survey, survey_arrays, survey_folder

__all__ = [
    "DATASETS",
    "BuiltIn",
    "Dataset",
    "Feed",
    "ImageFile",
    "ImageSource",
    "Images",
    "Order",
    "Progress",
    "Selection",
    "Shuffle",
    "Split",
    "Survey",
    "balanced_split",
    "divide",
    "from_arrays",
    "join",
    "open_dataset",
    "open_set_labels",
    "render",
    "survey_arrays",
    "survey_folder",
]


@dataclass(frozen=True)
class BuiltIn:
    """A data set that is known by name."""

    open: Callable[[int | None], Dataset]  # given the image size, or None for that of the files
    summary: str
    needs: str


DATASETS: dict[str, BuiltIn] = {
    "digits": BuiltIn(
        open_digits,
        summary="1,797 handwritten digits, gray, 8 x 8 pixels, 10 classes",
        needs="nothing: the images come with scikit-learn",
    ),
}


def open_dataset(name_or_path: str, *, image_size: int | None = None, progress: Progress | None = None) -> Dataset:
    """The data set of a built-in name, in an .npz file, or in a folder of images.

    Args:
        name_or_path: A name in `DATASETS`, which wins over a path (write `./digits` for a folder of that name), or a
            path.
        image_size: Side of the square images; without it, that of the files, and 32 for folders.
        progress: Called with (images done, images in all) while a folder is read.
    """
    if name_or_path in DATASETS:
        return DATASETS[name_or_path].open(image_size)
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():  # an empty name would mean the current folder
        return open_folder(path, 32 if image_size is None else image_size, progress)
    if path.is_file():
        if path.suffix.lower() != ".npz":
            raise InputError(f"'{path}' is neither a folder of images nor an .npz file: give one of these.")
        return open_npz(path, image_size)
    if len(path.parts) > 1 or path.suffix:
        nearest = next(parent for parent in path.absolute().parents if parent.is_dir())
        raise InputError(f"There is no file or folder '{path}': the nearest folder that exists is '{nearest}'.")
    raise unknown("data set, folder or file", name_or_path, DATASETS)
