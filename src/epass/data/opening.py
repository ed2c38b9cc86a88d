"""A data set by its name, or by where its files are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isclass
from pathlib import Path

from ..errors import InputError, nearest, unknown
from ..extensions import Kind, is_code, load, takes
from ..files import from_home
from .dataset import Dataset
from .read.archives import is_archive, list_archive
from .read.arrays import open_npz
from .read.decode import ProgressCallback
from .read.digits import open_digits
from .read.folder import list_folder
from .read.formats import FORMATS, closest, recognize
from .read.listing import Listing, nothing_at
from .read.peek import typical_side
from .read.pixels import Notice, read_listing
from .read.resize import resized
from .read.tables import is_table, list_table
from .read.vector_files import holds_vectors
from .read.vectors import open_vectors
from .stream.decoder import ask_for
from .stream.device_jpeg import Decoder
from .stream.disk import Streaming


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
READER = Kind(
    "data reader",
    lambda found: not isclass(found) and takes(found, None),
    "a function of the image size that returns a Dataset",
)


def open_dataset(
    name_or_path: str,
    *,
    image_size: int | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
    streaming: Streaming = False,
    decoder: Decoder = "auto",
    skip_unreadable: bool = False,
    labels_needed: bool = True,
    measured: bool = True,
) -> Dataset:
    """The data set of a built-in name, in the files of its owner, or of your own images in one of many shapes.

    Args:
        name_or_path: A name in `DATASETS`, which wins over a path (write `./digits` for a folder of that name), or a
            path. A folder or file that is one of `FORMATS` is recognized by the names of its files; else it is a
            folder or an archive of images, a table of paths, an .npz file, or vectors instead of images in a table
            or an .npz or .npy file. Or code of yours that opens images.
        image_size: Side of the square images; without it, that of the files, and 32 for folders, archives and tables.
        path_column: The column of a table that names the image files, if it has no usual name.
        label_column: The column of a table that holds the labels, if it has no usual name.
        progress: Called with (images done, images in all) while images are decoded.
        notice: Called with a sentence when the images came from the cache instead.
        streaming: Whether images stay on disk and are decoded while a run needs them: True, False, or "auto" for
            those that would take more than half of the free memory. Folders, tables and photos can be streamed.
        decoder: Who decodes what is streamed: "cpu", "device" for a CUDA device that decodes JPEG files, to pixels that
            differ a little, or "auto" for that device if it can and no cache holds the pixels already.
        skip_unreadable: Whether files of folders, archives and tables that cannot be read are left out and named in
            `Dataset.skipped`; otherwise they are an error that counts them.
        labels_needed: Whether two classes must have labels. Otherwise folders, archives, tables and vectors may have
            labels of one class or none, and images for tests may be left out: what to label is chosen so.
        measured: Whether streamed images of one's own need a mean and deviation, which take the CPU a pass over them.
    """
    if name_or_path in DATASETS:
        _refuse_streaming(name_or_path, streaming, decoder)
        return DATASETS[name_or_path].open(image_size)
    started = time.perf_counter()
    path = from_home(name_or_path)
    original = recognize(path) if name_or_path and path.exists() else None
    if original is not None:
        if not original.scales:
            _refuse_streaming(name_or_path, streaming, decoder)
            return resized(original.read(path), image_size)
        size = {} if image_size is None else {"image_size": image_size}
        return ask_for(original.read(path, **size, progress=progress, streaming=streaming), decoder)
    if holds_vectors(name_or_path, path_column=path_column):
        _refuse_streaming(name_or_path, streaming, decoder)
        if image_size is not None:
            raise InputError(f"'{name_or_path}' holds vectors, which have no image size: leave out --image-size.")
        return open_vectors(path, label_column, labels_needed=labels_needed)
    listing = _list_images(name_or_path, path_column, label_column, labels_needed)
    if listing is not None:
        dataset = read_listing(
            listing, image_size, progress, notice, started, streaming, skip_unreadable, decoder, measured
        )
        return ask_for(dataset, decoder)
    if path.is_file():
        if path.suffix.lower() == ".npz":
            _refuse_streaming(name_or_path, streaming, decoder)
            return open_npz(path, image_size)
        raise InputError(
            f"'{path}' is not a data set: give a folder of images, a .zip or .tar archive of one, a .csv or .parquet "
            "table, or an .npz file."
        )
    if is_code(name_or_path):
        _refuse_streaming(name_or_path, streaming, decoder)
        return _opened(name_or_path, load(name_or_path, READER)(image_size))
    if len(path.parts) > 1 or path.suffix:
        raise nothing_at(path)
    if any(name_or_path == entry.name for entry in FORMATS):
        raise InputError(f"'{name_or_path}' is not built in: give the path of its original files (see epass datasets).")
    if nearest(name_or_path, DATASETS):
        raise unknown("data set, folder or file", name_or_path, DATASETS)
    raise nothing_at(name_or_path)


def side_of_photos(name_or_path: str, *, path_column: str | None = None) -> int | None:
    """The shorter side of most images of a folder, archive or table of one's own; None of everything else."""
    path = from_home(name_or_path)
    if name_or_path in DATASETS or not name_or_path or not path.exists() or recognize(path) is not None:
        return None
    if holds_vectors(name_or_path, path_column=path_column):
        return None
    try:
        listing = _list_images(name_or_path, path_column, None, labels_needed=False)
    except InputError:  # whoever reads the images says what is wrong with them
        return None
    return None if listing is None else typical_side(listing)


def _list_images(
    name_or_path: str, path_column: str | None, label_column: str | None, labels_needed: bool
) -> Listing | None:
    """The images of a folder, archive or table, if it is one."""
    path = from_home(name_or_path)
    if name_or_path and path.is_dir():  # an empty name would mean the current folder
        _refuse_incomplete(path)
        return list_folder(path, labels_needed=labels_needed)
    if path.is_file() and is_archive(path):
        return list_archive(path)
    if path.is_file() and is_table(path):
        return list_table(path, path_column, label_column, labels_needed=labels_needed)
    return None


def _opened(name: str, found: object) -> Dataset:
    """What a reader of yours returned, which must be a data set."""
    if not isinstance(found, Dataset):
        raise InputError(f"'{name}' returned {type(found).__name__}: use epass.from_arrays to make a Dataset.")
    return found


def _refuse_streaming(name: str, streaming: Streaming, decoder: Decoder) -> None:
    """Arrays are in few files, which are read as a whole."""
    if streaming is True:
        raise InputError(
            f"'{name}' does not consist of image files, and only these can be streamed: leave data.streaming out."
        )
    if decoder == "device":
        raise InputError(f"'{name}' does not consist of image files: leave data.decoder out.")


def _refuse_incomplete(folder: Path) -> None:
    """Name what is missing where some files of a known data set lie, unless there may be classes beside them."""
    found = closest(folder)
    if found is not None and not any(entry.is_dir() for entry in folder.iterdir()):
        entry, missing = found
        raise InputError(f"'{folder}' looks like {entry.name}, but lacks {', '.join(missing)}: add the original files.")
