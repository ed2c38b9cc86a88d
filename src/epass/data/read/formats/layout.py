"""What the original files of a data set are called, how large they are, and whether they are whole."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import InputError
from ...dataset import Dataset, channel_statistics
from ...images import Images

LARGEST_FILE = 2**30  # bytes of a file whose size is not published: all that are read at once are smaller
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class File:
    """A file as the owner of the data distributes it; size and checksum where they are published."""

    name: str
    size: int | None = None
    md5: str | None = None
    aliases: tuple[str, ...] = ()  # other names of the same content, such as that of a compressed copy

    def within(self, folder: Path) -> Path | None:
        """Where the file is, under any of its names."""
        return next((folder / name for name in (self.name, *self.aliases) if (folder / name).is_file()), None)


@dataclass(frozen=True)
class Layout:
    """Either all `files` in one folder, or one of `archives`, each of which holds everything."""

    text: str  # for people
    files: tuple[File, ...] = ()
    archives: tuple[File, ...] = ()

    def missing(self, path: Path) -> list[str]:
        """The names that are not at `path`, a folder or one of the files; nothing if the data set can be read there."""
        if self.archive(path) is not None:
            return []
        folder = self.folder(path)
        if not self.files or (path.is_file() and folder == path):
            return [file.name for file in self.files or self.archives[:1]]
        return [file.name for file in self.files if file.within(folder) is None]

    def folder(self, path: Path) -> Path:
        """The folder of a path that names one of the files, and any other path as it is."""
        names = {name for file in self.files for name in (file.name, *file.aliases)}
        return path.parent if path.name in names and path.is_file() else path

    def archive(self, path: Path) -> Path | None:
        """The archive that `path` is, or that it holds if it is a folder without others inside."""
        if path.is_file():
            return path if any(file.name == path.name for file in self.archives) else None
        found = [file.within(path) for file in self.archives]
        archives = [archive for archive in found if archive is not None]
        if not archives or any(entry.is_dir() for entry in path.iterdir()):
            return None  # a folder of classes may hold any other file
        if len(archives) > 1:
            raise InputError(f"'{path}' holds {_listed(archives)}: give the path of one of these files.")
        return archives[0]

    def contents(self, path: Path) -> dict[str, bytes]:
        """Every one of `files` by its name, in their order, checked."""
        archive = self.archive(path)
        if archive is not None:
            return self._unpacked(archive)
        self.require(path)
        return {file.name: read_checked(self.folder(path), file) for file in self.files}

    def require(self, path: Path) -> None:
        """Refuse a folder that lacks a file."""
        lacking = self.missing(path)
        if lacking:
            raise InputError(f"'{path}' lacks {_listed(lacking)}: put the original files there.")

    def _unpacked(self, archive: Path) -> dict[str, bytes]:
        whole = next(file for file in self.archives if file.name == archive.name)
        read_checked(archive.parent, whole)
        wanted = {file.name: file for file in self.files}
        found: dict[str, bytes] = {}
        try:
            with tarfile.open(archive) as packed:
                for member in packed:
                    file = wanted.get(PurePosixPath(member.name).name)
                    if file is None or not member.isfile():
                        continue
                    place = f"{archive}/{member.name}"
                    check_file_size(place, member.size, file)  # before it is unpacked into memory
                    stream = packed.extractfile(member)
                    data = b"" if stream is None else stream.read()
                    check_sum(place, data, file)
                    found[file.name] = data
        except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"'{archive}' is damaged or no archive of the kind its name says: get it again.") from None
        lacking = [name for name in wanted if name not in found]
        if lacking:
            raise InputError(f"The archive '{archive}' lacks {_listed(lacking)}: get it again.")
        return {name: found[name] for name in wanted}  # an archive may have any order


@dataclass(frozen=True)
class Format:
    """A data set in the files of its owner, as `open_dataset` and `epass datasets` know it."""

    name: str
    layout: Layout
    find: Callable[[Path], Sequence[str]]  # what is missing at a path: all names if it is something else
    read: Callable[..., Dataset]  # given the path
    scales: bool = False  # whether `read` decodes photos and so takes `image_size` and `progress`


def check_layout(name: str, folder: Path, missing: Sequence[str]) -> None:
    """Refuse a folder that lacks something."""
    if missing:
        raise InputError(f"'{folder}' is not a complete {name} data set: it lacks {', '.join(missing)}.")


def read_checked(folder: Path, file: File) -> bytes:
    """The bytes of a file that is there and has the published size and checksum."""
    path = file.within(folder)
    if path is None:
        raise InputError(f"'{folder}' lacks {file.name}: put the original files there.")
    check_file_size(str(path), path.stat().st_size, file)
    data = path.read_bytes()
    check_sum(str(path), data, file)
    return data


def check_file_size(place: str, size: int, file: File) -> None:
    """Refuse a size that the file does not have."""
    if size > max(LARGEST_FILE, file.size or 0):
        raise InputError(f"'{place}' has {size:,} bytes, far more than the original: get it again.")
    if file.size is not None and size != file.size:
        raise InputError(f"'{place}' has {size:,} bytes, but the original has {file.size:,}: get it again.")


def check_sum(place: str, data: bytes, file: File) -> None:
    """Refuse data that differs from the file."""
    if file.md5 is None:
        return
    found = md5(data)
    if found != file.md5:
        raise InputError(f"'{place}' has the MD5 checksum {found}, but the original has {file.md5}: get it again.")


def md5(data: bytes) -> str:
    """The checksum that owners of data sets publish; it guards against damage, not against malice."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def labeled_images(place: Path, pixels: Array, labels: Array, num_classes: int) -> Images:
    """Images of (N, C, H, W) pixels, whose labels are checked."""
    if not len(labels):
        raise InputError(f"'{place}' holds no image: get it again.")
    if len(labels) != len(pixels):
        raise InputError(f"'{place}' holds {len(pixels)} images, but {len(labels)} labels: get it again.")
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise InputError(
            f"'{place}' holds the label {wrong[0]}, but there are only 0 to {num_classes - 1}: get it again."
        )
    return Images(_tensor(pixels), _tensor(labels.astype(np.int64)))


def dataset_from_arrays(
    name: str,
    classes: Sequence[str],
    train: Images,
    test: Images,
    augment: Mapping[str, object],
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Dataset:
    """A data set with the published mean and deviation of its channels, or, without `statistics`, the measured ones."""
    mean, std = channel_statistics(train.pixels) if statistics is None else statistics
    return Dataset(name, tuple(classes), train, test, mean, std, augment)


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array, order="C"))  # a copy: what was read from bytes may not be written to


def _listed(names: Sequence[object]) -> str:
    shown = [str(name) for name in names[:4]]
    return ", ".join(shown) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
