"""`epass demo` ends when it is told to, and so do the processes that train for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for the processes in /proc"),
]

COMMAND = [sys.executable, "-c", "from epass.cli import main; main()", "demo", "--steps", "100000", "--out", "out"]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that trains and would do so for long, in a process group of its own."""
    process = subprocess.Popen(
        COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    wait_until(lambda: any(tmp_path.glob("out/*/recipe.toml")), process)
    yield process
    process.kill()
    process.communicate()


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert process is None or process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.01)


def group(number: int) -> list[int]:
    """The processes of a group, except its leader and those that are dead and wait to be buried."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(of_group) == number != int(path.parent.name) and state != "Z":
            found.append(int(path.parent.name))
    return found


def test_sigterm_ends_all_processes_with_one_sentence(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    # a terminal sends Ctrl-C to all of them: those that train leave the answer to the one that started them
    os.kill(int(next(tmp_path.glob("out/*/.lock")).read_text()), signal.SIGINT)
    demo.send_signal(signal.SIGTERM)
    _, error = demo.communicate(timeout=600)
    assert (demo.returncode, error) == (143, "Stopped: finished runs are in out; the same command starts over.\n")
    wait_until(lambda: not group(demo.pid))


def test_a_training_process_that_is_killed_is_one_sentence(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    victim = int(next(tmp_path.glob("out/*/.lock")).read_text())
    os.kill(victim, signal.SIGKILL)
    _, error = demo.communicate(timeout=600)
    assert demo.returncode == 1
    assert error == (
        "Error: A training process was killed, perhaps for lack of memory; the same command starts over.\n"
    )
    wait_until(lambda: not group(demo.pid))
