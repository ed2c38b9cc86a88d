from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from epass.parts.teacher import Average, copy_all


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))


def disturb(net: nn.Module, seed: int) -> None:
    """Move every weight and every running statistic, as a training step does."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn_like(weight))
    net.train()(3 + 2 * torch.randn(8, 4))


def inputs() -> torch.Tensor:
    return 1 + torch.randn(5, 4, generator=torch.Generator().manual_seed(3))


def test_an_average_starts_as_a_copy() -> None:
    net = make_net()
    average = Average(net)
    for ours, theirs in zip(average.module.state_dict().values(), net.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    disturb(net, 1)
    assert all(not torch.equal(a, b) for a, b in zip(average.parameters(), net.parameters(), strict=True))


def test_without_momentum_it_is_the_module_bit_for_bit() -> None:
    net = make_net()
    average = Average(net, momentum=0.0)
    for step in range(3):
        disturb(net, step)
        average.follow(net)
        for ours, theirs in zip(average.module.state_dict().values(), net.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("momentum", [0.5, 0.9, 0.999])
def test_weights_are_averaged_and_buffers_copied(momentum: float) -> None:
    net = make_net()
    average = Average(net, momentum)
    slow = {name: weight.tolist() for name, weight in net.named_parameters()}
    for step in range(4):
        disturb(net, step)
        average.follow(net)
        for name, weight in net.named_parameters():
            new = torch.tensor(slow[name], dtype=torch.float64) * momentum + weight.detach().double() * (1 - momentum)
            slow[name] = new.tolist()
            torch.testing.assert_close(average.module.get_parameter(name), new.float())
        for name, buffer in net.named_buffers():
            assert torch.equal(average.module.get_buffer(name), buffer)
    assert average.module[1].num_batches_tracked.item() == 4


def test_following_leaves_the_module_alone() -> None:
    net = make_net()
    average = Average(net, 0.9)
    disturb(net, 1)
    before = copy.deepcopy(net.state_dict())
    average.follow(net)
    disturb(average.module.eval(), 2)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_default_momentum_is_the_published_one() -> None:
    assert Average(make_net()).momentum == 0.999


def test_it_is_never_in_training_mode() -> None:
    net = make_net().train()
    around = nn.ModuleList([Average(net)]).train()
    average = around[0]
    assert not any(part.training for part in average.module.modules())
    assert net.training
    assert not any(weight.requires_grad for weight in average.parameters())
    assert all(weight.requires_grad for weight in net.parameters())

    disturb(net, 1)
    average.follow(net)
    frozen = copy.deepcopy(average.module).eval()
    before = copy.deepcopy(average.state_dict())
    assert torch.equal(average(inputs()), frozen(inputs()))  # running statistics, no dropout
    assert all(torch.equal(value, before[name]) for name, value in average.state_dict().items())


def test_batch_statistics_normalize_but_leave_no_trace() -> None:
    net = make_net()
    disturb(net, 1)
    average = nn.ModuleList([Average(net, batch_statistics=True)]).train()[0]
    linear, norm, _, last = copy.deepcopy(net)
    before = copy.deepcopy(average.state_dict())
    out = average(inputs())
    assert torch.equal(out, last(norm.train()(linear(inputs()))))  # of this batch, and still no dropout
    assert not torch.allclose(out, Average(net)(inputs()))
    assert all(torch.equal(value, before[name]) for name, value in average.state_dict().items())
    assert set(before) == {f"module.{name}" for name in net.state_dict()}

    # switching modes around it changes nothing
    assert torch.equal(average.eval()(inputs()), out)
    assert torch.equal(average.train()(inputs()), out)

    disturb(net, 2)
    average.follow(net)
    for name, buffer in net.named_buffers():
        assert torch.equal(average.module.get_buffer(name), buffer)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99])
def test_eman_averages_running_statistics_like_weights_and_copies_counters(momentum: float) -> None:
    net = make_net()
    average = Average(net, momentum, average_buffers=True)
    slow = {name: value.double() for name, value in net.state_dict().items()}
    for step in range(4):
        disturb(net, step)
        average.follow(net)
        for name, value in net.state_dict().items():
            slow[name] = momentum * slow[name] + (1 - momentum) * value.double()
    assert average.module[1].num_batches_tracked.item() == 4
    for name in ("0.weight", "1.weight", "3.bias", "1.running_mean", "1.running_var"):
        torch.testing.assert_close(average.module.state_dict()[name], slow[name].float())
        assert torch.allclose(average.module.state_dict()[name], net.state_dict()[name]) == (momentum == 0), name


def test_eman_normalizes_by_the_averaged_statistics() -> None:
    net = make_net()
    average = nn.ModuleList([Average(net, 0.5, average_buffers=True)]).train()[0]
    disturb(net, 1)
    average.follow(net)
    before = copy.deepcopy(average.state_dict())
    linear, norm, _, last = average.module
    mean, var = norm.running_mean, norm.running_var
    normalized = (linear(inputs()) - mean) / (var + norm.eps).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(average(inputs()), last(normalized))
    assert all(torch.equal(value, before[name]) for name, value in average.state_dict().items())


def test_a_module_without_buffers_can_be_followed() -> None:
    net = nn.Linear(2, 2)
    average = Average(net, 0.0)
    nn.init.ones_(net.weight)
    average.follow(net)
    assert torch.equal(average.module.weight, net.weight)


def test_it_gives_no_gradients_to_itself() -> None:
    assert not Average(make_net())(inputs()).requires_grad


def test_tensors_of_several_dtypes_and_shapes_are_copied() -> None:
    sources = [torch.rand(2, 3), torch.tensor(7), torch.rand(4, dtype=torch.float64), torch.arange(3), torch.empty(0)]
    targets = [torch.zeros_like(source) for source in sources]
    copy_all(zip(targets, sources, strict=True))
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target, source)
