"""Decoded images on disk, so that the same files are decoded once.

An entry is one .npy file with a checksum behind the array. It is written under a temporary name and renamed, so that
processes never see half of it, and two that write the same one do not meet. A writer holds a lock on its temporary
file: one without a lock was left by a process that was killed, and is removed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...files import from_home
from .decode import DECODER

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
KEPT_DAYS = 30  # since an entry was last used
_CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Entry:
    """The name under which the pixels of some files are kept."""

    source: str  # the place the files were found in and the size of the images: it has one entry
    content: str  # every file and the decoder
    shape: tuple[int, ...]

    @classmethod
    def of(cls, root: Path, marks: Iterable[str], shape: tuple[int, ...]) -> Entry:
        """The entry of files below `root`; a mark changes with its file."""
        import PIL

        source = hashlib.sha256(f"{root.resolve()}\0{shape[1:]}".encode(errors="surrogateescape"))
        content = hashlib.sha256(f"{DECODER}\0{PIL.__version__}\0{shape}".encode())
        for mark in marks:
            content.update(mark.encode(errors="surrogateescape") + b"\n")
        return cls(source.hexdigest()[:16], content.hexdigest(), shape)

    @property
    def file_name(self) -> str:
        return f"{self.source}-{self.content}.npy"

    def checksum(self, pixels: Pixels) -> bytes:
        """Of the pixels and of what they are: bytes of another entry do not pass."""
        number = zlib.crc32(pixels.data.cast("B"), zlib.crc32(self.content.encode()))
        return number.to_bytes(_CHECKSUM_BYTES, "little")


def cache_folder() -> Path | None:
    """EPASS_CACHE, or `epass` in the user's cache folder; None where EPASS_CACHE is "off", or nobody has a home."""
    chosen = os.environ.get("EPASS_CACHE", "")
    if chosen:
        return None if chosen == "off" else from_home(chosen).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else from_home("~/.cache")
    return base / "epass" if base.is_absolute() else None  # the user of a container may be known by a number only


def load(entry: Entry) -> Tensor | None:
    """The pixels of an entry, mapped from disk; None where they are not there or not whole."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / entry.file_name
    try:
        # Copy on write: whoever writes to these pixels changes neither the file nor what other processes see.
        pixels = np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open("rb") as file:
            file.seek(-_CHECKSUM_BYTES, os.SEEK_END)
            checksum = file.read()
        intact = pixels.dtype == np.uint8 and pixels.shape == entry.shape and entry.checksum(pixels) == checksum
        if not intact:
            return None
        os.utime(path)
    except (OSError, ValueError, EOFError):  # absent or damaged: decoding replaces it
        return None
    return torch.from_numpy(pixels)


def store(entry: Entry, pixels: Tensor) -> None:
    """Keep `pixels`, if the disk lets us: without the cache everything works, more slowly."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the images may be nobody else's business
        _tidy(folder, entry)
        _write(folder / entry.file_name, entry, pixels.numpy())
    except OSError as error:
        warnings.warn(
            f"The decoded images cannot be kept in '{folder}' ({error.strerror}): next time they are decoded again, "
            "unless EPASS_CACHE names a better folder.",
            stacklevel=2,
        )


def _write(path: Path, entry: Entry, pixels: Pixels) -> None:
    number, name = tempfile.mkstemp(prefix=f".{entry.source}.", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with open(number, "wb") as file:
            _lock(number)
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(pixels))
            file.write(pixels.data.cast("B"))
            file.write(entry.checksum(pixels))
            file.flush()
            # The checksum finds what a power cut may do: no need to wait for the disk. And in the moment before it was
            # locked, another process may have taken the file for an abandoned one: then that one keeps the images.
            with suppress(FileNotFoundError):
                partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _tidy(folder: Path, entry: Entry) -> None:
    """Remove what killed writers left, what this entry replaces, and what nobody uses."""
    for partial in folder.glob(".*.part"):
        with suppress(FileNotFoundError), partial.open("r+b") as file:  # its writer may rename it at any moment
            if _lock(file.fileno()):
                partial.unlink()
    for path in folder.glob("*.npy"):
        with suppress(FileNotFoundError):
            replaced = path.name.startswith(f"{entry.source}-") and path.name != entry.file_name
            if replaced or time.time() - path.stat().st_mtime > KEPT_DAYS * 24 * 3600:
                path.unlink()


def _lock(number: int) -> bool:
    """Lock an open file until it is closed or its process ends, unless somebody else does."""
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another process, or this disk knows no locks
        return False
    return True
