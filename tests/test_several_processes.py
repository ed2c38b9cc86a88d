"""Several processes as people and clusters start, stop and lose them: `epass train --devices`, torchrun, signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epass.runs.lock import LOCK
from epass.training.checkpoint import checkpoints, read_checkpoint
from tiny_recipe import tiny_recipe
from training_processes import PATIENCE, Start, children, last_step, starting, timeless, wait_until

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

EPASS = (sys.executable, "-m", "epass")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1")
STEPS, EVERY = 120, 10
RECIPE = tiny_recipe(
    net={"width": 2},
    method={"name": "comatch", "threshold": 0.3, "warmup_steps": 10},
    projector={"size": 2, "out_dim": 8},
    plan={"steps": STEPS, "labeled_batch": 8, "evaluate_every": EVERY},
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(*EPASS, "train")` is a process; neither it nor its children survive the test."""
    (tmp_path / "tiny.toml").write_text(RECIPE)
    with starting((), cwd=tmp_path, stdout=subprocess.PIPE) as begin:
        yield begin


def free_port() -> str:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return str(place.getsockname()[1])


def wait_for(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    wait_until(process, lambda: last_step(folder) >= step)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=PATIENCE)
    return process.returncode, out, error


def assert_same(folder: Path, undisturbed: Path) -> None:
    for name in ("model.safetensors", "predictions.npz"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert timeless(folder) == timeless(undisturbed)
    assert [row["step"] for row in timeless(folder)] == list(range(1, STEPS + 1))


def assert_calm(error: str) -> None:
    """Nothing is wrong but that a few steps teach nothing."""
    assert all("is hardly better than guessing" in line for line in error.splitlines()), error


def test_runs_that_are_disturbed_end_in_the_same_bytes(tmp_path: Path, start: Start) -> None:
    arguments = ("train", "--recipe", "tiny.toml", "--device", "cpu", "--out")
    calm, told, killed = tmp_path / "calm", tmp_path / "told", tmp_path / "killed"

    # A process that is killed: torchrun starts the same line again, which goes on from the last checkpoint.
    agent = start(*TORCHRUN, "--master-port", free_port(), "-m", *EPASS[2:], *arguments, killed)
    wait_for(agent, killed, 2 * EVERY)
    os.kill(children(agent.pid)[-1], signal.SIGKILL)
    code, printed, error = end(agent)
    assert code == 0, error
    assert printed.count("Results\n") == 1, "one process speaks, and the first attempt had none"
    assert f"\nstep {STEPS}/{STEPS} " in printed
    assert printed.count("\nstep 1/") == 1, "the second attempt did not start anew"

    # A polite end: one checkpoint, one sentence, and the exit code of one process.
    launcher = start(*EPASS, *arguments, told, "--devices", "2")
    wait_for(launcher, told, EVERY + 3)
    launcher.send_signal(signal.SIGTERM)
    code, _, error = end(launcher)
    assert code == 143, error
    assert error == f"Stopped: continue with epass train --resume --out {told} --device cpu --devices 2\n"
    newest, *_ = checkpoints(told / "checkpoints")
    assert read_checkpoint(newest)[0] == last_step(told)
    assert not (told / LOCK).exists()
    code, _, error = end(start(*EPASS, "train", "--resume", "--device", "cpu", "--out", told, "--devices", "2"))
    assert code == 0
    assert_calm(error)

    code, printed, error = end(start(*EPASS, *arguments, calm, "--devices", "2"))
    assert code == 0
    assert_calm(error)
    assert "device      cpu, float32, 2 processes\n" in printed
    assert_same(killed, calm)
    assert_same(told, calm)


def test_the_end_of_one_process_is_the_end_of_all(tmp_path: Path, start: Start) -> None:
    launcher = start(*EPASS, "train", "--recipe", "tiny.toml", "--device", "cpu", "--out", "run", "--devices", "2")
    wait_for(launcher, tmp_path / "run", EVERY)
    first, second = children(launcher.pid)
    os.kill(second, signal.SIGKILL)
    assert end(launcher)[::2] == (
        137,
        "Error: process 1 was ended by SIGKILL; the same command with --resume goes on.\n",
    )
    assert not Path(f"/proc/{first}").exists()


def test_processes_whose_launcher_is_gone_stop_with_a_checkpoint(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "run"
    launcher = start(*EPASS, "train", "--recipe", "tiny.toml", "--device", "cpu", "--out", "run", "--devices", "2")
    wait_for(launcher, folder, EVERY + 3)
    orphans = children(launcher.pid)
    launcher.kill()
    deadline = time.monotonic() + 600
    while any(Path(f"/proc/{orphan}").exists() for orphan in orphans) and time.monotonic() < deadline:
        time.sleep(0.05)
    newest, *_ = checkpoints(folder / "checkpoints")
    assert read_checkpoint(newest)[0] == last_step(folder) < STEPS


def test_a_mistake_is_said_once(tmp_path: Path, start: Start) -> None:
    line = (*EPASS, "train", "--recipe", "tiny.toml", "--device", "cpu", "--out", "run", "--devices", "3")
    sentence = "Error: A labeled batch of 8 images cannot be shared equally by 3 processes: use 6 or 9.\n"
    assert end(start(*line)) == (2, "", sentence)
    assert not (tmp_path / "run").exists()
