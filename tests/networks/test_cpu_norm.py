"""BatchNorm on a CPU: outputs, gradients and running statistics of torch's own, whatever the number of channels."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from epass.networks import cpu_norm, make_network, small
from epass.networks.cpu_norm import normalized
from epass.networks.shared_norm import SharedBatchNorm


@pytest.fixture(autouse=True)
def _small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_norm, "_LEAST", 0)


def maps_of(channels: int, images: int = 5, size: tuple[int, int] = (4, 8)) -> Tensor:
    torch.manual_seed(0)
    maps = 3 * torch.randn(images, channels, *size) + torch.linspace(-2, 2, channels)[:, None, None]
    return maps.contiguous(memory_format=torch.channels_last)


def lively(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, momentum=0.1)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.uniform_(norm.bias, -1, 1)
    return norm


def passed(norm: nn.BatchNorm2d, maps: Tensor, how: Callable[[nn.BatchNorm2d, Tensor], Tensor]) -> list[Tensor]:
    """Everything that one pass there and back computes and changes."""
    norm, maps = deepcopy(norm), maps.detach().clone().requires_grad_()
    out = how(norm, maps)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    assert maps.grad is not None
    return [out.detach(), maps.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]  # type: ignore[list-item]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The maps whose gradients were summed in our way."""
    seen: list[Tensor] = []
    sums = cpu_norm._sums
    monkeypatch.setattr(cpu_norm, "_sums", lambda *given: (seen.append(given[1]), sums(*given))[1])
    return seen


@pytest.mark.parametrize("channels", [3, 8, 12, 20, 24, 40])
@pytest.mark.parametrize("images", [1, 5, 16, 35])
def test_gradients_are_those_of_float64(channels: int, images: int, own: list[Tensor]) -> None:
    norm, maps = lively(channels), maps_of(channels, images)
    found = passed(norm, maps, normalized)
    wanted = passed(norm.double(), maps.double(), lambda norm, maps: norm(maps))
    assert own
    for ours, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, exact.to(ours.dtype), rtol=2e-5, atol=2e-5 * float(exact.abs().max()))


def test_what_is_computed_forward_is_torchs_own_to_the_bit(own: list[Tensor]) -> None:
    norm, maps = lively(24), maps_of(24)
    found, wanted = passed(norm, maps, normalized), passed(norm, maps, lambda norm, maps: norm(maps))
    assert own
    assert torch.equal(found[0], wanted[0])
    for ours, theirs in zip(found[4:], wanted[4:], strict=True):
        assert torch.equal(ours, theirs)


def test_a_gradient_of_another_layout_is_taken_as_it_is(own: list[Tensor]) -> None:
    norm, maps = lively(24), maps_of(24)
    found = passed(norm, maps, lambda norm, maps: normalized(norm, maps).contiguous())
    wanted = passed(norm, maps, lambda norm, maps: norm(maps))
    assert own
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "case",
    [
        "small",
        "a line",
        "an odd number of pixels",
        "layout",
        "precision",
        "testing",
        "not affine",
        "no statistics",
        "plain averages",
        "class",
    ],
)
def test_everything_else_is_left_to_torch(case: str, own: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    norm, maps = lively(24), maps_of(24)
    if case == "small":
        monkeypatch.setattr(cpu_norm, "_LEAST", maps.numel() + 1)
    elif case == "a line":
        norm, maps = lively(32), maps_of(32)
    elif case == "an odd number of pixels":
        maps = maps_of(24, 3, (5, 3))
    elif case == "layout":
        maps = maps.contiguous()
    elif case == "precision":
        norm, maps = norm.double(), maps.double()
    elif case == "testing":
        norm.eval()
    elif case == "not affine":
        norm = nn.BatchNorm2d(24, affine=False)
    elif case == "no statistics":
        norm = nn.BatchNorm2d(24, track_running_stats=False)
    elif case == "plain averages":
        norm = nn.BatchNorm2d(24, momentum=None)
    else:
        norm.__class__ = SharedBatchNorm
    before = norm(maps)
    assert torch.equal(normalized(norm, maps), before)
    normalized(norm, maps.requires_grad_()).sum().backward()
    assert own == []


def test_the_small_network_has_the_gradients_it_had(monkeypatch: pytest.MonkeyPatch, own: list[Tensor]) -> None:
    torch.manual_seed(0)
    net = make_network("small", in_channels=3, num_classes=4)
    images = torch.randn(8, 3, 32, 32)

    def gradients() -> list[Tensor]:
        net.zero_grad()
        net(images).logits.square().sum().backward()
        return [weight.grad.clone() for weight in net.parameters() if weight.grad is not None]

    found = gradients()
    assert [len(maps) for maps in own] == [8]
    monkeypatch.setattr(small, "normalized", lambda norm, maps: norm(maps))
    for ours, theirs in zip(found, gradients(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))
