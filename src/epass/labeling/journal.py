"""Records that are on disk before anybody is told of them.

A line holds one record with its checksum. What lines add up to is written to a snapshot from time to time; the journal
then begins anew with its last lines, which are kept for undoing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from ..errors import InputError
from ..files import force_to_disk, write_atomically
from ..untrusted import parse_json, read_limited

LONG = 2**22  # bytes from which on a journal is worth compacting
KEPT = 2**20  # bytes of lines that stay, although the snapshot holds what they say
LARGEST = 2**31  # bytes
_HEAD, _OF, _TAIL = b'{"sum":"', b'","of":', b"}\n"


def seal(value: Any) -> bytes:
    """A line of JSON that says whether it is whole."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"".join([_HEAD, b"%08x" % crc32(text), _OF, text, _TAIL])


def unseal(line: bytes) -> Any:
    """The value in a sealed line; a ValueError if it is not as it was written."""
    begin = len(_HEAD) + 8 + len(_OF)
    text = line[begin : -len(_TAIL)]
    if line[:begin] != b"".join([_HEAD, b"%08x" % crc32(text), _OF]) or line[begin + len(text) :] != _TAIL:
        raise ValueError("it is not as it was written")
    return parse_json(text)


class Journal:
    """The journal and the snapshot in a folder that belongs to this process."""

    def __init__(self, home: Path, notice: Callable[[str], None]) -> None:
        self.path, self.snapshot = home / "journal.jsonl", home / "snapshot.json"
        self.state: dict[str, Any] = self._read_snapshot()
        self.size = 0  # bytes of whole lines
        self.records: list[dict[str, Any]] = self._read(notice)
        self._file = self._open()
        self._failed = ""

    def append(self, record: dict[str, Any]) -> None:
        """Return when the record will survive a power cut; if it cannot be written, nothing of it stays."""
        if not self._in_place():
            self._failed = "it is no longer there"
        if self._failed:
            raise self._unwritten(self._failed, "stop the studio, see to the disk, and start it again")
        line, done = seal(record), 0
        try:
            while done < len(line):
                done += os.write(self._file, line[done:])
        except OSError as problem:
            self._take_back()
            raise self._unwritten(str(problem.strerror), "make room on the disk, and answer again") from None
        try:
            os.fsync(self._file)
        except OSError as problem:  # nobody knows what the disk holds now, and asking again would not tell
            self._take_back()
            self._failed = str(problem.strerror)
            raise self._unwritten(
                str(problem.strerror), "stop the studio, see to the disk, and start it again"
            ) from None
        self.size += len(line)

    def write_snapshot(self, state: dict[str, Any]) -> None:
        """Write what all records so far add up to; others may be appended meanwhile."""
        write_atomically(self.snapshot, seal(state))

    def shorten(self, covered: int) -> None:
        """Begin anew without what the snapshot holds, which are the first `covered` bytes, but for their last lines."""
        begin = max(0, covered - KEPT)
        with self.path.open("rb") as file:
            file.seek(begin)
            lines = file.read(self.size - begin)
        if begin:
            lines = lines[lines.index(b"\n", 0, covered - begin) + 1 :]
        write_atomically(self.path, lines)
        os.close(self._file)
        self._file, self.size = self._open(), len(lines)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def damaged(self, where: str) -> InputError:
        """What to say about a journal that cannot be followed."""
        kept = f"goes back to '{self.snapshot}' and labels.csv" if self.state else "goes back to labels.csv"
        return InputError(f"{where} of '{self.path}' is damaged: put back a copy of it, or delete it, which {kept}.")

    def _open(self) -> int:
        number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        force_to_disk(self.path.parent)
        return number

    def _in_place(self) -> bool:
        """Whether the open file still has its name: what is written to a deleted one is gone with us."""
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except OSError:
            return False

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file, self.size)
        except OSError as problem:
            self._failed = str(problem.strerror)

    def _unwritten(self, reason: str, advice: str) -> InputError:
        return InputError(f"This could not be written to '{self.path}' ({reason}) and did not happen: {advice}.")

    def _read_snapshot(self) -> dict[str, Any]:
        if not self.snapshot.exists():
            return {}
        try:
            state = unseal(read_limited(self.snapshot, LARGEST))
            if not isinstance(state, dict) or not isinstance(state.get("n"), int):
                raise ValueError("it is something else")
        except ValueError as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(
                f"'{self.snapshot}' is damaged: put back a copy of it, or move the folder '{self.path.parent}' away to "
                "begin with the labels in labels.csv."
            ) from None
        return state

    def _read(self, notice: Callable[[str], None]) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = read_limited(self.path, LARGEST).split(b"\n")
        rest = lines.pop()  # what stands behind the last end of a line
        lines = [line + b"\n" for line in lines] + ([rest] if rest else [])
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            try:
                record = unseal(line)
                if not isinstance(record, dict) or not isinstance(record.get("n"), int):
                    raise ValueError("it is something else")
            except ValueError:
                if number < len(lines):
                    raise self.damaged(f"Line {number:,} of {len(lines):,}") from None
                # Every line was on disk before the next one began, so only the last can be half written.
                notice(f"The last line of '{self.path.name}' was never written to its end: that answer is not kept.")
                os.truncate(self.path, self.size)
                force_to_disk(self.path)
                break
            before = records[-1]["n"] if records else min(record["n"] - 1, self.state.get("n", 0))
            if record["n"] != before + 1:
                raise self.damaged(f"Line {number:,} of {len(lines):,}")
            records.append(record)
            self.size += len(line)
        if records and records[-1]["n"] < self.state.get("n", 0):  # an old copy: the next number would leave a gap
            os.truncate(self.path, 0)
            records, self.size = [], 0
        return records
