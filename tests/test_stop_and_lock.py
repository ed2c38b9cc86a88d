"""Two processes in one folder, and polite ends of a run, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from epass.runs.lock import LOCK
from epass.training.checkpoint import checkpoints, read_checkpoint
from tiny_recipe import tiny_recipe
from training_processes import PATIENCE, Start, rows, starting, timeless, wait_until

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from epass.cli import main; main()"]
# A process that gets a signal after so many rows: on a busy machine, whoever watches it from outside may come too late.
SIGNALLED = """
import os, signal, sys
from epass.cli import main
from epass.runs import RunFolder

append, number, left = RunFolder.append_metrics, int(sys.argv.pop(1)), int(sys.argv.pop(1))

def signalling(home, row):
    global left
    append(home, row)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), number)

RunFolder.append_metrics = signalling
main()
"""
STEPS, EVERY = 240, 7
PLAN = {"steps": STEPS, "labeled_batch": 8, "report_every": EVERY, "evaluate_every": STEPS}
RECIPE = tiny_recipe(method={"threshold": 0.3, "warmup_steps": 10}, projector={"size": 2}, plan=PLAN)
LONG = ("--steps", "100000", "--set", "plan.report_every=7")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("train", "--out", folder)` is a process; none survives the test."""
    (tmp_path / "tiny.toml").write_text(RECIPE)
    with starting(COMMAND, cwd=tmp_path) as begin:
        yield begin


@pytest.fixture
def signalled(tmp_path: Path) -> Iterator[Start]:
    """`signalled("15", "3", "train")` is a process that gets signal 15 after its third row."""
    with starting([sys.executable, "-c", SIGNALLED], cwd=tmp_path) as begin:
        yield begin


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, error = process.communicate(timeout=PATIENCE)
    told = [line for line in error.splitlines(keepends=True) if "hardly better than guessing" not in line]
    return process.returncode, "".join(told)  # a few steps teach nothing


def wait_for(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    wait_until(process, lambda: len(rows(folder)) >= count)


def test_a_run_that_is_told_to_end_keeps_every_step_and_ends_in_the_same_bytes(
    tmp_path: Path, start: Start, signalled: Start
) -> None:
    undisturbed, stopped = tmp_path / "undisturbed", tmp_path / "stopped"
    calm = start("train", "--recipe", "tiny.toml", "--device", "cpu", "--out", undisturbed)
    line: tuple[str, ...] = ("--recipe", "tiny.toml")
    kept = []
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = signalled(str(int(number)), "5", "train", *line, "--device", "cpu", "--out", stopped)
        hint = f"Stopped: continue with epass train --resume --out {stopped} --device cpu\n"
        assert end(process) == (code, hint)
        [newest, *_] = checkpoints(stopped / "checkpoints")  # none of them is from a test: the only one is at the end
        step, tensors = read_checkpoint(newest)
        assert step - rows(stopped)[-1]["step"] in range(EVERY), "steps since the last report are kept"
        assert len(rows(stopped)) == step // EVERY
        if step % EVERY:
            assert float(tensors["unreported.seconds"]) >= rows(stopped)[-1]["seconds"]
        kept.append(step)
        line = ("--resume",)
    assert kept == sorted(set(kept))
    assert end(start("train", "--resume", "--device", "cpu", "--out", stopped)) == (0, "")
    assert end(calm) == (0, "")

    for name in ("model.safetensors", "predictions.npz"):
        assert (stopped / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert timeless(stopped) == timeless(undisturbed), "also the means of reports that a stop cut in two"
    seconds = [row["seconds"] for row in rows(stopped)]
    assert seconds == sorted(seconds)
    assert not (stopped / LOCK).exists()


def test_a_folder_belongs_to_one_process_until_that_dies(tmp_path: Path, start: Start) -> None:
    first = start("train", "--recipe", "tiny.toml", "--device", "cpu", "--out", "run", *LONG)
    wait_for(first, tmp_path / "run", 1)
    before = rows(tmp_path / "run")
    sentence = (
        f"Error: 'run' is in use by process {first.pid}: wait until it ends, stop it, or choose another folder.\n"
    )
    assert end(start("train", "--resume", "--out", "run")) == (2, sentence)
    forced = start("train", "--recipe", "tiny.toml", "--out", "run", *LONG, "--force")
    assert end(forced) == (2, sentence)
    assert first.poll() is None
    assert rows(tmp_path / "run")[: len(before)] == before

    first.kill()
    first.wait()
    assert (tmp_path / "run" / LOCK).exists(), "nobody could clean up"
    second = start("train", "--recipe", "tiny.toml", "--device", "cpu", "--out", "run", "--steps", "7", "--force")
    assert end(second) == (0, "")
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_stopped_comparison_goes_on_from_the_step_where_it_was(
    tmp_path: Path, start: Start, signalled: Start
) -> None:
    line = ("compare", "digits", "--methods", "fixmatch", "--seeds", "1", "--steps", "40", "--device", "cpu")
    slow = ("--set", "net.width=4", "--set", "plan.report_every=1", "--set", "plan.evaluate_every=40", "--out", "out")
    process, folder = signalled(str(int(signal.SIGTERM)), "3", *line, *slow), tmp_path / "out" / "supervised-0"
    assert end(process) == (143, "Stopped: the same command goes on from here; finished runs are in out.\n")
    [only] = checkpoints(folder / "checkpoints")
    assert read_checkpoint(only)[0] == len(rows(folder))
    assert end(start(*line, *slow)) == (0, "")
    assert [row["step"] for row in rows(folder)] == list(range(1, 41))


def test_a_comparison_on_two_devices_stops_all_of_them_between_two_steps(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of a terminal, SIGTERM only the first; two CPU workers stand in for two GPUs."""
    both = "import epass.machine.device as device; device.all_devices = lambda place: [place, place]"
    code = f"{both}; from epass.cli import main; main()"
    line = ("compare", "digits", "--methods", "pi_model", "--seeds", "1", "--steps", "100000", "--device", "cpu")
    small = (
        "--set",
        "net.width=4",
        "--set",
        "plan.report_every=1",
        "--set",
        "plan.evaluate_every=100000",
        "--out",
        "out",
    )
    folders = [tmp_path / "out" / name for name in ("supervised-0", "pi_model-0")]
    for number, send, expected in ((signal.SIGINT, os.killpg, 130), (signal.SIGTERM, os.kill, 143)):
        before = [len(rows(folder)) for folder in folders]
        process = subprocess.Popen(
            [sys.executable, "-c", code, *line, *small],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            for folder, count in zip(folders, before, strict=True):
                wait_for(process, folder, count + 2)
            send(process.pid, number)
            assert end(process) == (
                expected,
                "Stopped: the same command goes on from here; finished runs are in out.\n",
            )
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        for folder in folders:
            newest, *_ = checkpoints(folder / "checkpoints")
            assert read_checkpoint(newest)[0] == len(rows(folder)) < 100_000
            assert not (folder / LOCK).exists()
