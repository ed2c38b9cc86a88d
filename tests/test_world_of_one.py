"""A process that talks to itself: every message of a run is sent, by gloo and, where there is a GPU, by NCCL."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from epass.engine.build import build
from epass.engine.run import train_steps
from epass.machine.device import choose_device
from epass.machine.launch import join_processes
from epass.networks.shared_norm import SharedBatchNorm
from epass.recipe import Recipe
from epass.runs import RunFolder

pytestmark = pytest.mark.distributed

RECIPE = Recipe(
    data={"name": "digits", "labels": 40},
    net={"name": "small", "width": 4},
    method={"name": "comatch", "threshold": 0.3, "warmup_steps": 6},
    projector={"size": 3, "out_dim": 8},
    plan={
        "steps": 16,
        "labeled_batch": 12,
        "unlabeled_ratio": 2,
        "report_every": 4,
        "evaluate_every": 8,
        "precision": "float32",
    },
    seed=1,
    source="made up for tests",
)


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    facts = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**facts, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    yield monkeypatch
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("full_float32")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_messages_to_oneself_change_nothing(device: str, talking: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On CUDA the messages are part of the recorded graph."""
    wanted, found = build(RECIPE, choose_device(device)), None
    reports: dict[str, list[dict[str, Any]]] = {}
    reports["silent"] = [report.values for report in train_steps(wanted, RunFolder(tmp_path / "silent")) if report]

    place = join_processes(device)
    assert dist.is_initialized()
    assert place == ("cuda:0" if device == "cuda" else "cpu")
    rooms = (
        "machine.distributed",
        "networks.shared_norm",
        "training.sharing",
        "engine.build",
        "engine.infer",
        "engine.run",
    )
    for module in rooms:
        talking.setattr(f"epass.{module}.alone", lambda: False)
    found = build(RECIPE, choose_device(place))
    assert any(isinstance(part, SharedBatchNorm) for part in found.method.modules())
    reports["talking"] = [report.values for report in train_steps(found, RunFolder(tmp_path / "talking")) if report]

    ours, theirs = found.progress.tensors(), wanted.progress.tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4, msg=name)
    for mine, other in zip(reports["talking"], reports["silent"], strict=True):
        assert mine == pytest.approx(other, rel=1e-2, abs=1e-2)
