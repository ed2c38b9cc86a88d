"""Our kernels against loops over pixels. Without a GPU Triton's interpreter runs them (`conftest.py`), in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass.networks import narrow, operators, passes
from epass.networks.shared_norm import SharedBatchNorm
from epass.networks.wide_resnet import WideResNet, _FirstUnit, _TransitionUnit, _Unit

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [pytest.mark.gpu] if DEVICE.type == "cuda" else []  # elsewhere Triton's interpreter runs them
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
CLOSE = 1e-2 if DEVICE.type == "cuda" else 1e-5
TAPS = list(product(range(3), range(3)))


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":  # one after the other
        monkeypatch.setattr(operators, "PARTS", 5)


def maps(images: int, channels: int, size: int = 8, seed: int = 0) -> Tensor:
    values = torch.randn(images, size, size, channels, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, DTYPE).permute(0, 3, 1, 2)


def weights(outputs: int, inputs: int, *, order: torch.memory_format = torch.channels_last) -> Tensor:
    values = torch.randn(outputs, inputs, 3, 3, generator=torch.Generator().manual_seed(9)) / 6
    return values.to(DEVICE).contiguous(memory_format=order)


def rounded(values: Tensor) -> Tensor:
    """As the kernels see them, in a precision in which nothing else is lost."""
    return values.to(DTYPE).double()


def neighbor(values: Tensor, row: int, column: int) -> Tensor | None:
    height, width = values.shape[2:]
    return values[:, :, row, column] if 0 <= row < height and 0 <= column < width else None


def slow_convolution(values: Tensor, weight: Tensor) -> Tensor:
    out = values.new_zeros(len(values), len(weight), *values.shape[2:])
    for row, column in product(range(out.shape[2]), range(out.shape[3])):
        for down, right in TAPS:
            seen = neighbor(values, row + down - 1, column + right - 1)
            if seen is not None:
                out[:, :, row, column] += seen @ weight[:, :, down, right].T
    return out


def slow_input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    out = gradient.new_zeros(len(gradient), weight.shape[1], *gradient.shape[2:])
    for row, column in product(range(out.shape[2]), range(out.shape[3])):
        for down, right in TAPS:
            beside = neighbor(gradient, row - down + 1, column - right + 1)
            if beside is not None:
                out[:, :, row, column] += beside @ weight[:, :, down, right]
    return out


def slow_weight_gradient(values: Tensor, gradient: Tensor) -> Tensor:
    out = values.new_zeros(3, 3, values.shape[1], gradient.shape[1])
    for row, column in product(range(values.shape[2]), range(values.shape[3])):
        for down, right in TAPS:
            seen = neighbor(values, row + down - 1, column + right - 1)
            if seen is not None:
                out[down, right] += seen.T @ gradient[:, :, row, column]
    return out


def close(ours: Tensor, exact: Tensor, within: float = CLOSE) -> None:
    assert ours.shape == exact.shape
    distance = (ours.detach().double() - exact.detach().double()).norm() / exact.detach().double().norm()
    assert distance < within, distance


def sums_of(values: Tensor, others: Tensor) -> Tensor:
    return torch.stack([values.sum((0, 2, 3)), (values * others).sum((0, 2, 3))])


@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (32, 32), (32, 16)])
@pytest.mark.parametrize(("images", "size"), [(19, 8), (5, 16), (1, 8)])
def test_a_convolution(inputs: int, outputs: int, images: int, size: int) -> None:
    x, weight = maps(images, inputs, size), weights(outputs, inputs)
    exact = slow_convolution(rounded(x), rounded(weight))
    out, parts = operators.convolve(x, weight)
    close(out, exact)
    close(parts.sum(0), sums_of(exact, exact))
    add = maps(images, outputs, size, seed=1)
    exact += rounded(add)
    out, parts = operators.convolve(x, weight, add)
    close(out, exact)
    close(parts.sum(0), sums_of(exact, exact))


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_the_gradient_of_its_input(order: torch.memory_format) -> None:
    gradient, weight = maps(19, 32), weights(32, 16, order=order)
    exact = slow_input_gradient(rounded(gradient), rounded(weight))
    out, _ = operators.convolve(gradient, weight, transposed=True)
    close(out, exact)


def test_the_gradient_before_the_activation() -> None:
    gradient, weight, before = maps(19, 32), weights(32, 32), maps(19, 32, seed=2)
    scale, shift = torch.linspace(-2, 2, 32, device=DEVICE), torch.linspace(1, -1, 32, device=DEVICE)
    exact = slow_input_gradient(rounded(gradient), rounded(weight))
    for channel in range(32):
        off = rounded(before)[:, channel] * scale[channel] + shift[channel] <= 0
        exact[:, channel][off] *= 0.1
    out, parts = operators.convolve(gradient, weight, None, before, scale, shift, transposed=True, slope=0.1)
    close(out, exact)
    close(parts.sum(0), sums_of(exact, rounded(before)))


@pytest.mark.parametrize(("inputs", "outputs", "images", "size"), [(16, 32, 19, 8), (32, 32, 3, 16), (32, 16, 1, 8)])
def test_the_gradient_of_its_weights(inputs: int, outputs: int, images: int, size: int) -> None:
    x, gradient = maps(images, inputs, size), maps(images, outputs, size, seed=3)
    close(operators.weight_sums(x, gradient).sum(0), slow_weight_gradient(rounded(x), rounded(gradient)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_the_first_convolution(channels: int, order: torch.memory_format) -> None:
    pictures = torch.randn(19, channels, 8, 8, device=DEVICE).contiguous(memory_format=order)
    weight, bias = weights(16, channels), torch.linspace(-1, 1, 16, device=DEVICE)
    out = operators.convolve_pictures(pictures, weight, bias, DTYPE)
    close(out, slow_convolution(rounded(pictures), rounded(weight)) + rounded(bias)[:, None, None])
    gradient = maps(19, 16)
    sums = operators.picture_weight_sums(pictures, gradient).sum(0)
    exact = slow_weight_gradient(rounded(pictures), rounded(gradient))
    close(sums[: 9 * channels].view(exact.shape), exact)
    close(sums[9 * channels], rounded(gradient).sum((0, 2, 3)))
    assert not sums[9 * channels + 1 :].any()


def layers_that_are_no_identity(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight, 1, 0.5)
            nn.init.normal_(part.bias, 0, 0.5)
            part.momentum = 0.5
    return module


UNITS: dict[str, Callable[[], _Unit]] = {
    "first": lambda: _FirstUnit(16, 32, 1),
    "further": lambda: _Unit(32, 32),
    "transition": lambda: _TransitionUnit(32, 64, 2, activated=False),
    "wide first": lambda: _FirstUnit(16, 48, 1),
    "wide": lambda: _Unit(48, 48),
    "wide transition": lambda: _TransitionUnit(80, 160, 2, activated=False),
    "activated transition": lambda: _TransitionUnit(32, 64, 2, activated=True),
}


@pytest.mark.skipif(DEVICE.type == "cuda", reason="in half precision the whole network is compared instead")
@pytest.mark.parametrize("knows_the_sums", [True, False])
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_and_all_its_gradients(name: str, knows_the_sums: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    unit = layers_that_are_no_identity(UNITS[name]())
    assert isinstance(unit, _Unit)
    monkeypatch.setattr(passes, "can_be_compiled", lambda maps: True)
    monkeypatch.setattr(passes, "HALVES", (torch.float32,))
    exact = copy.deepcopy(unit).double()
    x = maps(19, unit.conv1.in_channels).requires_grad_()
    y = x.detach().double().requires_grad_()
    out, sums = unit.faster(x, sums_of(x, x).detach()[None] if knows_the_sums else None)
    truth = exact(y)
    close(out, truth)
    close(sums.sum(0), sums_of(truth, truth))
    gradient = maps(19, out.shape[1], out.shape[2], seed=4)
    out.backward(gradient)
    truth.backward(gradient.double())
    assert x.grad is not None
    assert y.grad is not None
    close(x.grad, y.grad)
    for (which, ours), theirs in zip(unit.named_parameters(), exact.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), which
        if ours.grad is not None and theirs.grad is not None:
            close(ours.grad, theirs.grad)
    for ours, theirs in zip(unit.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-5, atol=1e-6)


class Waiting(Exception):
    """A process has said its part of a sum and needs those of the others to go on."""


def together(work: Callable[[int], Any], ranks: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `work` returns on each rank. Sums are told by doing everything again, up to the next one that is unknown."""
    known: list[Tensor] = []
    monkeypatch.setattr(passes, "world_size", lambda: ranks)
    while True:
        asked, results = [], []
        for rank in range(ranks):
            told = iter(known)

            def tell(part: Tensor, told: Iterator[Tensor] = told) -> Tensor:
                total = next(told, None)
                if total is None:
                    raise Waiting(part.detach().clone())
                return total

            monkeypatch.setattr(passes, "sum_over_ranks", tell)
            try:
                results.append(work(rank))
            except Waiting as waiting:
                asked.append(waiting.args[0])
        if not asked:
            return results
        known.append(torch.stack(asked).sum(0))


@pytest.mark.skipif(DEVICE.type == "cuda", reason="in half precision the whole network is compared instead")
@pytest.mark.parametrize("channels", [32, 48])
def test_a_unit_of_two_processes(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(passes, "can_be_compiled", lambda maps: True)
    monkeypatch.setattr(passes, "HALVES", (torch.float32,))
    unit = layers_that_are_no_identity(_Unit(channels, channels))
    x, gradient = maps(10, channels), maps(10, channels, seed=4)
    exact, y = copy.deepcopy(unit).double(), x.double().requires_grad_()
    truth = exact(y)
    truth.backward(gradient.double())

    def work(rank: int) -> tuple[_Unit, Tensor, Tensor, Tensor]:
        own, rows = copy.deepcopy(unit), x[rank::2].clone().requires_grad_()
        for part in own.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.__class__ = SharedBatchNorm
        assert isinstance(own, _Unit)
        out, sums = own.faster(rows, None)
        out.backward(gradient[rank::2])
        assert rows.grad is not None
        assert sums is not None
        return own, out, sums, rows.grad

    assert y.grad is not None
    found = together(work, 2, monkeypatch)
    for rank, (own, out, sums, by_rows) in enumerate(found):
        mine = slice(rank, None, 2)
        close(out, truth[mine])
        close(sums.sum(0), sums_of(truth[mine], truth[mine]))
        close(by_rows, y.grad[mine])
        for ours, theirs in zip(own.buffers(), exact.buffers(), strict=True):
            torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-5, atol=1e-6)
    for ours, others, theirs in zip(*(own.parameters() for own, *_ in found), exact.parameters(), strict=True):
        assert theirs.grad is not None
        close(ours.grad + others.grad, theirs.grad)


def test_running_statistics_can_be_left_alone() -> None:
    norm, layer = nn.BatchNorm2d(32).to(DEVICE), nn.Conv2d(32, 32, 3, padding=1, bias=False).to(DEVICE)
    before = copy.deepcopy(norm.state_dict())
    norm.track_running_stats = False
    narrow.activated_convolution(norm, 0.1, layer, maps(3, 32), None)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    norm.track_running_stats = True
    narrow.activated_convolution(norm, 0.1, layer, maps(3, 32), None)
    assert norm.num_batches_tracked == 1


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type == "cuda", reason="the test after this one is the one for GPUs")
def test_a_compiled_network_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "can_be_compiled", lambda maps: torch.compiler.is_compiling())
    monkeypatch.setattr(passes, "HALVES", (torch.float32,))
    monkeypatch.setattr(narrow, "fits_first", lambda layer, pictures: torch.compiler.is_compiling())
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float32)
    torch.manual_seed(0)
    net = WideResNet(16, 2)
    exact = copy.deepcopy(net).double()
    pictures = torch.randn(5, 3, 8, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        out = torch.compile(net, backend="aot_eager", fullgraph=True)(pictures)
        out.square().sum().backward()
    called = {event.key.removeprefix("epass::") for event in profile.key_averages() if event.key.startswith("epass::")}
    ours = {"convolve", "weight_sums", "convolve_pictures", "picture_weight_sums"}
    sums = {"channel_sums", "add_and_sum", "gradient_sums", "batch_statistics", "batch_gradients"}
    assert called == ours | sums
    truth = exact(pictures.double())
    truth.square().sum().backward()
    close(out, truth)
    for (which, mine), theirs in zip(net.named_parameters(), exact.parameters(), strict=True):
        if mine.grad is not None and which != "stem.bias":  # whose gradient is zero: a normalization follows
            assert theirs.grad is not None
            # Where rounding moves one number across zero before an activation, this is 3e-4; else it is 3e-6.
            close(mine.grad, theirs.grad, within=1e-3)
    for (which, kept), wanted in zip(net.named_buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(kept.double(), wanted.double(), rtol=1e-4, atol=1e-6, msg=which)


@pytest.mark.gpu
def test_a_compiled_network_is_as_exact_with_them_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    exact = WideResNet(28, 2).to(DEVICE).double()
    pictures = torch.randn(96, 3, 32, 32, device=DEVICE)
    truth = exact(pictures.double())
    truth.square().sum().backward()

    def distances() -> dict[str, float]:
        torch.compiler.reset()
        net = copy.deepcopy(exact).float().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        net.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            out = torch.compile(net, dynamic=False)(pictures)
        out.float().square().sum().backward()
        pairs = {"features": (out, truth)}
        for (name, ours), theirs in zip(net.named_parameters(), exact.parameters(), strict=True):
            if ours.grad is not None and theirs.grad is not None and name != "stem.bias":
                pairs[name] = (ours.grad, theirs.grad)
        with torch.no_grad():
            return {name: float((a.double() - b).norm() / b.norm()) for name, (a, b) in pairs.items()}

    with_ours = distances()
    monkeypatch.setattr(passes, "can_be_compiled", lambda maps: False)
    without = distances()
    assert with_ours != without
    assert with_ours["features"] < 0.01
    # What rounding to bfloat16 leaves of a gradient after 28 layers is a matter of the network, not of who convolves.
    worse = {name: (ours, without[name]) for name, ours in with_ours.items() if ours > 1.5 * without[name] + 1e-3}
    assert not worse


def layer(inputs: int = 32, outputs: int = 32, **settings: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, **{"padding": 1, "bias": False, **settings})


def pretended(channels: int = 32, width: int = 32, images: int = 8, **changes: Any) -> Any:
    shape = torch.Size((images, channels, width, width))
    facts = {"is_cuda": True, "dtype": torch.bfloat16, "shape": shape, "numel": shape.numel, "requires_grad": False}
    return SimpleNamespace(**{**facts, **changes})


@pytest.mark.parametrize(
    ("what", "fits"),
    [
        ((layer(), pretended(), nn.BatchNorm2d(32)), True),
        ((layer(16), pretended(16), nn.BatchNorm2d(16)), True),
        ((layer(), pretended(), SharedBatchNorm(32)), True),
        ((layer(), pretended(is_cuda=False), nn.BatchNorm2d(32)), False),
        ((layer(), pretended(dtype=torch.float32), nn.BatchNorm2d(32)), False),
        ((layer(64, 64), pretended(64), nn.BatchNorm2d(64)), False),
        ((layer(32, 64), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(stride=2), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(bias=True), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(padding=0), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(groups=2), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(padding_mode="circular"), pretended(), nn.BatchNorm2d(32)), False),
        ((layer(), pretended(width=48), nn.BatchNorm2d(32)), False),
        ((layer(), pretended(images=2**16), nn.BatchNorm2d(32)), False),
        ((layer(), pretended(), nn.BatchNorm2d(32).eval()), False),
        ((layer(), pretended(), nn.BatchNorm2d(32, affine=False)), False),
        ((layer(), pretended(), nn.BatchNorm2d(32, momentum=None)), False),
        ((layer(), pretended(), nn.SyncBatchNorm(32)), False),
    ],
)
def test_what_they_take(what: tuple[Any, ...], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not narrow.fits(*what)  # nothing is being compiled
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert narrow.fits(*what) == fits


@pytest.mark.parametrize(
    ("what", "fits"),
    [
        ((layer(3, 16, bias=True), pretended(3)), True),
        ((layer(1, 16, bias=True), pretended(1)), True),
        ((layer(4, 16, bias=True), pretended(4)), False),
        ((layer(3, 64, bias=True), pretended(3)), False),
        ((layer(3, 16), pretended(3)), False),
        ((layer(3, 16, bias=True, stride=2), pretended(3)), False),
        ((layer(3, 16, bias=True), pretended(3, requires_grad=True)), False),
        ((layer(3, 16, bias=True), pretended(3, is_cuda=False)), False),
    ],
)
def test_what_the_first_one_takes(what: tuple[Any, ...], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not narrow.fits_first(*what)  # outside autocast
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    assert narrow.fits_first(*what) == fits


def test_what_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert narrow.fits_joining(layer(64, 128, stride=2), pretended(64))
    assert not narrow.fits_joining(layer(128, 256, stride=2), pretended(128))
    assert not narrow.fits_joining(layer(64, 128, stride=2), pretended(64, dtype=torch.float32))


def test_a_reference_that_is_right() -> None:
    x, weight = torch.randn(2, 16, 5, 5).double(), torch.randn(32, 16, 3, 3).double()
    x.requires_grad_()
    weight.requires_grad_()
    out = F.conv2d(x, weight, padding=1)
    gradient = torch.randn_like(out)
    out.backward(gradient)
    assert x.grad is not None
    assert weight.grad is not None
    with torch.no_grad():
        close(slow_convolution(x, weight), out)
        close(slow_input_gradient(gradient, weight), x.grad)
        close(slow_weight_gradient(x, gradient).permute(3, 2, 0, 1), weight.grad)
