"""What only a process of its own can show: exit codes, signals, import time, terminals."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from calling import Epass, Trained

COMMAND = [sys.executable, "-c", "from epass.cli import main; main()"]
LIGHT = """
import sys
from epass.cli import main
try:
    main()
except SystemExit:
    pass
print(sorted({"torch", "numpy", "sklearn", "matplotlib"} & sys.modules.keys()))
"""
COMPILER = """
import sys
from epass.cli import main
try:
    main()
except SystemExit:
    pass
print(sorted({"torch", "torch._dynamo", "sympy"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["recipes"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_not_compiled_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    trained = ["train", "digits", "--labels", "40", "--steps", "2", "--no-guard", "--device", "cpu", "--out", "run"]
    for arguments in (trained, ["evaluate", "run", "--device", "cpu"]):
        command = [sys.executable, "-c", COMPILER, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

        assert done.stdout.splitlines()[-1] == "['torch']", arguments


SIGNALLED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Finder())
from epass.cli import main
main()
"""


@pytest.mark.parametrize("moment", ["typer", "torch"])  # the first import of a command line, and of what works
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_in_the_first_moments_is_answered(tmp_path: Path, moment: str, number: str, code: int) -> None:
    command = [sys.executable, "-c", SIGNALLED.format(moment=moment, number=number), "check", "digits"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "Stopped: nothing more is done.\n")


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_going_on_is_exact(epass: Epass) -> None:
    line = ["train", "--recipe", "tiny.toml", "--steps", "100", "--set", "plan.report_every=1", "--out"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process: another number adds up in another order
    with subprocess.Popen(
        [*COMMAND, *line, "a run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=one_thread
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("step 51/"):  # the checkpoint of step 50 is there
                process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=600)

    assert process.returncode == 130
    assert error == "Stopped: continue with epass train --resume --out 'a run'\n"
    assert not Path("a run/results.json").exists()

    assert epass(*shlex.split(error.partition("epass ")[2])).code == 0
    assert epass(*line, "undisturbed").code == 0
    assert Path("a run/model.safetensors").read_bytes() == Path("undisturbed/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "None")],
)
def test_threads_hardly_spin_unless_the_user_wants_it(given: dict[str, str], spins: str) -> None:
    script = "import atexit, os; atexit.register(lambda: print(os.environ.get('GOMP_SPINCOUNT')))\n" + COMMAND[-1]
    chosen = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True, env={**chosen, **given}
    )

    assert done.stdout.splitlines()[-1] == spins


def test_freed_memory_is_kept_where_there_is_glibc() -> None:
    # in a process of its own: it cannot be undone
    script = """
import platform
from epass.machine.cpu import keep_freed_memory

assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
if platform.libc_ver()[0] == "glibc":
    import ctypes, resource

    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    size, faults = 64 << 20, []
    for _ in range(3):
        place = libc.malloc(size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        ctypes.memset(place, 1, size)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        libc.free(place)
    print(faults[2] < 100 < faults[0] or faults)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() in ("True", "")


def closed(which: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that was started without some of its streams."""
    line = f"{shlex.join([*COMMAND, *map(str, arguments)])} {which}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True)


def test_nobody_needs_to_read_what_is_said(tmp_path: Path) -> None:
    done = closed("<&- >&-", "report", tmp_path / "none")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = closed("<&- >&-", "recipes")
    assert (done.returncode, done.stderr) == (0, "")
    done = closed("2>&-", "report", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")


def test_paths_need_an_input_that_is_open(trained: Trained) -> None:
    done = closed("<&-", "predict", trained.folder, "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: Standard input is closed: pipe the paths in, or name a folder of images in place of '-'.\n"
    )
