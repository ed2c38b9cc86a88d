from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from epass.parts.statistics import statistics_kept


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    norms = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(16))
    return nn.Sequential(norms, nn.BatchNorm1d(16, track_running_stats=False))


def images(seed: int = 1) -> Tensor:
    return 2 + 3 * torch.randn(8, 3, 2, 2, generator=torch.Generator().manual_seed(seed))


def test_running_statistics_are_left_alone_inside_and_move_outside() -> None:
    net = make_net().train()
    before = copy.deepcopy(net.state_dict())
    with statistics_kept(net):
        net(images())
        net(images(2))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net(images())
    moved = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    assert moved == {f"0.{layer}.{name}" for layer in (1, 4) for name in buffers}


def test_passes_inside_are_normalized_by_their_batch() -> None:
    net = make_net().train()
    twin = copy.deepcopy(net)
    with statistics_kept(net):
        inside = net(images())
    assert torch.equal(inside, twin(images()))
    assert not torch.allclose(inside, copy.deepcopy(net).eval()(images()))


def test_gradients_are_those_of_an_ordinary_pass() -> None:
    net = make_net().train()
    twin = copy.deepcopy(net)
    with statistics_kept(net):
        net(images()).square().sum().backward()
    twin(images()).square().sum().backward()
    for found, wanted in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(found.grad, wanted.grad)


def test_layers_in_evaluation_mode_keep_to_their_running_statistics() -> None:
    net = make_net().train()
    net(images(3))
    net[0].eval()
    frozen, before = copy.deepcopy(net), copy.deepcopy(net.state_dict())
    with statistics_kept(net):
        inside = net(images())
    assert torch.equal(inside, frozen(images()))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def flags(net: nn.Module) -> list[tuple[bool, bool]]:
    return [(module.training, getattr(module, "track_running_stats", False)) for module in net.modules()]


@pytest.mark.parametrize("training", [True, False])
def test_layers_are_as_before_afterwards_even_after_an_exception(training: bool) -> None:
    net = make_net().train(training)
    before = flags(net)
    with statistics_kept(net):
        net(images())
    assert flags(net) == before
    with pytest.raises(ZeroDivisionError), statistics_kept(net):
        1 / 0  # noqa: B018
    assert flags(net) == before
    with statistics_kept(net), statistics_kept(net):
        net(images())
    assert flags(net) == before


def test_it_compiles_to_one_graph_and_still_keeps_the_statistics() -> None:
    net = make_net().train()

    def work(labeled: Tensor, unlabeled: Tensor) -> Tensor:
        first = net(labeled)
        with statistics_kept(net):
            return first + net(unlabeled)

    start = copy.deepcopy(net.state_dict())
    eager = work(images(), images(2))
    after = copy.deepcopy(net.state_dict())
    net.load_state_dict(start)
    torch._dynamo.reset()
    compiled = torch.compile(work, fullgraph=True, backend="aot_eager")(images(), images(2))
    torch._dynamo.reset()
    torch.testing.assert_close(compiled, eager)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, after[name])
