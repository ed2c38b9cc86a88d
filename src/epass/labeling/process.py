"""One job: its process, and the file of its events, which tells how it is even when nobody was there."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError
from ..untrusted import LARGEST_JSON, parse_json, read_limited
from .forms import FUNCTIONS

SHOWN = 100  # events that are shown of a job, without progress


class Job:
    """One job, as its files tell it."""

    def __init__(self, home: Path, number: str, request: Mapping[str, Any]) -> None:
        self.id, self.do, self.said, self.at = number, request["do"], request["said"], request["at"]
        self.out: str = request["out"]
        self._log, self._errors = home / f"{number}.jsonl", home / f"{number}.err"
        self._place = 0  # in the file of events
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._stopping = False
        self._far: dict[str, tuple[int, int]] = {}  # steps of each run, where there are several
        self._events: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        self._progress: dict[str, Any] | None = None
        self._plan: dict[str, Any] | None = None
        self._result: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None
        self.files: dict[str, str] = {}
        self.state, self.sentence = "running", ""
        self.watched = True  # something more may come
        self.changes = 0  # how often there was something new

    @property
    def resumable(self) -> bool:
        return goes_on(self.do) and self.state not in ("running", "finished")

    def begin(self, arguments: Mapping[str, Any], remarks: list[dict[str, Any]]) -> None:
        """Start the process, which keeps the file of events locked for as long as it lives."""
        number = os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"'{self.id}' is running already.") from None
            torn = os.fstat(number).st_size and os.pread(number, 1, os.fstat(number).st_size - 1) != b"\n"
            os.write(number, b"\n" * bool(torn) + b"".join(json.dumps(line).encode() + b"\n" for line in remarks))
            with self._errors.open("ab") as errors:
                self._process = launch(number, self.do, plain_paths(arguments), only_plan=False, errors=errors)
        finally:
            os.close(number)
        self._pid, self._end, self._progress, self._stopping = self._process.pid, None, None, False
        self.state, self.sentence, self.watched = "running", "", True

    def stop(self) -> None:
        """Send what Ctrl-C sends, to the process and those that it started."""
        if not self.is_running() or self._pid is None:
            raise InputError(f"'{self.id}' is not running: there is nothing to stop.")
        self._stopping = True
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGINT)

    def is_running(self) -> bool:
        """Whether somebody holds the file of events: however a process dies, the system then lets go of it."""
        try:
            number = os.open(self._log, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(number)
        if self._process is not None:
            self._process.wait()  # for the moment that its end takes; else it stays in the list of processes
        return False

    def read(self) -> None:
        """Take in what is new."""
        if not self.watched:
            return
        before = self.state, self._stopping
        alive, lines = self.is_running(), self._new_lines()  # in this order: what is not alive writes no more
        for line in lines:
            self._take(line)
        self.watched = alive
        if alive:
            self.state, self.sentence = ("stopping" if self._stopping else "running"), ""
        elif self._end is not None:
            self.state, self.sentence = str(self._end.get("state")), str(self._end.get("sentence"))
        elif self._stopping:
            self.state, self.sentence = "stopped", "nothing was done yet."
        else:
            self.state = "failed"
            advice = "resume it, and it goes on from what it last kept" if goes_on(self.do) else "start it again"
            self.sentence = f"Its process was ended from outside, perhaps for lack of memory: {advice}."
        self.changes += bool(lines) or before != (self.state, self._stopping)

    def facts(self) -> dict[str, Any]:
        """What can be told without knowing the project."""
        return {
            "id": self.id,
            "do": self.do,
            "said": self.said,
            "started": self.at,
            "ended": None if self.watched or self._end is None else self._end.get("at"),
            "state": self.state,
            "sentence": self.sentence,
            "resumable": self.resumable,
            "progress": self._progress if self.state in ("running", "stopping") else None,
            "plan": self._plan,
            "events": list(self._events),
            "result": self._result,
            "files": [{"what": what, "name": Path(path).name} for what, path in self.files.items()],
        }

    def _new_lines(self) -> list[dict[str, Any]]:
        """Whole lines only: the last one may still be written."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._place)
                data = file.read(LARGEST_JSON)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._place += len(whole)
        return [line for line in map(parsed, whole.splitlines()) if line]

    def _take(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind == "start":
            self._pid, self._end = int(line["pid"]), None
        elif kind == "end":
            self._end = line
        elif kind == "progress":
            self._progress = self._together(line)
        else:
            self._events.append(line)
            if kind == "plan":
                self._plan = line["facts"]
            elif kind == "result":
                self._result, self.files = line, dict(line["files"])

    def _together(self, line: dict[str, Any]) -> dict[str, Any]:
        """How far all runs are, where there are several; between two reports, what the last one said."""
        if line["run"]:
            self._far[line["run"]] = line["step"], line["steps"]
            line = line | {"step": sum(far[0] for far in self._far.values())}
            line["steps"] = sum(far[1] for far in self._far.values())
        if not line["values"] and self._progress is not None and self._progress["what"] == line["what"]:
            line = line | {"values": self._progress["values"]}
        return line


def launch(
    number: int, do: str, arguments: Mapping[str, Any], *, only_plan: bool, errors: BinaryIO | None = None
) -> subprocess.Popen[bytes]:
    """A process that does this and writes its events to an open file, in a session that no Ctrl-C of ours reaches."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "epass.labeling.job", str(number)],
        stdin=subprocess.PIPE,
        stdout=errors or subprocess.DEVNULL,
        stderr=errors or subprocess.DEVNULL,
        pass_fds=(number,),
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(json.dumps({"do": do, "arguments": arguments, "only_plan": only_plan}).encode())
    return process


def read_job(home: Path, number: str) -> Job | None:
    """A job of an earlier server, unless its file is none of ours."""
    try:
        request = parse_json(read_limited(home / f"{number}.json", LARGEST_JSON))
        out = request["out"]
        if request["do"] not in FUNCTIONS or out.startswith(".") or out != os.path.basename(out):
            return None
        job = Job(home, number, {**request, "at": float(request["at"])})
        job.read()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged, or made up by somebody
        return None
    return job


def is_training(do: str) -> bool:
    """Whether it makes a run, or several, and says what it plans before it begins."""
    return "command" in inspect.signature(FUNCTIONS[do]).parameters


def goes_on(do: str) -> bool:
    """Whether it can be stopped at any time, and go on where it was."""
    return "stop" in inspect.signature(FUNCTIONS[do]).parameters


def plain_paths(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with paths as text."""

    def text(value: Any) -> Any:
        return (
            [text(one) for one in value]
            if isinstance(value, list)
            else str(value)
            if isinstance(value, Path)
            else value
        )

    return {name: text(value) for name, value in arguments.items()}


def parsed(line: bytes) -> dict[str, Any] | None:
    """A line of a file of events; nothing where a crash tore it."""
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("kind"), str) else None
