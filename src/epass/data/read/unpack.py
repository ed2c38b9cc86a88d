"""Archives of strangers: only plain files, only inside of the folder, and no more than expected."""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ...errors import InputError
from .fetch import full_disk

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".gz")
GROWTH = 20  # images hardly shrink in an archive: what grows more than this is made to fill the disk
FILES = 500_000
CHUNK = 1 << 20


class _Member(NamedTuple):
    name: str
    folder: bool
    plain: bool  # neither a link nor a device
    open: Callable[[], IO[bytes]]


def is_packed(path: Path) -> bool:
    """Whether `unpack` knows what to do with this file."""
    return path.name.lower().endswith(ARCHIVES)


def unpack(archive: Path, folder: Path, *, most_bytes: int | None = None, most_files: int = FILES) -> None:
    """Write the files of `archive` below `folder`; whoever calls this gives a new folder and removes it on failure.

    Args:
        archive: A .tar, .tar.gz, .tgz or .zip file, or the .gz of a single one.
        folder: Where the files go.
        most_bytes: How much all of them may hold; without it, `GROWTH` times the archive.
        most_files: How many there may be, folders included.
    """
    most_bytes = GROWTH * archive.stat().st_size if most_bytes is None else most_bytes
    left = most_bytes
    try:
        with _members(archive) as members:
            for number, member in enumerate(members, 1):
                if number > most_files:
                    raise InputError(f"'{archive}' holds more than {most_files:,} files: it is not what it should be.")
                target = _place(archive, member, folder)
                if member.folder:
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                left -= _copy(member, target, left)
                if left < 0:
                    raise InputError(f"'{archive}' holds more than {most_bytes:,} bytes: it is not what it should be.")
    except FileExistsError as problem:
        raise InputError(f"'{archive}' holds '{problem.filename}' twice: it is damaged.") from problem
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, RuntimeError) as problem:
        raise InputError(f"'{archive}' cannot be unpacked ({problem}): it is damaged.") from problem
    except OSError as problem:
        raise full_disk(problem, folder) or problem from problem


def _copy(member: _Member, target: Path, most: int) -> int:
    """Bytes written; one more than `most` at the utmost, since what an archive says about its sizes may be wrong."""
    written = 0
    with member.open() as source, target.open("xb") as out:
        while chunk := source.read(min(CHUNK, most + 1 - written)):
            out.write(chunk)
            written += len(chunk)
    return written


def _place(archive: Path, member: _Member, folder: Path) -> Path:
    """Where a member goes, if it may."""
    parts = PurePosixPath(member.name).parts
    # a backslash or a colon would be a folder or a drive on another system
    if not parts or member.name.startswith("/") or ".." in parts or set(member.name) & set("\\:\0"):
        raise InputError(f"'{archive}' wants to write to '{member.name}', outside of its folder: do not use it.")
    if not member.plain:
        raise InputError(f"'{archive}' holds the link or device '{member.name}' instead of a file: do not use it.")
    return folder.joinpath(*parts)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    name = archive.name.lower()
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zip_members(zipped)
    elif name.endswith((".tar.gz", ".tgz", ".tar")):
        with tarfile.open(archive) as tape:
            yield _tar_members(tape)
    else:
        inner = archive.name[: -len(".gz")]
        yield iter([_Member(inner, folder=False, plain=True, open=partial(_open_gzip, archive))])


def _open_gzip(archive: Path) -> IO[bytes]:
    return gzip.open(archive)  # type: ignore[return-value]  # it is one, though its stub does not say so


def _zip_members(zipped: zipfile.ZipFile) -> Iterator[_Member]:
    for info in zipped.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archive was made on Windows
        plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
        yield _Member(info.filename, info.is_dir(), plain, partial(zipped.open, info))


def _tar_members(tape: tarfile.TarFile) -> Iterator[_Member]:
    for info in tape:
        yield _Member(info.name, info.isdir(), info.isreg() or info.isdir(), partial(_open_tar, tape, info))


def _open_tar(tape: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = tape.extractfile(info)
    assert file is not None  # only links and devices have none, and these were refused
    return file
