"""Images of unknown classes, wherever they lie: what a trained model is asked about.

They are decoded chunk by chunk, so that their number is limited by no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from ...errors import InputError
from ..images import Images
from .archives import is_archive, list_archived, read_members
from .channels import with_channels
from .decode import ProgressCallback, decode_readable
from .folder import EXTENSIONS, walk
from .listing import Place, Read, from_disk, name_inside, nothing_at
from .resize import check_image_size
from .tables import is_table, list_named


class Chunk(NamedTuple):
    """Some of the images, decoded."""

    positions: list[int]  # of the images among the names, ascending
    images: Images  # without labels
    unreadable: dict[int, str]  # position and reason


@dataclass(frozen=True, eq=False)
class FoundImages:
    """Image files of any classes and how to get at them."""

    names: list[str]  # paths inside of the folder or archive, or beside the table or file
    files: list[Place]
    read: Read

    def __len__(self) -> int:
        return len(self.files)

    def chunks(
        self, image_size: int, channels: int, rows: int = 512, progress: ProgressCallback | None = None
    ) -> Iterator[Chunk]:
        """The images as training decodes them, `rows` at a time; members of an archive in the order of the archive.

        Args:
            image_size: Side of the square images.
            channels: 1 for gray images, 3 for color.
            rows: Images in a chunk, those that cannot be read included.
            progress: Called with (images done, images in all) after every chunk.
        """
        check_image_size(image_size)
        stream = iter(self.read(self.files))
        for start in range(0, len(self), rows):
            readable, reasons = decode_readable(islice(stream, rows), image_size)
            positions = sorted(readable)
            nothing = torch.empty(0, 3, image_size, image_size, dtype=torch.uint8)
            pixels = torch.stack([readable[position] for position in positions]) if positions else nothing
            labels = torch.full((len(positions),), -1)
            yield Chunk(positions, Images(with_channels(pixels, channels), labels), dict(sorted(reasons.items())))
            if progress is not None:
                progress(min(start + rows, len(self)), len(self))


def find_images(path: str | Path, *, path_column: str | None = None) -> FoundImages:
    """All images under a folder of any depth, in an archive, in the rows of a table, or a single image file.

    Args:
        path: The folder, the .zip or .tar archive, the .csv, .tsv or .parquet table, or the image.
        path_column: What the column of paths in a table may be called besides its usual names.
    """
    place = Path(path).expanduser()
    read: Read = from_disk
    files: list[Place]
    if str(path) and place.is_dir():  # an empty name would mean the current folder
        files = list(walk(place, place))
    elif not place.is_file() or not str(path):
        raise nothing_at(path)
    elif is_archive(place):
        files, read = list_archived(place), read_members
    elif is_table(place):
        files = list_named(place, path_column)
    elif place.suffix.lower() in EXTENSIONS:
        files = [place]
    else:
        raise InputError(
            f"'{path}' is neither an image nor holds any: give an image file, a folder, a .zip or .tar archive, or a "
            ".csv or .parquet table of paths."
        )
    if not files:
        endings = ", ".join(sorted(ending.removeprefix(".") for ending in EXTENSIONS))
        raise InputError(f"'{path}' holds no image: give one with files of these kinds: {endings}.")
    return FoundImages([name_inside(file, place) for file in files], files, read)
