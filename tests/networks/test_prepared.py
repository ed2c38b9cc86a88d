"""A prepared network says what the network says, with BatchNorm, activations and padding inside of its convolutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epass.networks import make_network
from epass.networks import prepared as room
from epass.networks.efficientnet_lite import _SameConvolution
from epass.networks.prepared import prepared

CPU = torch.device("cpu")
can_fuse = pytest.mark.skipif(not room._can_fuse(torch.float32), reason="needs a build of torch with oneDNN")


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    room._can_fuse.cache_clear()


def lively(net: nn.Module) -> nn.Module:
    """With normalizations that have seen something, and so do something."""
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1)
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 2)
            nn.init.uniform_(layer.bias, -0.1, 0.1)
    return net.eval()


def both(net: nn.Module, images: Tensor, precision: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, nn.Module]:
    """What the network says, what the prepared one says, and the prepared one."""
    quick = prepared(net, CPU, precision)
    with torch.no_grad():
        return net(images), quick(images.to(precision)).float(), quick


def kinds(net: nn.Module) -> Counter[str]:
    return Counter(type(layer).__name__ for layer in net.modules())


@pytest.mark.parametrize("name", ["efficientnet-lite0", "small", "resnet-18", "wrn-28-2"])
def test_a_prepared_network_computes_the_same(name: str) -> None:
    net = lively(make_network(name, in_channels=3, num_classes=2).backbone)
    wanted, found, quick = both(net, torch.randn(2, 3, 32, 32))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert not quick.training
    if name == "efficientnet-lite0":
        assert kinds(quick)["BatchNorm2d"] == 0


@can_fuse
@pytest.mark.parametrize("size", [(32, 32), (33, 33), (64, 47), (31, 40), (7, 1)])
def test_maps_are_not_padded_and_come_out_alike(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    net = lively(make_network("efficientnet-lite0", in_channels=3, num_classes=2).backbone)
    images, padded = torch.randn(2, 3, *size), []
    with torch.no_grad():
        wanted = net(images)
        quick = prepared(net, CPU, torch.float32)
        pad = room.nn.functional.pad
        monkeypatch.setattr("torch.nn.functional.pad", lambda what, sides: (padded.append(what), pad(what, sides))[1])
        found = quick(images)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert padded
    assert all(isinstance(what, nn.Parameter) for what in padded)
    assert kinds(quick)["ReLU6"] == 0


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 2), (5, 3), (2, 2)])
def test_the_same_padding_on_all_sides_is_that_of_tensorflow(kernel: int, stride: int) -> None:
    layer = _SameConvolution(4, 4, kernel, stride, groups=4)
    for height in range(1, 13):
        maps = torch.randn(1, 4, height, 9)
        weight, padding = layer.alike_on_all_sides(maps)
        found = nn.functional.conv2d(maps, weight, layer.bias, stride, padding, groups=4)
        torch.testing.assert_close(found, layer(maps))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.1), nn.GELU(), None])
@pytest.mark.parametrize("norm", [True, False])
def test_only_known_activations_become_part_of_a_convolution(activation: nn.Module | None, norm: bool) -> None:
    layers = [nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=not norm), *([nn.BatchNorm2d(8)] if norm else [])]
    net = lively(nn.Sequential(*layers, *([] if activation is None else [activation]), nn.Conv2d(8, 4, 1)))
    wanted, found, _ = both(net, 20 * torch.randn(2, 3, 9, 9))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def _normalize(layer: nn.Module, _: Any) -> None:
    layer.weight.data /= layer.weight.data.norm()


def test_what_is_more_than_a_convolution_stays_as_it_is() -> None:
    class Standardized(nn.Conv2d):
        def forward(self, maps: Tensor) -> Tensor:
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return self._conv_forward(maps, weight, self.bias)

    def doubled() -> nn.Module:
        layer = nn.Conv2d(3, 8, 3)
        layer.register_forward_hook(lambda _, __, maps: 2 * maps)
        return layer

    def normalized() -> nn.Module:
        layer = nn.Conv2d(3, 8, 3)
        layer.register_forward_pre_hook(_normalize)
        return layer

    makes: list[Callable[[], nn.Module]] = [
        lambda: Standardized(3, 8, 3),
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)),
        doubled,
        normalized,
        lambda: nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
        lambda: nn.Conv2d(3, 8, 3, padding="same"),
    ]
    for make in makes:
        net = lively(nn.Sequential(make(), nn.BatchNorm2d(8), nn.ReLU()))
        wanted, found, _ = both(net, torch.randn(2, 3, 9, 9))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_normalization_that_kept_nothing_stays() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()).eval()
    wanted, found, quick = both(net, torch.randn(4, 3, 9, 9))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert kinds(quick)["BatchNorm2d"] == 1


def raises(*_: Any) -> Tensor:
    raise RuntimeError("not here")


@pytest.mark.parametrize("call", [raises, lambda maps, weight, *_: nn.functional.conv2d(maps, weight)])
def test_without_a_call_that_is_right_the_plain_layers_compute(
    call: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    room._can_fuse.cache_clear()
    monkeypatch.setattr(room, "_convolved", call)
    net = lively(make_network("efficientnet-lite0", in_channels=3, num_classes=2).backbone)
    wanted, found, quick = both(net, torch.randn(2, 3, 32, 32))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert (kinds(quick)["_Fused"], kinds(quick)["BatchNorm2d"]) == (0, 0)


def test_half_precision_computes_nearly_the_same() -> None:
    net = lively(make_network("efficientnet-lite0", in_channels=3, num_classes=2).backbone)
    wanted, found, _ = both(net, torch.randn(2, 3, 32, 32), torch.bfloat16)
    assert torch.cosine_similarity(found, wanted).min() > 0.999


def test_preparing_draws_nothing_and_leaves_the_network_alone() -> None:
    net = make_network("efficientnet-lite0", in_channels=3, num_classes=2).backbone.train()
    before, state = kinds(net), torch.get_rng_state()
    room._can_fuse.cache_clear()
    prepared(net, CPU, torch.float32)
    assert torch.equal(torch.get_rng_state(), state)
    assert kinds(net) == before
    assert net.training
