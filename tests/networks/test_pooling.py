"""Pooling before the normalization is what pooling after it is, with all gradients and running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epass.networks import pooling
from epass.networks.pooling import Shrink, normalize_and_shrink
from epass.networks.small import Small
from epass.parts.statistics import SharedBatchNorm

Layers = tuple[nn.Conv2d, nn.BatchNorm2d, Shrink]


def make_layers(dtype: torch.dtype = torch.float64) -> Layers:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(5, momentum=0.3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.5, -0.7, 0.01, 0.2, -2.0]))
        norm.bias.copy_(torch.randn(5))
    convolution = nn.Conv2d(3, 5, 3, padding=1, bias=False).to(dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return convolution, norm.to(dtype), Shrink(8, further=2)


def make_images(height: int = 16, width: int = 16, dtype: torch.dtype = torch.float64) -> Tensor:
    return 1 + torch.randn(4, 3, height, width, generator=torch.Generator().manual_seed(1), dtype=dtype)


def in_order(convolution: nn.Module, norm: nn.Module, shrink: nn.Module, images: Tensor) -> Tensor:
    return shrink(norm(convolution(images)))


def results(compute: Callable[..., Tensor], layers: Layers, images: Tensor) -> dict[str, Tensor]:
    """What comes out, every gradient, and what the normalization remembers after two steps."""
    convolution, norm, shrink = copy.deepcopy(layers)
    images = images.clone().requires_grad_()
    for _ in range(2):
        for tensor in (images, convolution.weight, *norm.parameters()):
            tensor.grad = None
        out = compute(convolution, norm, shrink, images)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
        (weights * out + out.square()).sum().backward()
    gradients = {name: tensor.grad for name, tensor in norm.named_parameters(prefix="norm")}
    found = {"out": out, "images": images.grad, "weight": convolution.weight.grad, **gradients}
    found |= dict(norm.named_buffers())
    return {name: tensor.detach() for name, tensor in found.items() if tensor is not None}


@pytest.mark.parametrize(("height", "width"), [(16, 16), (16, 24), (23, 19), (40, 33)])
def test_the_order_makes_no_difference(height: int, width: int, watched: list[int]) -> None:
    layers, images = make_layers(), make_images(height, width)
    found, wanted = results(normalize_and_shrink, layers, images), results(in_order, layers, images)
    assert len(found) == 8
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, msg=name)
    assert watched == [layers[2].window(images)] * 2


def test_a_channel_is_normalized_by_all_its_pixels_in_loops() -> None:
    convolution, norm, shrink = make_layers()
    images = make_images(17, 17)
    out, maps = normalize_and_shrink(convolution, norm, shrink, images), convolution(images).tolist()
    scales, shifts = norm.weight.tolist(), norm.bias.tolist()
    for channel in range(5):
        pixels = [pixel for image in maps for row in image[channel] for pixel in row]
        mean = sum(pixels) / len(pixels)
        variance = sum((pixel - mean) ** 2 for pixel in pixels) / len(pixels)
        for number, image in enumerate(maps):
            for y in range(4):
                for x in range(4):
                    window = [image[channel][4 * y + i][4 * x + j] for i in range(4) for j in range(4)]
                    normal = [(pixel - mean) / (variance + norm.eps) ** 0.5 for pixel in window]
                    wanted = max(scales[channel] * value + shifts[channel] for value in normal)
                    assert out[number, channel, y, x].item() == pytest.approx(wanted, abs=1e-9)


def test_a_step_of_the_small_network_is_the_same_in_float32(watched: list[int]) -> None:
    torch.manual_seed(0)
    fast = Small(in_channels=3)
    plain, images = copy.deepcopy(fast), make_images(64, 64, torch.float32)
    plain.pool.register_forward_hook(lambda *_: None)  # whoever looks at a layer gets to see it
    for net in (fast, plain):
        net(images).square().sum().backward()
    assert watched == [8]
    for (name, ours), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4, msg=name)
    for (name, ours), theirs in zip(fast.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The windows of every use of the shortcut."""
    windows: list[int] = []
    apply = pooling._NormalizeAndPool.apply

    def counting(*given: Any) -> Any:
        windows.append(given[-1])
        return apply(*given)

    monkeypatch.setattr(pooling._NormalizeAndPool, "apply", counting)
    return windows


def with_norm(**changes: Any) -> Layers:
    convolution, norm, shrink = make_layers()
    for name, value in changes.items():
        setattr(norm, name, value)
    return convolution, norm, shrink


def replaced(norm: nn.Module) -> Any:
    convolution, _, shrink = make_layers(torch.float32)
    return convolution, norm, shrink


@pytest.mark.parametrize(
    ("layers", "images"),
    [
        (with_norm(momentum=None), make_images()),
        (with_norm(training=False), make_images()),
        (replaced(nn.BatchNorm2d(5, affine=False)), make_images(dtype=torch.float32)),
        (replaced(nn.BatchNorm2d(5, track_running_stats=False)), make_images(dtype=torch.float32)),
        (replaced(SharedBatchNorm(5)), make_images(dtype=torch.float32)),
        ((make_layers()[0].to(memory_format=torch.contiguous_format), *make_layers()[1:]), make_images()),
        (make_layers(torch.bfloat16), make_images(dtype=torch.bfloat16)),
        ((*make_layers()[:2], Shrink(8)), make_images()),  # windows of two pixels
    ],
)
def test_everything_else_runs_in_order(layers: Layers, images: Tensor, watched: list[int]) -> None:
    found, wanted = results(normalize_and_shrink, layers, images), results(in_order, layers, images)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert watched == []


@pytest.mark.parametrize("which", range(3))
def test_whoever_looks_at_a_layer_gets_to_see_it(which: int, watched: list[int]) -> None:
    layers, seen = make_layers(), []
    layers[which].register_forward_hook(lambda module, inputs, out: seen.append(out))
    out = normalize_and_shrink(*layers, make_images())
    assert len(seen) == 1
    assert watched == []
    torch.testing.assert_close(out, in_order(*make_layers(), make_images()))


def test_under_autocast_all_runs_in_order(watched: list[int]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        normalize_and_shrink(*make_layers(torch.float32), make_images(dtype=torch.float32))
    assert watched == []


def test_a_compiler_gets_to_see_the_layers() -> None:
    programs: list[str] = []

    def backend(program: torch.fx.GraphModule, _: object) -> Any:
        programs.append(program.code)
        return program.forward

    torch.compile(normalize_and_shrink, backend=backend, fullgraph=True)(*make_layers(), make_images())
    assert "batch_norm" in programs[0]
    assert "update_stats" not in programs[0]
    assert "autograd" not in programs[0]
