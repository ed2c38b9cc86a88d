"""Images of unknown classes, wherever they lie: what a trained model is asked about.

They are decoded chunk by chunk, so that their number is limited by no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import InputError
from ...files import from_home
from .archives import is_archive, list_archived, read_members
from .decode import decode_readable, to_gray
from .folder import Problems, named, walk
from .kinds import EXTENSIONS, is_not_read, only_others
from .listing import Place, Read, from_disk, name_inside, names_inside, nothing_at
from .square import check_image_size
from .tables import is_table, list_named

if TYPE_CHECKING:
    from ..stream.device_jpeg import DeviceDecoder

ROWS = 512  # images in a chunk


class Chunk(NamedTuple):
    """Some of the images, decoded; or vectors."""

    positions: list[int]  # of the images among the names, ascending
    images: Any  # uint8 (n, C, H, W), a tensor if a device decoded them and else an array; or vectors (n, D)
    unreadable: dict[int, str]  # position and reason


@dataclass(frozen=True, eq=False)
class FoundImages:
    """Image files of any classes and how to get at them."""

    names: list[str]  # paths inside of the folder or archive, or beside the table or file; those of `problems` last
    files: list[Place]
    read: Read
    problems: list[str]  # why the others cannot be used
    passed_over: Mapping[str, int] = field(default_factory=dict)  # image files of kinds that are not read, by ending

    def __len__(self) -> int:
        return len(self.names)

    @property
    def are_files(self) -> bool:
        """Whether each can be read by itself, which is what a device decodes."""
        return self.read is from_disk

    def chunks(
        self,
        image_size: int,
        channels: int,
        rows: int = ROWS,
        only: Container[int] | None = None,
        device: DeviceDecoder | None = None,
    ) -> Iterator[Chunk]:
        """The images as training decodes them, `rows` at a time; members of an archive in the order of the archive.

        Args:
            image_size: Side of the square images.
            channels: 1 for gray images, 3 for color.
            rows: Images in a chunk, those that cannot be read included.
            only: The numbers of the chunks that are wanted, from 0; the others are passed over, and not decoded.
            device: What decodes JPEG files, if these are files of their own.
        """
        check_image_size(image_size)
        if device is not None and self.files:
            yield from self._by_device(image_size, channels, rows, only, device)
            return
        stream = iter(self.read(self.files)) if self.files else iter(())
        for number, start in enumerate(range(0, len(self.files) or 1, rows)):
            some = islice(stream, rows)
            if only is not None and number not in only:
                deque(some, maxlen=0)  # where the next ones are in an archive is known only then
                continue
            readable, reasons = decode_readable(some, image_size)
            reasons |= self._at_the_end(start + rows)
            positions = sorted(readable)
            pixels = np.empty((len(positions), 3, image_size, image_size), np.uint8)
            for row, position in enumerate(positions):
                pixels[row] = readable[position]
            yield Chunk(positions, pixels if channels == 3 else to_gray(pixels), dict(sorted(reasons.items())))

    def _at_the_end(self, end: int) -> dict[int, str]:
        """Why others cannot be used, which is said with the last chunk."""
        first = len(self.files)
        return {first + place: reason for place, reason in enumerate(self.problems)} if end >= first else {}

    def _by_device(
        self, image_size: int, channels: int, rows: int, only: Container[int] | None, device: DeviceDecoder
    ) -> Iterator[Chunk]:
        from ..stream.tolerant import read_by_device

        files = [file for file in self.files if isinstance(file, Path)]
        starts = range(0, len(files), rows)
        wanted = [start for number, start in enumerate(starts) if only is None or number in only]
        groups = [range(start, min(start + rows, len(files))) for start in wanted]
        with closing(read_by_device(files, image_size, device, groups)) as found:
            for group, (positions, pixels, reasons) in zip(groups, found, strict=True):
                images = pixels if channels == 3 else to_gray(pixels.cpu().numpy())
                yield Chunk(positions, images, reasons | self._at_the_end(group.start + rows))


def find_images(path: str | Path, *, path_column: str | None = None) -> FoundImages:
    """All images under a folder, in an archive, in the rows of a table, or a single image file.

    What cannot be used, such as a link that leads out of the folder, is among them: their chunks say why.

    Args:
        path: The folder, the .zip or .tar archive, the .csv, .tsv or .parquet table, or the image.
        path_column: What the column of paths in a table may be called besides its usual names.
    """
    place = from_home(path)
    read: Read = from_disk
    files: list[Place]
    problems = Problems()
    missing: list[tuple[str, str]] = []  # rows of a table
    if str(path) and place.is_dir():  # an empty name would mean the current folder
        files = list(walk(place, place, problems))
    elif not place.is_file() or not str(path):
        raise nothing_at(path)
    elif is_archive(place):
        files, read = list_archived(place, problems), read_members
    elif is_table(place):
        files, missing = list_named(place, path_column)
    elif place.suffix.lower() in EXTENSIONS:
        files = [place]
    elif is_not_read(place):
        raise InputError(f"'{path}' is an image of a kind that is not read: convert it to JPEG.")
    else:
        raise InputError(
            f"'{path}' is neither an image nor holds any: give an image file, a folder, a .zip or .tar archive, or a "
            ".csv or .parquet table of paths."
        )
    missing += named(problems, place)
    if not files and not missing:
        if problems.passed:
            raise only_others(f"'{path}'", problems.passed)
        endings = ", ".join(sorted(ending.removeprefix(".") for ending in EXTENSIONS))
        raise InputError(f"'{path}' holds no image: give one with files of these kinds: {endings}.")
    names = names_inside(files, place) + [name for name, _ in missing]
    return FoundImages(names, files, read, [reason for _, reason in missing], problems.passed)


def find_named(path: str | Path, names: Sequence[str]) -> FoundImages:
    """The images with these names in a folder, in an archive or beside a table, as data sets call them."""
    place = from_home(path)
    if not is_archive(place):
        home = place if place.is_dir() else place.parent
        return FoundImages(list(names), [home / name for name in names], from_disk, [])
    members = {name_inside(file, place): file for file in list_archived(place, Problems())}
    return FoundImages(list(names), [members[name] for name in names if name in members], read_members, [])
