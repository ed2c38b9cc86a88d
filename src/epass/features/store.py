"""Features on disk, by the image that they were made of, so that an image is embedded once.

A store is a folder whose name is a digest of everything but the image that features depend on. It holds segments, each
of which is written under a temporary name and renamed: a process that is killed leaves whole ones, and two that embed
the same images do not meet. A checksum behind a segment finds what a disk may do to it.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import numpy as np

from ..data.read.cache import KEPT_DAYS, cache_folder
from ..files import write_atomically

Rows = np.ndarray[tuple[int, ...], np.dtype[np.float16]]
KEY_BYTES, _CHECKSUM_BYTES = 16, 4
SEGMENT_SECONDS = 5.0  # of work in a segment: a process that is killed loses no more


def key_of(content: bytes | memoryview, shape: tuple[int, ...]) -> bytes:
    """The name of an image: a digest of its pixels, all of them in a row."""
    return hashlib.blake2b(content, digest_size=KEY_BYTES, person=repr(shape).encode()[:16]).digest()


class Store:
    """The features of images under one way to make them.

    Args:
        digest: Changes with anything but the image that the features depend on.
        shape: Of the features of an image.
    """

    def __init__(self, digest: str, shape: tuple[int, ...]) -> None:
        base = cache_folder()
        self.folder = None if base is None else base / f"features-{digest}"
        self.shape = shape
        self.kind = np.dtype([("key", np.uint8, (KEY_BYTES,)), ("features", np.float16, shape)])
        self.found: dict[bytes, Rows] = {}
        self.waiting: dict[bytes, Rows] = {}  # for their segment
        self.written = time.perf_counter()
        self.read()

    def read(self) -> None:
        """Find what is on disk now."""
        if self.folder is not None:
            with suppress(OSError):  # there is none yet, or it is somebody else's
                os.utime(self.folder)
                for path in sorted(self.folder.glob("*.npy")):
                    self._read(path)

    def _read(self, path: Path) -> None:
        try:
            content = path.read_bytes()
            body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
            if _checksum(body) != checksum:
                raise ValueError("damaged")
            rows = np.load(io.BytesIO(body), allow_pickle=False)
            if rows.dtype != self.kind or rows.ndim != 1:
                raise ValueError("of another kind")
        except (OSError, ValueError, EOFError):  # those images are embedded again
            return
        for row in rows:
            self.found[row["key"].tobytes()] = row["features"]

    def keep(self, keys: Sequence[bytes], features: Rows) -> None:
        """Add the features of some images."""
        self.found.update(zip(keys, features, strict=True))
        self.waiting.update(zip(keys, features, strict=True))
        if time.perf_counter() - self.written > SEGMENT_SECONDS:
            self.write()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()

    def write(self) -> None:
        """Write what waits, if the disk lets us: without it everything works, and is computed again next time."""
        waiting, self.waiting, self.written = self.waiting, {}, time.perf_counter()
        if self.folder is None or not waiting:
            return
        rows = np.empty(len(waiting), dtype=self.kind)
        rows["key"] = np.frombuffer(b"".join(waiting), dtype=np.uint8).reshape(-1, KEY_BYTES)
        rows["features"] = np.stack(list(waiting.values()))
        body = io.BytesIO()
        np.save(body, rows, allow_pickle=False)
        content = body.getvalue()
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the images may be nobody else's business
                _tidy(self.folder)
            write_atomically(self.folder / f"{uuid4().hex}.npy", content + _checksum(content))
        except OSError as error:
            warnings.warn(
                f"The features cannot be kept in '{self.folder.parent}' ({error.strerror}): next time they are "
                "computed again, unless EPASS_CACHE names a better folder.",
                stacklevel=2,
            )
            self.folder = None


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _tidy(folder: Path) -> None:
    """Remove the stores that nobody has used for long."""
    for other in folder.parent.glob("features-*"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > KEPT_DAYS * 24 * 3600:
                shutil.rmtree(other)
