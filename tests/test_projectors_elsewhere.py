"""The projectors in a plain loop of PyTorch give the losses of the package's own method, step by step."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from epass import Batch, Classifier, Problem, ProjectorEnsemble
from epass.methods.moco import MoCo
from epass.parts.teacher import Average
from epass.training.step import make_step

EXAMPLE = Path(__file__).parents[1] / "examples" / "projector_ensemble.py"
STEPS, IMAGES, SEEN = 25, 48, 512  # more images than are remembered, so that the oldest ones are forgotten


class Backbone(nn.Sequential):
    num_features = 16


@pytest.mark.parametrize("combine", ["mean", "concat"])
def test_the_example_is_the_packages_own_method(combine: str) -> None:
    torch.manual_seed(1)
    backbone = Backbone(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
    projector = ProjectorEnsemble(16, 8, size=3, combine=combine)
    batches = list(torch.rand(STEPS, 2, IMAGES, 1, 8, 8).unbind())

    net, own = Classifier(copy.deepcopy(backbone), 10), copy.deepcopy(projector)
    problem = Problem(10, 10, IMAGES, (1,) * 10, labeled_batch=1, unlabeled_batch=IMAGES, steps=STEPS)
    method = MoCo(net, problem, own, temperature=0.2, queue_size=SEEN, momentum=0.99)
    torch.manual_seed(2)
    method.seen["key"].copy_(F.normalize(torch.randn_like(method.seen["key"]), dim=1))
    learned = [weight for weight in method.parameters() if weight.requires_grad]
    step = make_step(method, torch.optim.Adam(learned, lr=1e-3), Average(net))
    none = torch.empty(0, dtype=torch.int64)
    expected = [
        step(Batch((), none, (one, two), none, none, torch.full((IMAGES,), -1), torch.tensor(number), none)).loss.item()
        for number, (one, two) in enumerate(batches)
    ]

    torch.manual_seed(2)
    trace = runpy.run_path(str(EXAMPLE))["train"](backbone, projector, batches)
    assert trace == pytest.approx(expected, abs=1e-6)
    assert len({round(loss, 3) for loss in trace}) > 5  # they learn, and are not equal by standing still
