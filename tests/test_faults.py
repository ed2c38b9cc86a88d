"""Real faults: each ends in one sentence, the checkpoints before it are whole, and runs go on from them exactly."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from epass.data import Dataset, open_dataset
from epass.engine.build import Experiment, build
from epass.engine.run import run, train_steps
from epass.method import Batch, Outcome
from epass.recipe import Recipe, parse_recipe
from epass.runs import RunFolder
from epass.training.checkpoint import checkpoints, read_checkpoint, restore_newest
from epass.training.window import NotFiniteError
from epass.training.writer import Writer
from tiny_recipe import tiny_recipe

CPU, STEPS, EVERY_STEP = torch.device("cpu"), 6, 1e-9
RECIPE = tiny_recipe(plan={"steps": STEPS, "report_every": 2})
PLAIN = parse_recipe(RECIPE, "tests")
TIMED = PLAIN.with_settings({"plan.checkpoint_minutes": EVERY_STEP})


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_dataset("digits")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, digits: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(PLAIN, folder, digits)
    return folder


def train(recipe: Recipe, folder: Path, digits: Dataset, **named: Any) -> None:
    for _ in run(recipe, folder, dataset=digits, device="cpu", **named):
        pass


def train_that(experiment: Experiment, folder: Path) -> None:
    for _ in train_steps(experiment, RunFolder(folder)):
        pass


def steps(folder: Path) -> list[int]:
    """Those of the checkpoints, all of which can be read."""
    return [read_checkpoint(path)[0] for path in checkpoints(folder / "checkpoints")]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same(folder: Path, undisturbed: Path) -> None:
    for name in ("model.safetensors", "predictions.npz"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes(), name
    timeless = [[{**row, "seconds": 0} for row in rows(path)] for path in (folder, undisturbed)]
    assert timeless[0] == timeless[1]
    assert not list(folder.rglob("*.part"))


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is on disk before the next one is due."""
    is_due = Writer.is_due
    monkeypatch.setattr(Writer, "is_due", lambda writer: (writer.wait(), is_due(writer))[1])


# --- Checkpoints by the clock -----------------------------------------------------------------------------------------


def test_checkpoints_by_the_clock_change_nothing_else(tmp_path: Path, digits: Dataset, undisturbed: Path) -> None:
    train(TIMED, tmp_path / "run", digits)
    assert_same(tmp_path / "run", undisturbed)
    assert steps(undisturbed) == [6, 3]


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_run_that_dies_between_reports_goes_on_from_its_last_checkpoint_exactly(
    tmp_path: Path, digits: Dataset, undisturbed: Path, at: int
) -> None:
    experiment = build(TIMED, CPU, digits)
    update, calls = experiment.method.update, iter(range(100))

    def die(memory: dict[str, torch.Tensor]) -> None:
        update(memory)
        if next(calls) == at:
            raise MemoryError

    experiment.method.update = die  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        train_that(experiment, tmp_path / "run")
    assert steps(tmp_path / "run")[0] == at, "the error waited for the writer"
    for name in (".model.safetensors.123.part", "checkpoints/.step-00000009.safetensors.123.part"):
        (tmp_path / "run" / name).write_bytes(b"what a kill in the middle of a write leaves behind")
    train(TIMED, tmp_path / "run", digits, resume=True)
    assert_same(tmp_path / "run", undisturbed)


# --- No number --------------------------------------------------------------------------------------------------------


def with_outcome(experiment: Experiment, change: Callable[[int, Outcome], None]) -> Experiment:
    forward = experiment.method.forward

    def changed(batch: Batch) -> Outcome:
        outcome = forward(batch)
        change(int(batch.step), outcome)
        return outcome

    experiment.method.forward = changed  # type: ignore[method-assign]
    return experiment


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("at", [1, 4])
def test_a_loss_that_is_no_number_never_reaches_a_checkpoint_by_the_clock(
    tmp_path: Path, digits: Dataset, undisturbed: Path, at: int
) -> None:
    def poison(step: int, outcome: Outcome) -> None:
        if step >= at:
            outcome.losses["labeled"] = outcome.losses["labeled"] * math.nan

    experiment = with_outcome(build(TIMED, CPU, digits), poison)
    with pytest.raises(NotFiniteError, match="was no longer finite at step"):
        train_that(experiment, tmp_path / "run")
    assert steps(tmp_path / "run")[0] == at, "the last one before it"
    train(TIMED, tmp_path / "run", digits, resume=True)
    assert_same(tmp_path / "run", undisturbed)


@pytest.mark.usefixtures("quick_disk")
def test_a_metric_that_is_no_number_is_no_reason_to_end(tmp_path: Path, digits: Dataset, undisturbed: Path) -> None:
    def odd(step: int, outcome: Outcome) -> None:
        outcome.metrics["odd"] = torch.tensor(math.nan)

    experiment = with_outcome(build(TIMED, CPU, digits), odd)
    train_that(experiment, tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()


# --- Clocks and slow disks --------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_and_forth_changes_nothing(
    tmp_path: Path, digits: Dataset, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps, real = random.Random(0), time.time
    monkeypatch.setattr(time, "time", lambda: real() + jumps.choice((-1e9, 1e9)))
    reports = run(TIMED, tmp_path / "run", dataset=digits, device="cpu")
    next(reports)
    reports.close()
    os.utime(checkpoints(tmp_path / "run" / "checkpoints")[0], (0, 0))
    train(TIMED, tmp_path / "run", digits, resume=True)
    assert_same(tmp_path / "run", undisturbed)
    seconds = [row["seconds"] for row in rows(tmp_path / "run")]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0


def test_training_goes_on_while_a_slow_disk_writes_and_rows_come_first(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, free, fsync, asked = tmp_path / "run", threading.Event(), os.fsync, list[int]()
    recipe = TIMED.with_settings({"plan.evaluate_every": STEPS, "plan.report_every": 1})

    def slow(number: int) -> None:
        if threading.current_thread().name.startswith("checkpoint"):
            assert free.wait(600)
        fsync(number)

    def watch() -> None:
        asked.append(len(checkpoints(folder / "checkpoints")))
        if len(asked) == 5:  # four steps are done
            free.set()

    monkeypatch.setattr(os, "fsync", slow)
    train(recipe, folder, digits, stop=watch)
    assert asked[:5] == [0, 0, 0, 0, 0], "the first checkpoint was begun after the first step"
    assert steps(folder)[0] == STEPS
    assert [row["step"] for row in rows(folder)] == list(range(1, STEPS + 1))


# --- Damaged checkpoints ----------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path, undisturbed: Path) -> Path:
    """The checkpoints of a run, steps 3 and 6."""
    return Path(shutil.copytree(undisturbed / "checkpoints", tmp_path / "checkpoints"))


def regions(data: bytes) -> dict[str, range]:
    header = 8 + int.from_bytes(data[:8], "little")
    facts = data.index(b"}") + 1
    return {
        "length": range(8),
        "metadata": range(8, facts),
        "header": range(facts, header),
        "data": range(header, len(data)),
    }


@pytest.mark.parametrize("region", ["length", "metadata", "header", "data"])
def test_a_flipped_bit_anywhere_is_found_and_the_checkpoint_before_is_used(
    stopped: Path, digits: Dataset, region: str
) -> None:
    progress, rng = build(PLAIN, CPU, digits).progress, random.Random(region)
    newest, before = checkpoints(stopped)
    data = newest.read_bytes()
    wanted = read_checkpoint(before)[1]
    places = regions(data)[region]
    for position in rng.sample(places, min(40, len(places))):
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        newest.write_bytes(damaged)
        with pytest.warns(UserWarning, match=f"{newest.name} is damaged") as said:
            assert restore_newest(stopped, progress) == 3, position
        assert len(said) == 1
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in progress.tensors().items())


def test_a_file_cut_off_anywhere_is_found_and_the_checkpoint_before_is_used(stopped: Path, digits: Dataset) -> None:
    progress, rng = build(PLAIN, CPU, digits).progress, random.Random(0)
    newest, _ = checkpoints(stopped)
    data = newest.read_bytes()
    lengths = [places[0] for places in regions(data).values()] + rng.sample(range(len(data)), 20) + [len(data) - 1]
    for length in lengths:
        newest.write_bytes(data[:length])
        with pytest.warns(UserWarning, match=f"{newest.name} is damaged"):
            assert restore_newest(stopped, progress) == 3, length
    newest.write_bytes(data)
    assert restore_newest(stopped, progress) == 6


def test_the_same_state_is_the_same_bytes(tmp_path: Path, digits: Dataset, undisturbed: Path) -> None:
    train(PLAIN, tmp_path / "run", digits)
    for ours, theirs in zip(
        *(checkpoints(path / "checkpoints") for path in (tmp_path / "run", undisturbed)), strict=True
    ):
        assert ours.read_bytes() == theirs.read_bytes()


# --- Disks that refuse ------------------------------------------------------------------------------------------------


@pytest.fixture
def file_size() -> Iterator[Callable[[int], None]]:
    """`file_size(n)` lets no file grow beyond n bytes: without any rights the nearest thing to a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_is_refused_ends_the_run_at_the_next_step_and_names_the_file(
    tmp_path: Path, digits: Dataset, undisturbed: Path, file_size: Callable[[int], None]
) -> None:
    folder, size = tmp_path / "run", checkpoints(undisturbed / "checkpoints")[0].stat().st_size
    reports = run(PLAIN, folder, dataset=digits, device="cpu")
    while next(reports).step < 4:
        pass
    while not checkpoints(folder / "checkpoints"):  # the first one is being written beside the steps
        time.sleep(0.001)
    file_size(size // 2)
    with pytest.raises(OSError, match="File too large") as refused:
        list(reports)
    file_size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    assert refused.value.filename == str(folder / "checkpoints" / "step-00000006.safetensors")
    assert steps(folder) == [3]
    assert not list(folder.rglob("*.part"))
    assert not (folder / "results.json").exists()
    train(PLAIN, folder, digits, resume=True)
    assert_same(folder, undisturbed)


NAMESPACE = ["unshare", "--map-root-user", "--mount"]  # mounts that only the process sees, without being root
DRIVER = """
import json, os, subprocess, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:]
from calling import call
from epass.engine import run as running

disk, filler, write, finish = Path("disk"), Path("disk/filler"), running.write_checkpoint, running.finish
checkpoints, answers = Path("disk/run/checkpoints"), {}


def shell(*words):
    subprocess.run(words, check=True)


def fill():
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def protect():
    shell("mount", "--bind", checkpoints, checkpoints)
    shell("mount", "-o", "remount,bind,ro", checkpoints)


def at_second_write(fault):
    def changed(folder, step, state):
        if step == 6:
            fault()
        return write(folder, step, state)
    return changed


def at_the_end(*given, **said):
    fill()
    finish(*given, **said)


def say(name, *arguments):
    answer = call("train", *arguments, "--device", "cpu", "--out", "disk/run")
    answers[name] = [*answer, sorted(path.name for path in checkpoints.iterdir())]


def kept(name):
    Path(name).write_bytes(Path("disk/run/model.safetensors").read_bytes())


shell("mount", "-t", "tmpfs", "-o", "size=1m", "none", disk)
running.write_checkpoint = at_second_write(fill)
say("full", "--recipe", "tiny.toml")
running.write_checkpoint = write
say("still full", "--resume")
filler.unlink()
running.finish = at_the_end
say("full at the end", "--resume")
running.finish = finish
filler.unlink()
say("room again", "--resume")
kept("after-full")

running.write_checkpoint = at_second_write(protect)
say("protected", "--recipe", "tiny.toml", "--force")
running.write_checkpoint = write
shell("umount", checkpoints)
shell("mount", "-o", "remount,ro", disk)
say("all protected", "--resume")
shell("mount", "-o", "remount,rw", disk)
say("writable again", "--resume")
kept("after-protection")
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_a_full_disk_and_a_read_only_one_end_in_a_sentence_and_cost_nothing(tmp_path: Path, undisturbed: Path) -> None:
    probe = [*NAMESPACE, "sh", "-c", f"mount -t tmpfs none {tmp_path}"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no mounting here, not even in a namespace of one's own")
    (tmp_path / "disk").mkdir()
    (tmp_path / "tiny.toml").write_text(RECIPE)
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", DRIVER, Path(__file__).parent, Path(__file__).parent / "cli"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    ending = (
        "The run is in 'disk/run', its last good checkpoint is kept; mend this, then continue with "
        "epass train --resume --out disk/run --device cpu\n"
    )
    three, six = "step-00000003.safetensors", "step-00000006.safetensors"
    expected = {
        "full": (1, f"Error: No space left on device: 'disk/run/checkpoints/{six}'. {ending}", [three]),
        "still full": (1, f"Error: No space left on device: 'disk/run/metrics.jsonl'. {ending}", [three]),
        "full at the end": (1, f"Error: No space left on device: 'disk/run/model.safetensors'. {ending}", [three, six]),
        "room again": (0, "", [three, six]),
        "protected": (1, f"Error: Read-only file system: 'disk/run/checkpoints/{six}'. {ending}", [three]),
        "all protected": (1, "Error: Read-only file system: 'disk/run/.lock'.\n", [three]),
        "writable again": (0, "", [three, six]),
    }
    found = {name: (code, without_alarms(error), files) for name, (code, _, error, files) in answers.items()}
    assert found == expected
    for name in ("after-full", "after-protection"):
        assert (tmp_path / name).read_bytes() == (undisturbed / "model.safetensors").read_bytes()


def without_alarms(text: str) -> str:
    """What is said on standard error, but for the sentence that so short a run has learned nothing."""
    return "".join(line for line in text.splitlines(keepends=True) if "hardly better than guessing" not in line)
