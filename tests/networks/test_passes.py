"""Sums over pixels against loops, and normalization and residual sums against the plain modules.

Without a GPU Triton's interpreter runs the kernels (`conftest.py`), in float32. Whole units are in `test_narrow.py`.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass.networks import operators, passes
from epass.networks.shared_norm import SharedBatchNorm

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [pytest.mark.gpu] if DEVICE.type == "cuda" else []
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
CLOSE = 1e-2 if DEVICE.type == "cuda" else 1e-5


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setattr(operators, "PARTS", 2)


def maps(images: int, channels: int, size: int = 4, seed: int = 0) -> Tensor:
    values = torch.randn(images, size, size, channels, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, DTYPE).permute(0, 3, 1, 2)


def slow_sums(values: Tensor, others: Tensor) -> Tensor:
    """Of every channel, and of its products, pixel by pixel."""
    found = torch.zeros(2, values.shape[1], dtype=torch.float64)
    pixels, partners = (each.permute(0, 2, 3, 1).flatten(0, 2).double().cpu() for each in (values, others))
    for pixel, partner in zip(pixels, partners, strict=True):
        found += torch.stack([pixel, pixel * partner])
    return found


def close(ours: Tensor, exact: Tensor) -> None:
    assert ours.shape == exact.shape
    assert (ours.detach().double().cpu() - exact.detach().double().cpu()).norm() < CLOSE * exact.double().norm()


@pytest.mark.parametrize(("images", "channels"), [(3, 16), (40, 48), (21, 64), (2, 256), (1, 160)])
def test_sums_of_channels(images: int, channels: int) -> None:
    x = maps(images, channels)
    close(operators.channel_sums(x).sum(0), slow_sums(x, x))


@pytest.mark.parametrize(("images", "channels"), [(3, 16), (40, 48), (2, 256)])
def test_maps_that_are_added_and_their_sums(images: int, channels: int) -> None:
    x, y = maps(images, channels), maps(images, channels, seed=1)
    out, parts = operators.add_and_sum(x, y)
    close(out, x.double() + y.double())
    close(parts.sum(0), slow_sums(out, out))  # of what was written, after rounding


@pytest.mark.parametrize(("images", "channels"), [(3, 16), (40, 48), (2, 256)])
def test_sums_of_a_gradient(images: int, channels: int) -> None:
    gradient, x = maps(images, channels), maps(images, channels, seed=1)
    line = torch.stack([torch.linspace(-2, 2, channels), torch.linspace(1, -1, channels)])
    exact = gradient.double().cpu()
    for channel in range(channels):
        off = x[:, channel].double().cpu() * line[0, channel] + line[1, channel] <= 0
        exact[:, channel][off] *= 0.1
    close(operators.gradient_sums(gradient, x, *line.to(DEVICE), 0.1).sum(0), slow_sums(exact, x.cpu()))


@pytest.mark.parametrize(("number", "channels"), [(1, 16), (300, 48)])
def test_parts_in_one(number: int, channels: int) -> None:
    parts = torch.randn(number, 2, channels, generator=torch.Generator().manual_seed(0))
    found = operators.sum_parts(parts.to(DEVICE))
    assert found.shape == (1, 2, channels)
    torch.testing.assert_close(found[0].cpu(), sum(parts), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("number", "channels"), [(1, 16), (300, 48)])
def test_statistics_of_sums_in_parts(number: int, channels: int) -> None:
    torch.manual_seed(0)
    parts = torch.rand(number, 2, channels).double()
    parts[:, 1] += 50  # squares: the variance is positive
    weight, bias = torch.randn(2, channels).double()
    count = 50 * number
    exact = torch.zeros(4, channels).double()
    running_mean, running_var = torch.randn(2, channels).double()
    moved = torch.zeros(2, channels).double()
    for channel in range(channels):
        mean = sum(parts[:, 0, channel]) / count
        variance = sum(parts[:, 1, channel]) / count - mean**2
        factor = weight[channel] / (variance + 1e-3).sqrt()
        values = [mean, 1 / (variance + 1e-3).sqrt(), factor, bias[channel] - mean * factor]
        exact[:, channel] = torch.stack(values)
        moved[0, channel] = 0.75 * running_mean[channel] + 0.25 * mean
        moved[1, channel] = 0.75 * running_var[channel] + 0.25 * variance * count / (count - 1)
    given = [each.float().to(DEVICE) for each in (parts, weight, bias)]
    kept = [each.float().to(DEVICE) for each in (running_mean, running_var)]
    batches = torch.tensor(7, device=DEVICE)
    for running in ((None, None, None, 0.0), (*kept, batches, 0.25)):
        for ours, theirs in zip(operators.batch_statistics(*given, count, 1e-3, *running), exact, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.stack(kept).cpu(), moved.float(), rtol=1e-4, atol=1e-5)
    assert batches == 8


def test_maps_of_one_value_have_no_variance() -> None:
    sums = torch.tensor([8 * 3.3, 8 * 3.3**2 * (1 - 1e-6)])  # as rounding can leave them
    one, none = torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    parts = sums[:, None].expand(2, 16)[None].contiguous().to(DEVICE)
    _, inverse, *_ = operators.batch_statistics(parts, one, none, 8, 1e-5, None, None, None, 0.0)
    torch.testing.assert_close(inverse, torch.full_like(inverse, 1e-5**-0.5))


def test_a_compiler_is_told_what_is_written_to() -> None:
    line = torch.ones(5, 16, device=DEVICE)
    given = (line[None, :2], *line[1:3], 4, 1e-5, *line[3:], torch.tensor(0, device=DEVICE), 0.5)
    torch.library.opcheck(operators.batch_statistics, given, test_utils=("test_schema", "test_faketensor"))


def test_one_pixel_moves_running_statistics_by_a_number() -> None:
    line, kept = torch.ones(2, 16, device=DEVICE), torch.zeros(2, 16, device=DEVICE)
    operators.batch_statistics(line[None], *line, 1, 1e-5, *kept, torch.tensor(0, device=DEVICE), 0.5)
    assert kept.tolist() == [[0.5] * 16, [0.0] * 16]


def test_maps_between_which_others_lie() -> None:
    """The two halves of what one convolution made, and an order that has to be changed first."""
    both = maps(5, 48)
    first, second = both.split([16, 32], 1)
    close(operators.channel_sums(first).sum(0), slow_sums(first, first))
    close(operators.channel_sums(second).sum(0), slow_sums(second, second))
    out, parts = operators.add_and_sum(second, maps(5, 32, seed=2).contiguous())
    close(out, second.double() + maps(5, 32, seed=2).double())
    close(parts.sum(0), slow_sums(out, out))
    line = torch.ones(2, 32, device=DEVICE)
    close(operators.gradient_sums(maps(5, 32), second, *line, 1.0).sum(0), slow_sums(maps(5, 32), second))


@pytest.mark.parametrize("slope", [0.1, 0.0])
@pytest.mark.parametrize("knows_the_sums", [True, False])
def test_normalization_and_activation_with_gradients(slope: float, knows_the_sums: bool) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(48, eps=1e-3, momentum=0.3).to(DEVICE)
    nn.init.normal_(norm.weight, 1, 0.5)
    nn.init.normal_(norm.bias, 0, 0.5)
    exact = copy.deepcopy(norm).double()
    x = (3 * maps(21, 48) + 5).detach().requires_grad_()
    y = x.detach().double().requires_grad_()
    sums = operators.channel_sums(x.detach()) if knows_the_sums else None
    truth, gradient = F.leaky_relu(exact(y), slope), maps(21, 48, seed=1)
    out = passes.activated(norm, slope, x, sums)
    out.backward(gradient)
    truth.backward(gradient.double())
    close(out, truth)
    for ours, theirs in ((x, y), (norm.weight, exact.weight), (norm.bias, exact.bias)):
        assert ours.grad is not None
        assert theirs.grad is not None
        close(ours.grad, theirs.grad)
    for ours, theirs in zip(norm.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=CLOSE, atol=CLOSE)


def test_both_summands_get_the_gradient() -> None:
    branch, shortcut = maps(3, 16).requires_grad_(), maps(3, 16, seed=1).requires_grad_()
    out, sums = passes.added(branch, shortcut)
    assert not sums.requires_grad
    out.backward(maps(3, 16, seed=2))
    for summand in (branch, shortcut):
        assert summand.grad is not None
        assert torch.equal(summand.grad, maps(3, 16, seed=2))


def pretended(channels: int = 32, **changes: Any) -> Any:
    shape = torch.Size((8, channels, 4, 4))
    facts = {"is_cuda": True, "dtype": torch.bfloat16, "shape": shape, "numel": shape.numel}
    return SimpleNamespace(**{**facts, **changes})


@pytest.mark.parametrize(
    ("what", "fits"),
    [
        ((pretended(), nn.BatchNorm2d(32), SharedBatchNorm(32)), True),
        ((pretended(640), nn.BatchNorm2d(640)), True),
        ((pretended(is_cuda=False), nn.BatchNorm2d(32)), False),
        ((pretended(dtype=torch.float32), nn.BatchNorm2d(32)), False),
        ((pretended(24), nn.BatchNorm2d(24)), False),
        ((pretended(numel=lambda: 2**30), nn.BatchNorm2d(32)), False),
        ((pretended(), nn.BatchNorm2d(32), nn.BatchNorm2d(32).eval()), False),
        ((pretended(), nn.BatchNorm2d(32, affine=False)), False),
        ((pretended(), nn.SyncBatchNorm(32)), False),
    ],
)
def test_what_they_take(what: tuple[Any, ...], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not passes.fits(*what)  # nothing is being compiled
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert passes.fits(*what) == fits
