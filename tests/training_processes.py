"""Training in processes of their own: starting them, watching what they write, and letting none survive a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Start = Callable[..., "subprocess.Popen[str]"]
PATIENCE = 600  # seconds, for a machine that does other things too: every process loads torch first


@contextmanager
def starting(command: Sequence[str], *, cwd: Path | None = None, stdout: int = subprocess.DEVNULL) -> Iterator[Start]:
    """`start(*arguments)` runs the command with them; neither it nor what it started survives."""
    started = []

    def begin(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        for child in children(process.pid):
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()


def children(parent: int) -> list[int]:
    """The processes that a process started, in this order."""
    listing = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(word) for word in listing.read_text().split()] if listing.exists() else []


def wait_until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """Until something is so, while the process lives."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)  # whoever looks all the time takes a core from the process


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics, as somebody sees them who looks while the run writes: without the last line, which may be torn."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def last_step(folder: Path) -> int:
    """The step of the last row."""
    found = rows(folder)
    return int(found[-1]["step"]) if found else 0


def timeless(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what another run of the same kind has otherwise."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows(folder)]
