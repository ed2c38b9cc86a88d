"""What only a process of its own can show: exit codes, signals, import time, terminals."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from calling import Epass

COMMAND = [sys.executable, "-c", "from epass.cli import main; main()"]
LIGHT = """
import sys
from epass.cli import main
try:
    main()
except SystemExit:
    pass
print(sorted({"torch", "sklearn", "matplotlib"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["recipes"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


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
        _, error = process.communicate(timeout=60)

    assert process.returncode == 130
    assert error == "Stopped: continue with epass train --resume --out 'a run'\n"
    assert not Path("a run/results.json").exists()

    assert epass(*shlex.split(error.partition("epass ")[2])).code == 0
    assert epass(*line, "undisturbed").code == 0
    assert Path("a run/model.safetensors").read_bytes() == Path("undisturbed/model.safetensors").read_bytes()


@pytest.mark.parametrize(("given", "used"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_wait_without_spinning_unless_the_user_wants_it(given: str | None, used: str) -> None:
    script = "import atexit, os; atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY']))\n" + COMMAND[-1]
    chosen = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given is not None:
        chosen["OMP_WAIT_POLICY"] = given
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True, env=chosen
    )

    assert done.stdout.splitlines()[-1] == used
