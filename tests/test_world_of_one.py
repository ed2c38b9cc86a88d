"""A process that talks to itself: every message of a run is sent, by gloo and, where there is a GPU, by NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from epass.data import render
from epass.engine.build import build
from epass.engine.run import train_steps
from epass.machine.device import choose_device
from epass.networks.shared_norm import SharedBatchNorm
from epass.recipe import Recipe
from epass.runs import RunFolder
from epass.testing.world_of_one import talking, world_of_one

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


@pytest.mark.usefixtures("full_float32")
@pytest.mark.parametrize(
    ("device", "compiled"),
    [
        ("cpu", "off"),
        pytest.param("cuda", "off", marks=pytest.mark.gpu),
        pytest.param("cuda", "on", marks=pytest.mark.gpu),
    ],
)
def test_messages_to_oneself_change_nothing(device: str, compiled: str, tmp_path: Path) -> None:
    """On CUDA the messages are part of the recorded graph and, if it is compiled, of the compiled one."""
    recipe = RECIPE.with_settings({"plan.compile": compiled})
    wanted = build(recipe, choose_device(device))
    reports: dict[str, list[dict[str, Any]]] = {}
    reports["silent"] = [report.values for report in train_steps(wanted, RunFolder(tmp_path / "silent")) if report]

    with world_of_one(device) as place, talking():
        assert dist.is_initialized()
        assert place == ("cuda:0" if device == "cuda" else "cpu")
        found = build(recipe, choose_device(place))
        assert any(isinstance(part, SharedBatchNorm) for part in found.method.modules())
        steps = train_steps(found, RunFolder(tmp_path / "talking"))
        reports["talking"] = [report.values for report in steps if report]
    assert (found.feed.render is not render) == (compiled == "on")

    ours, theirs = found.progress.tensors(), wanted.progress.tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4, msg=name)
    for mine, other in zip(reports["talking"], reports["silent"], strict=True):
        assert mine == pytest.approx(other, rel=1e-2, abs=1e-2)
