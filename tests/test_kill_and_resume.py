"""What a power cut does to a run, in processes of their own: kill -9 somewhere, --resume, and nothing is lost."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epass.training.checkpoint import checkpoints
from tiny_recipe import tiny_recipe
from training_processes import PATIENCE, Start, last_step, starting, timeless, wait_until

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from epass.cli import main; main()", "train", "--device", "cpu", "--out"]
STEPS, KILLS, MARGIN = 200, 3, 60  # the margin: on a slow day, a run gets further than we meant before it dies
PLAN = {"steps": STEPS, "labeled_batch": 16, "unlabeled_ratio": 4, "average_momentum": 0.9, "evaluate_every": 5}
RECIPE = tiny_recipe(method={"threshold": 0.3, "warmup_steps": 10}, projector={"size": 3}, plan=PLAN)


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(folder, "--resume")` is a training process; none survives the test."""
    with starting(COMMAND) as begin:
        yield begin


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a run that nobody disturbs; what it said on standard error."""
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    return error


def kill_at(process: subprocess.Popen[str], folder: Path, step: int, delay: float) -> None:
    """kill -9 once the metrics show `step`, and a moment later: in a step, a test or the writing of a checkpoint."""
    wait_until(process, lambda: last_step(folder) >= step)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert step <= last_step(folder) < STEPS
    assert not (folder / "results.json").exists()


def assert_same(folder: Path, undisturbed: Path) -> None:
    for name in ("model.safetensors", "predictions.npz", "model.json", "recipe.toml"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert timeless(folder) == timeless(undisturbed)
    assert [row["step"] for row in timeless(folder)] == list(range(1, STEPS + 1))
    ours, theirs = (json.loads((path / "results.json").read_text()) for path in (folder, undisturbed))
    assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
    names = [path.name for path in checkpoints(folder / "checkpoints")]
    assert names == [path.name for path in checkpoints(undisturbed / "checkpoints")]
    seconds = [json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert seconds == sorted(seconds)


def test_a_run_that_is_killed_three_times_ends_in_the_same_bytes(tmp_path: Path, start: Start) -> None:
    rng = random.Random(20240607)
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(RECIPE)
    undisturbed, killed, damaged = (tmp_path / name for name in ("undisturbed", "killed", "damaged"))
    calm = start(undisturbed, "--recipe", recipe)

    for number in range(KILLS):
        arguments = ("--resume",) if number else ("--recipe", recipe)
        step = last_step(killed) + rng.randint(10, (STEPS - MARGIN) // KILLS)
        kill_at(start(killed, *arguments), killed, step, delay=rng.uniform(0, 0.02))
        if number == 1:
            shutil.copytree(killed, damaged)
            # as after a kill in the middle of a write: neither of these may be taken for anything
            (damaged / "checkpoints" / f".step-{STEPS:08d}.safetensors.1234.part").write_bytes(b"half a checkpoint")
            (damaged / ".model.safetensors.1234.part").write_bytes(b"half a model")
            with (damaged / "metrics.jsonl").open("a") as metrics:
                metrics.write('{"step": 9')

    # the newest checkpoint was cut off: the one before it is used, and a warning names the bad file
    newest, before_it, *_ = checkpoints(damaged / "checkpoints")
    newest.write_bytes(newest.read_bytes()[: rng.randrange(newest.stat().st_size)])

    last, repaired = start(killed, "--resume"), start(damaged, "--resume")
    assert finish(calm) == ""
    assert finish(last) == ""
    warning = finish(repaired)
    assert warning.startswith(f"Warning: {newest} is damaged (")
    assert warning.endswith("); going back to the checkpoint before it.\n")
    assert warning.count("\n") == 1
    assert before_it.name not in warning

    assert_same(killed, undisturbed)
    assert_same(damaged, undisturbed)
    assert not list(undisturbed.rglob("*.part"))
