from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.method import Problem
from epass.methods.fixmatch import FixMatch
from epass.methods.moco import MoCo
from epass.methods.rotnet import RotNet
from epass.methods.simmatch import SimMatch
from epass.networks import make_network
from epass.parts.pretrained import take_over
from epass.parts.projector import ProjectorEnsemble
from epass.testing import snapshot

PROBLEM = Problem(3, 6, 20, label_counts=(2, 2, 2), labeled_batch=4, unlabeled_batch=8, steps=10)


def parts(seed: int, *, width: int = 4, size: int = 3, classes: int = 3) -> tuple[nn.Module, ProjectorEnsemble]:
    torch.manual_seed(seed)
    net = make_network("small", in_channels=1, num_classes=classes, width=width)
    return net, ProjectorEnsemble(net.num_features, 6, size=size)


def pretrained() -> dict[str, Tensor]:
    net, projector = parts(0)
    method = MoCo(net, PROBLEM, projector, queue_size=5).train()
    with torch.no_grad():
        for weight in method.key_encoder.parameters():
            weight.add_(1)
    net(torch.randn(8, 1, 8, 8))  # running statistics are part of what is handed over
    return method.state_dict()


def test_backbone_and_heads_are_taken_over_one_to_one() -> None:
    state, (net, projector) = pretrained(), parts(1, classes=5)
    head = net.head.weight.clone()
    take_over(state, net, projector)
    assert any("running_mean" in name for name in net.backbone.state_dict())
    for name, value in net.backbone.state_dict().items():
        assert torch.equal(value, state[f"net.backbone.{name}"]), name
    for name, value in projector.state_dict().items():
        assert torch.equal(value, state[f"projector.{name}"]), name
    assert torch.equal(net.head.weight, head)
    assert net.head.weight.requires_grad  # frozen in the pre-training only


def test_what_was_learned_without_heads_leaves_those_of_a_projector() -> None:
    learned, _ = parts(0)
    state = RotNet(learned, PROBLEM).state_dict()
    net, projector = parts(1)
    before = snapshot(projector)
    take_over(state, net, projector)
    for name, value in net.backbone.state_dict().items():
        assert torch.equal(value, state[f"net.backbone.{name}"]), name
    assert all(torch.equal(value, before[name]) for name, value in snapshot(projector).items())


def test_averages_of_a_method_built_afterwards_are_equal() -> None:
    net, projector = parts(1)
    take_over(pretrained(), net, projector)
    method = SimMatch(net, PROBLEM, projector, teacher="average")
    live = nn.ModuleList([net, projector]).state_dict()
    assert all(torch.equal(value, live[name]) for name, value in method.teacher.module.state_dict().items())


def test_a_method_without_embedding_takes_the_backbone_only() -> None:
    state, (net, _) = pretrained(), parts(1)
    take_over(state, net)
    method = FixMatch(net, PROBLEM)
    taken = {name for name, value in method.state_dict().items() if torch.equal(value, state[name])}
    assert taken == {name for name in state if name.startswith("net.backbone.")} | {"net.head.bias"}  # both zero


@pytest.mark.parametrize(
    ("changes", "word"), [({"width": 6}, "another network"), ({"size": 1}, "another projector")], ids=["net", "heads"]
)
def test_weights_of_another_shape_are_refused_before_anything_changes(changes: dict[str, int], word: str) -> None:
    net, projector = parts(1, **changes)
    both = nn.ModuleList([net, projector])
    before = snapshot(both)
    with pytest.raises(InputError, match=rf"{word}.*settings of the pre-training"):
        take_over(pretrained(), net, projector)
    assert all(torch.equal(value, before[name]) for name, value in snapshot(both).items())


def test_weights_without_a_backbone_are_refused() -> None:
    with pytest.raises(InputError, match=re.escape("'net.backbone.")):
        take_over({}, *parts(1))
