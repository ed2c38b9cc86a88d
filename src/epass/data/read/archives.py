"""A .zip or .tar archive of an image folder as a data set, read without unpacking it.

The archive may be a stranger's: nothing of it is written to disk, and what tries to leave it (absolute names, `..`,
links) or to blow up (members larger than any image) is refused.
"""

from __future__ import annotations

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from ...errors import InputError, shortened
from ...files import as_text
from .decode import Packed
from .folder import DEEPEST, LABELED, Problems, list_layout, walk
from .listing import Listing, Member, Parts, Place

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")
LARGEST_MEMBER = 512 * 1024**2  # bytes: an uncompressed image of as many pixels as Pillow decodes is smaller
GROWTH = 20  # images hardly shrink in an archive
SMALL = 2**28  # bytes that any archive may unpack to
FEW, LEAST_PACKED = 10_000, 64  # members that any archive may have, and of more, the bytes that each takes at least
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)  # one file of an archive
_SIDE_FILES = "__MACOSX"  # what macOS adds to the archives it makes


class _Limited:
    """Keeps tarfile from reading a header as large as somebody claims it to be."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self.tell, self.seek = file.tell, file.seek

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_MEMBER:
            raise tarfile.ReadError(f"a header asks for {size} bytes")
        parts = []  # a plain file would take the memory for all of them first
        while size and (part := self._file.read(min(size, 2**20))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class _Found(NamedTuple):
    name: str
    size: int
    is_dir: bool
    is_link: bool
    open: Callable[[], IO[bytes] | None]


def is_archive(path: Path) -> bool:
    """Whether a file is called like an archive."""
    return path.name.lower().endswith(ENDINGS)


def list_archive(path: Path) -> Listing:
    """The images in an archive of a folder in one of the layouts that folders have.

    A single folder around all others, as archiving programs like to make it, is passed over.
    """
    root: Place = _tree(path)
    while root.is_dir():
        entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
        if len(entries) != 1 or entries[0].name.lower() in LABELED:
            break
        if not any(entry.is_dir() for entry in entries[0].iterdir()):
            break
        root = entries[0]
    ending = next(ending for ending in ENDINGS if path.name.lower().endswith(ending))
    listing = list_layout(root, as_text(path.name[: -len(ending)]), path)
    return replace(listing, read=read_members)


def list_archived(path: Path, problems: Problems) -> list[Place]:
    """Every image in an archive, wherever it lies in there; what cannot be used is put into `problems`."""
    root = _tree(path)
    return list(walk(root, root, problems))


def _tree(path: Path) -> Member:
    ways: list[Parts] = []
    packed, unpacked = path.stat().st_size, 0
    with _members(path) as members:
        for count, found in enumerate(members, 1):
            parts = _parts(path, found)
            unpacked += found.size
            if unpacked > max(SMALL, GROWTH * packed) or count > FEW + packed // LEAST_PACKED:
                raise InputError(f"'{path}' holds far more than a file of {packed:,} bytes should: do not use it.")
            ways.append((*parts, "") if found.is_dir else parts)
    ways.sort()
    for way, following in pairwise(ways):
        is_file = way[-1] != ""
        if is_file and way == following:
            raise _refused(path, "/".join(way), "is there twice")
        if is_file and following[: len(way)] == way:
            raise _refused(path, "/".join(following), "is a file and a folder")
    return Member(path, (), 0, [way for way in ways if way[0] != _SIDE_FILES])


def _parts(path: Path, found: _Found) -> Parts:
    """The names on the way to a member, if it is one that may be read."""
    place = PurePosixPath(found.name)
    if place.is_absolute() or ".." in place.parts or "\0" in found.name:
        raise _refused(path, found.name, "leads out of it")
    if found.is_link:
        raise _refused(path, found.name, "is a link or a device")
    if found.size > LARGEST_MEMBER:
        raise _refused(path, found.name, f"has {found.size:,} bytes, more than the {LARGEST_MEMBER:,} of any image")
    if not place.parts and not found.is_dir:
        raise _refused(path, found.name, "has no name")
    if len(place.parts) > DEEPEST:
        raise _refused(path, found.name, f"lies more than {DEEPEST} folders deep")
    return place.parts


def _refused(path: Path, name: str, reason: str) -> InputError:
    return InputError(
        f"'{shortened(name)}' in '{path}' {reason}: make the archive again from plain folders and images."
    )


def read_members(files: Sequence[Place]) -> Iterator[tuple[int, Packed]]:
    """The members in the order in which they lie in their archive: compressed ones cannot be read in any other."""
    position = {file.parts: number for number, file in enumerate(files) if isinstance(file, Member)}
    (path,) = {file.archive for file in files if isinstance(file, Member)}
    with _members(path) as members:
        for found in members:
            number = position.pop(_parts(path, found), None)
            if number is None:
                continue
            try:
                with found.open() or BytesIO() as stream:
                    packed = Packed(str(files[number]), stream.read(found.size))
            except _DAMAGED as error:
                if path.suffix.lower() != ".zip":  # behind it, nothing can be found
                    raise
                packed = Packed(str(files[number]), b"", str(error) or type(error).__name__)
            yield number, packed
    if position:
        raise InputError(f"'{path}' changed while it was read: wait until it is complete.")


@contextmanager
def _members(path: Path) -> Iterator[Iterable[_Found]]:
    try:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as file:
                yield _in_zip(path, file)
        else:
            with (
                path.open("rb") if path.suffix.lower() == ".tar" else gzip.open(path) as opened,
                tarfile.open(fileobj=cast(Any, _Limited(opened)), mode="r:") as tar,
            ):
                yield _in_tar(tar)
    except (*_DAMAGED, tarfile.TarError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened
            raise
        raise InputError(f"'{path}' cannot be read as an archive ({error}): make or download it again.") from error


def _in_zip(path: Path, file: zipfile.ZipFile) -> Iterator[_Found]:
    for info in file.infolist():
        if info.flag_bits & 1:
            raise InputError(f"'{info.filename}' in '{path}' is encrypted: make the archive without a password.")
        is_link = stat.S_ISLNK(info.external_attr >> 16)
        name = info.filename.replace("\\", "/")  # as some programs on Windows write it
        yield _Found(name, info.file_size, name.endswith("/"), is_link, partial(file.open, info))


def _in_tar(file: tarfile.TarFile) -> Iterator[_Found]:
    for info in file:
        is_link = not (info.isfile() or info.isdir())
        yield _Found(info.name, info.size, info.isdir(), is_link, partial(file.extractfile, info))
    # Python's reader takes an archive that breaks off, or rubbish within it, for the end.
    assert file.fileobj is not None
    file.fileobj.seek(file.offset)
    if file.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it breaks off")
