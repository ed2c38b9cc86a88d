"""Files that are either the old ones or the new ones, never something in between."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from .errors import InputError

_SEAL = "sha256"  # of the numbers, among the facts in the head of a safetensors file


def from_home(path: str | os.PathLike[str]) -> Path:
    """A path with the home folder in place of a `~` before it, also where no shell has put it there: `--out=~/runs`.

    What begins with `~` and is nobody's home is a name like others, such as `~old`.
    """
    return Path(os.path.expanduser(path))  # that of Path raises an error where there is no such person


def write_atomically(path: Path, *pieces: bytes | memoryview) -> None:
    """Write under a temporary name beside `path`, force it to disk, then rename."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path):
            partial.unlink(missing_ok=True)  # whatever lies under that name, we do not write through it
            with partial.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
    except BaseException:
        with suppress(OSError):  # of a disk that is read-only by now: the first error is the one to tell
            partial.unlink(missing_ok=True)
        raise
    force_to_disk(path.parent)  # the new name itself must survive a power cut


def sealed(save: Callable[[dict[str, str]], bytes]) -> tuple[bytes, memoryview]:
    """A safetensors file in two pieces that is known to be whole by a fact in it: the format has no checksum.

    `save` makes the file with the facts it is given. They come first in its head, so that the digest of the numbers,
    known only afterwards, can take the place of one that is as long.
    """
    none = "0" * 2 * hashlib.sha256().digest_size
    content = save({_SEAL: none})
    digest, end = _facts_and_digest(io.BytesIO(content))[1], 8 + int.from_bytes(content[:8], "little")
    return content[:end].replace(none.encode(), digest.encode(), 1), memoryview(content)[end:]


def check_seal(file: BinaryIO) -> None:
    """Raise a ValueError if a safetensors file says how its numbers sum up, and they do not; others' say nothing."""
    facts, digest = _facts_and_digest(file)
    if facts.get(_SEAL, digest) != digest:
        raise ValueError("its checksum does not match")


def _facts_and_digest(file: BinaryIO) -> tuple[dict[str, Any], str]:
    head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    digest = hashlib.sha256()
    while piece := file.read(2**20):
        digest.update(piece)
    return head.get("__metadata__", {}), digest.hexdigest()


def check_writable(path: Path) -> None:
    """Refuse what cannot become a file, before anything is computed for it."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"'{path}' cannot be written: name a file in a folder that exists.")
    _try(path, path.absolute().parent)


def check_folder(path: Path) -> None:
    """Refuse what cannot become a folder with files in it, before anything is computed for it."""
    place = next(parent for parent in (path.absolute() / "_").parents if os.path.lexists(parent))
    if not place.is_dir():
        raise InputError(f"'{path}' cannot be a folder, since '{place}' is none: choose another place.")
    _try(path, place)


def _try(path: Path, folder: Path) -> None:
    """Write into the folder of `path`: neither its permissions nor its owner tell whether that works."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise InputError(
            f"'{path}' cannot be written ({problem.strerror}): choose a place that you can write to."
        ) from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system name the file. A write to a full disk knows only a number, an opening a part."""
    try:
        yield
    except OSError as problem:
        if problem.errno is not None:
            problem.filename = as_text(path)
        raise


def as_text(name: str | Path) -> str:
    r"""The name of a file as text, even where the file system holds bytes that are none: they are written as \xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


def force_to_disk(path: Path) -> None:
    """Wait until what was written to a file, or the names in a folder, will survive a power cut."""
    number = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(number)
    finally:
        os.close(number)
