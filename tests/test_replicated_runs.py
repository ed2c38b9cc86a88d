"""Whole runs in two and three gloo processes against one: folder, tests, stops, and going on with another number."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.multiprocessing.spawn import spawn

from epass.engine.run import run
from epass.errors import InputError, PeerError
from epass.machine.distributed import rank, world_size
from epass.machine.launch import all_or_none
from epass.recipe import Recipe
from epass.training.checkpoint import checkpoints, read_checkpoint
from epass.training.window import NotFiniteError

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

STEPS, STOP = 24, 13
TOLERANCE = 1e-4  # relative and absolute: runs are in float32, methods are compared in float64 in test_contract.py
COMMON: dict[str, Any] = {
    "net": {"name": "small", "width": 4},
    "plan": {
        "steps": STEPS,
        "labeled_batch": 12,
        "unlabeled_ratio": 2,
        "average_momentum": 0.9,
        "report_every": 4,
        "evaluate_every": 8,
    },
    "seed": 3,
    "source": "made up for tests",
}
# 355 test images: neither two nor three processes can share them equally
SIMMATCH = Recipe(
    data={"name": "digits", "labels": 40, "validation": 0.25},
    method={"name": "simmatch", "threshold": 0.3, "warmup_steps": 6},
    projector={"size": 3, "out_dim": 8},
    **COMMON,
)
MOCO = Recipe(
    data={"name": "digits", "labels": 40},
    method={"name": "moco", "queue_size": 100, "momentum": 0.9},
    projector={"size": 1, "out_dim": 8},
    **COMMON,
)
HOPELESS = Recipe(**{**vars(SIMMATCH), "plan": {**COMMON["plan"], "lr": 1e30}})


class Stopped(KeyboardInterrupt):
    pass


def stop_before(step: int) -> Callable[[], None]:
    calls = iter(range(step + 1))

    def stop() -> None:
        if next(calls) == step:
            raise Stopped

    return stop


def record(recipe: Recipe, folder: Path, **arguments: Any) -> None:
    """A run, and beside its folder what this process saw of it."""
    seen: list[Any] = []
    try:
        seen += [(report.step, report.values) for report in run(recipe, folder, device="cpu", **arguments)]
    except (Stopped, NotFiniteError, InputError, PeerError) as problem:
        seen.append(f"{type(problem).__name__}: {problem}")
    folder.with_name(f"{folder.name}-{rank()}.json").write_text(json.dumps(seen))


def fail_on(failing: tuple[int, ...]) -> str:
    """What a process raises when those of `failing` fail where all must agree."""
    try:
        with all_or_none():
            if rank() in failing:
                raise InputError(f"rank {rank()} cannot")
    except (InputError, PeerError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "passed"


def work(own: int, world: int, home: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{home}/meeting-{world}"
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world, timeout=timedelta(seconds=600))
    if world == 2:
        record(SIMMATCH, home / "two")
        record(SIMMATCH, home / "stopped", stop=stop_before(STOP))
        if rank() == 0:
            shutil.copytree(home / "stopped", home / "on-two")
            shutil.copytree(home / "stopped", home / "on-three")
            shutil.copytree(home / "stopped", home / "on-one")
        record(SIMMATCH, home / "on-two", resume=True)
        record(MOCO, home / "moco-two")
        record(HOPELESS, home / "hopeless")
        (home / "used").mkdir(exist_ok=True)
        (home / "used" / "somebody's").touch()
        record(MOCO, home / "used")
        agreed = [fail_on(failing) for failing in ((), (0,), (1,), (0, 1))]
        (home / f"agreed-{rank()}.json").write_text(json.dumps(agreed))
    else:
        record(SIMMATCH, home / "on-three", resume=True)
    assert world_size() == world
    dist.barrier()
    os._exit(0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("runs")
    for world in (2, 3):
        spawn(work, (world, home), nprocs=world)
    record(SIMMATCH, home / "one")
    record(SIMMATCH, home / "on-one", resume=True)
    record(MOCO, home / "moco-one")
    return home


def seen(home: Path, name: str, own: int = 0) -> list[Any]:
    found: list[Any] = json.loads((home / f"{name}-{own}.json").read_text())
    return found


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def close(this: Path, that: Path) -> None:
    """Weights, every tensor of the last checkpoint, predictions and reports agree up to rounding."""
    approx = partial(pytest.approx, rel=TOLERANCE, abs=TOLERANCE)
    weights = [load_file(folder / "model.safetensors") for folder in (this, that)]
    states = [read_checkpoint(checkpoints(folder / "checkpoints")[0])[1] for folder in (this, that)]
    for ours, theirs in (weights, states):
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=TOLERANCE, atol=TOLERANCE, msg=name)
    with np.load(this / "predictions.npz") as ours, np.load(that / "predictions.npz") as theirs:
        assert sorted(ours) == sorted(theirs)
        for name in ours:
            assert ours[name] == approx(theirs[name]), name
    assert [row["step"] for row in metrics(this)] == [row["step"] for row in metrics(that)]
    for ours, theirs in zip(metrics(this), metrics(that), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert value == approx(theirs[name]), name


def test_two_processes_make_the_run_of_one(home: Path) -> None:
    close(home / "two", home / "one")
    assert {path.name for path in (home / "two").iterdir()} == {path.name for path in (home / "one").iterdir()}


def test_every_process_sees_the_same_reports_and_one_writes_them(home: Path) -> None:
    assert seen(home, "two", 0) == seen(home, "two", 1)
    assert [row["step"] for row in metrics(home / "two")] == list(range(4, STEPS + 1, 4))


def test_pre_training_in_two_processes_is_that_of_one(home: Path) -> None:
    close(home / "moco-two", home / "moco-one")
    assert (home / "moco-two" / "pretrained.safetensors").exists()


def test_all_processes_stop_at_the_same_step_with_a_checkpoint(home: Path) -> None:
    for own in range(2):
        assert seen(home, "stopped", own)[-1] == "Stopped: "
    newest, *_ = checkpoints(home / "stopped" / "checkpoints")
    assert read_checkpoint(newest)[0] == STOP


def test_a_resumed_run_of_as_many_processes_ends_in_the_same_bytes(home: Path) -> None:
    for name in ("model.safetensors", "predictions.npz"):
        assert (home / "on-two" / name).read_bytes() == (home / "two" / name).read_bytes(), name
    assert metrics(home / "on-two") == metrics(home / "two"), "also the means of a report that the stop cut in two"


@pytest.mark.parametrize("name", ["on-one", "on-three"])
def test_a_run_of_two_processes_goes_on_in_one_and_in_three(home: Path, name: str) -> None:
    close(home / name, home / "one")


def test_a_loss_that_is_no_number_stops_every_process_with_the_same_words(home: Path) -> None:
    (first,), (second,) = seen(home, "hopeless", 0), seen(home, "hopeless", 1)
    assert first == second
    assert first.startswith("NotFiniteError: The loss '")


def test_a_folder_that_the_first_process_cannot_use_ends_them_all(home: Path) -> None:
    (first,), (second,) = seen(home, "used", 0), seen(home, "used", 1)
    assert first.startswith("InputError: ")
    assert second == "PeerError: "


def test_the_first_process_that_fails_speaks_for_all(home: Path) -> None:
    first, second = (json.loads((home / f"agreed-{own}.json").read_text()) for own in range(2))
    assert first == ["passed", "InputError: rank 0 cannot", "PeerError: ", "InputError: rank 0 cannot"]
    assert second == ["passed", "PeerError: ", "InputError: rank 1 cannot", "PeerError: "]
