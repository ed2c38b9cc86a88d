"""One file from its address to the disk: resumed where it broke off, checked, and only then given its name."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import InputError

Transfer = Callable[[str, int, int | None], None]  # (file, bytes so far, bytes in all where that is known)

ATTEMPTS = 5
SECONDS = 30.0  # without a byte, after which a server counts as gone
CHUNK = 1 << 18
LARGEST_UNSTATED = 2**30  # bytes of a file whose size nobody states: all of these are smaller
PASSING = {408, 425, 429}  # besides all from 500: answers that may be another one in a moment


@dataclass(frozen=True)
class RemoteFile:
    """A file at its owner's address."""

    url: str
    checksum: str  # "md5:..." or "sha256:..."
    size: int | None = None  # bytes; None where nobody states it

    @property
    def name(self) -> str:
        return urlsplit(self.url).path.rpartition("/")[2]


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows a server to another address, but neither out of the web nor from an encrypted one to a plain one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = {"https"} if urlsplit(req.full_url).scheme == "https" else {"http", "https"}
        if urlsplit(newurl).scheme not in allowed:
            raise InputError(f"'{req.full_url}' leads to '{newurl}', which is not safe to follow: try again later.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Interrupted(Exception):
    """What may go better the next time."""

    def __init__(self, reason: str, continuable: bool = True) -> None:
        super().__init__(reason)
        self.continuable = continuable  # what has arrived is worth keeping


def fetch(
    file: RemoteFile, folder: Path, progress: Transfer | None = None, pause: Callable[[float], None] = time.sleep
) -> Path:
    """The file inside of `folder`, with the right checksum, whatever was there before.

    What has arrived of it is kept as `<name>.part` when the transfer ends early, if the server can send the rest alone.
    """
    path, part = folder / file.name, folder / f"{file.name}.part"
    if path.is_file():
        if digest(path, file.checksum) == file.checksum:
            return path
        path.unlink()
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(2.0 ** (attempt - 1))
        try:
            start = _receive(file, part, progress)
        except _Interrupted as interruption:
            reason = str(interruption)
            if not interruption.continuable:
                part.unlink(missing_ok=True)
            continue
        found = digest(part, file.checksum)
        if found == file.checksum:
            part.replace(path)
            return path
        part.unlink()
        if start == 0:
            raise InputError(
                f"'{file.url}' has the checksum {found}, not {file.checksum}: it is damaged, or the owner replaced it."
            )
        reason = "what was kept of an earlier attempt did not fit to the rest"
    kept = f"the first {part.stat().st_size:,} bytes are kept and " if part.exists() else ""
    raise InputError(
        f"'{file.url}' could not be downloaded in {ATTEMPTS} attempts ({reason}): {kept}the same command tries again."
    )


def digest(path: Path, like: str) -> str:
    """The checksum of a file, of the same kind as `like`."""
    kind = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def full_disk(problem: OSError, folder: Path) -> InputError | None:
    """The sentence for a disk without room, if this is what the system complains about."""
    if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return InputError(f"The disk that holds '{folder}' is full: make room or choose another folder with --to.")


def _receive(file: RemoteFile, part: Path, progress: Transfer | None) -> int:
    """Append what is missing to `part`; returns where in the file this began."""
    have = part.stat().st_size if part.exists() else 0
    if have and have == file.size:
        return have
    answer, start = _ask(file, have)
    with answer:
        length = answer.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else file.size
        if file.size is not None and total != file.size:
            raise InputError(
                f"'{file.url}' has {total:,} bytes, not {file.size:,}: the owner replaced it, or this network answers "
                f"in the owner's place."
            )
        if total is not None and total > max(LARGEST_UNSTATED, file.size or 0):
            raise InputError(f"'{file.url}' has {total:,} bytes, more than it can have: it is not what it should be.")
        _check_room(part.parent, (total or 0) - start)
        continuable = start > 0 or answer.headers.get("Accept-Ranges", "").lower() == "bytes"
        done = _append(answer, part, start, total, continuable, lambda done: _tell(progress, file, done, total))
    if total is not None and done != total:
        raise _Interrupted(f"the server broke off after {done:,} of {total:,} bytes", continuable)
    return start


def _tell(progress: Transfer | None, file: RemoteFile, done: int, total: int | None) -> None:
    if progress is not None:
        progress(file.name, done, total)


def _append(
    answer: Any, part: Path, start: int, total: int | None, continuable: bool, tell: Callable[[int], None]
) -> int:
    """Write the body behind the first `start` bytes; returns how many there are then."""
    done = start
    try:
        with part.open("ab" if start else "wb") as out:
            tell(done)
            while total is None or done < total:  # never more than announced, whatever the server sends
                chunk = _read(answer, CHUNK if total is None else min(CHUNK, total - done), continuable)
                if not chunk:
                    break
                out.write(chunk)
                done += len(chunk)
                tell(done)
                if done > LARGEST_UNSTATED and total is None:
                    raise InputError(f"'{part.stem}' does not end: the server does not send what it should.")
            out.flush()
            os.fsync(out.fileno())
    except OSError as problem:
        raise full_disk(problem, part.parent) or problem from problem
    return done


def _read(answer: Any, count: int, continuable: bool) -> bytes:
    try:
        chunk: bytes = answer.read(count)
    except (OSError, http.client.HTTPException) as problem:
        raise _Interrupted(f"the connection broke off: {_words(problem)}", continuable) from problem
    return chunk


def _ask(file: RemoteFile, have: int) -> tuple[Any, int]:
    """The answer of the server, and where in the file its body begins: at `have`, or at 0 if it cannot do that."""
    # Compression on the way would change both length and checksum.
    headers = {"User-Agent": "epass", "Accept-Encoding": "identity"}
    ranged = {"Range": f"bytes={have}-"} if have else {}
    host = urlsplit(file.url).hostname
    try:
        opener = urllib.request.build_opener(_NoDowngrade)
        answer = opener.open(urllib.request.Request(file.url, headers=headers | ranged), timeout=SECONDS)
    except urllib.error.HTTPError as problem:
        problem.close()
        if have and problem.code == 416:  # it has no such part
            return _ask(file, 0)
        if problem.code >= 500 or problem.code in PASSING:
            raise _Interrupted(f"the server answered {problem.code} {problem.reason}") from problem
        raise InputError(
            f"The server answered {problem.code} ({problem.reason}) for '{file.url}': the owner moved or withdrew it."
        ) from problem
    except (OSError, http.client.HTTPException) as problem:  # URLError is an OSError
        cause = getattr(problem, "reason", problem)
        if isinstance(cause, socket.gaierror):
            raise InputError(
                f"The server '{host}' cannot be found ({_words(cause)}): check the network connection."
            ) from problem
        raise _Interrupted(f"'{host}' cannot be reached: {_words(cause)}") from problem
    if have and answer.status == 206:
        begin = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        if begin is None or int(begin[1]) != have:
            answer.close()
            return _ask(file, 0)
        return answer, have
    return answer, 0


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"The disk that holds '{folder}' has {free:,} bytes left of the {needed:,} that are needed: make room or "
            f"choose another folder with --to."
        )


def _words(problem: object) -> str:
    text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return text.rstrip(".") or type(problem).__name__
