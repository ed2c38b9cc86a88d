"""One process in a run folder at a time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others out of `folder`. The system ends a lock with its process, however that dies.

    The folder itself is locked, too, since people delete files of which they do not know what they are for.
    """
    path = folder / LOCK
    number = _take(path)
    try:
        whole = _take_folder(folder)
        try:
            yield
        finally:
            os.close(whole)  # first: whoever comes next takes the file, then the folder
    finally:
        path.unlink(missing_ok=True)  # while it is still locked: afterwards it could be somebody else's
        os.close(number)


def is_held(folder: Path) -> bool:
    """Whether a process trains in a folder.

    The lock is touched only where its owner seems to live: then nobody who comes to take it finds us in the way.
    """
    import fcntl

    try:
        number = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.kill(int(os.read(number, 20)), 0)
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except PermissionError:  # the process of somebody else
        return True
    except (OSError, ValueError, OverflowError):
        return False
    finally:
        os.close(number)
    return False


def _take(path: Path) -> int:
    """The number of the open file that is locked."""
    import fcntl

    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(number, 20).decode(errors="replace").strip()
            os.close(number)
            if owner == str(os.getpid()):  # events that nobody has iterated over to their end, or another thread
                raise InputError(
                    f"'{path.parent}' is in use by this process: let the work in it end, delete what iterates over it, "
                    "or choose another folder."
                ) from None
            raise _in_use(path.parent, f"process {owner}" if owner else "another process") from None
        except OSError as problem:
            warnings.warn(
                f"'{path.parent}' cannot be locked ({problem.strerror}): let no other process train in it.",
                stacklevel=4,
            )
        if _is_at(path, number):
            os.ftruncate(number, 0)
            os.write(number, f"{os.getpid()}\n".encode())
            return number
        os.close(number)  # its owner removed it between our opening and our locking


def _take_folder(folder: Path) -> int:
    """The number of the open folder, locked where the file system can do that."""
    import fcntl

    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise _in_use(folder, f"a process whose '{LOCK}' was deleted") from None
    except OSError:  # some network file systems lock files alone
        pass
    return number


def _in_use(folder: Path, owner: str) -> InputError:
    return InputError(f"'{folder}' is in use by {owner}: wait until it ends, stop it, or choose another folder.")


def _is_at(path: Path, number: int) -> bool:
    """Whether an open file is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False
