"""Normalization, activation and residual sums in few passes over the maps, for CUDA, as the plain modules compute them.

The compiler takes the statistics of maps by an algorithm of many operations, and a square root for each of their
numbers. Here they are plain sums, taken while something is written where that can be, and what the pixels of a channel
share is computed once.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..machine.distributed import sum_over_ranks, world_size
from .operators import LEAST_CHANNELS, add_and_sum, channel_sums, gradient_sums
from .shared_norm import SharedBatchNorm, remember

HALVES = (torch.bfloat16, torch.float16)
NORMS = (nn.BatchNorm2d, SharedBatchNorm)


def can_be_compiled(maps: Tensor) -> bool:
    """Whether kernels are of use here: what surrounds them is slower than the plain modules if it is not compiled."""
    return torch.compiler.is_compiling() and maps.is_cuda and torch.version.hip is None


def fits(maps: Tensor, *norms: nn.Module) -> bool:
    """Whether `activated` and `added` can take these layers and maps, and are faster."""
    return (
        can_be_compiled(maps)
        and maps.dtype in HALVES
        and maps.shape[1] % LEAST_CHANNELS == 0
        and maps.numel() < 2**30  # the kernels count in 32 bits, and other channels may lie between these
        and all(type(norm) in NORMS and norm.training and norm.affine for norm in norms)
    )


def added(branch: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
    """Both maps added, and the sums of the result in parts: of each channel, and of its squares, (n, 2, channels)."""
    return cast(tuple[Tensor, Tensor], apply(_Added, branch, shortcut))


def activated(norm: nn.BatchNorm2d, slope: float, maps: Tensor, sums: Tensor | None) -> Tensor:
    """Normalization of `maps`, whose sums in this process may be known, and LeakyReLU."""
    return cast(Tensor, apply(_Activated, maps, *Statistics.of(norm, maps, sums), norm.weight, norm.bias, slope))


class Statistics(NamedTuple):
    """What a normalization subtracts and multiplies by, (channels,), and whether all processes share it."""

    mean: Tensor
    inverse: Tensor
    shared: bool

    @classmethod
    def of(cls, norm: nn.BatchNorm2d, maps: Tensor, parts: Tensor | None) -> Statistics:
        """Of `maps`, whose sums in this process may be known in parts, (n, 2, channels); `norm` remembers them."""
        count, shared = maps.numel() // maps.shape[1], isinstance(norm, SharedBatchNorm)
        total, squares = _sums(channel_sums(maps.detach()) if parts is None else parts, shared)
        count *= world_size() if shared else 1
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0)
        if norm.track_running_stats:
            remember(norm, mean, variance * (count / max(count - 1, 1)))
        return cls(mean, (variance + norm.eps).rsqrt(), shared)

    def line(self, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The normalization as one factor and one summand for each channel."""
        factor = scale * self.inverse
        return factor, shift - self.mean * factor

    def gradients(self, inner: Tensor, maps: Tensor, scale: Tensor, parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Those of `maps`, scale and shift, of that of what was normalized and of its sums in parts, (n, 2, channels).

        The sums are those of `inner`, and of its products with `maps`. The statistics came as numbers: what they add to
        the gradient of `maps` is in here. It depends on all rows that they were taken over, whoever has them.
        """
        by_shift, product = _sums(parts)
        by_scale = (product - self.mean * by_shift) * self.inverse
        count, by_mean, by_deviation = maps.numel() // maps.shape[1], by_shift, by_scale
        if self.shared:
            by_mean, by_deviation = sum_over_ranks(torch.stack([by_shift, by_scale]))
            count *= world_size()
        factor, falls = scale * self.inverse, self.inverse * by_deviation / count
        constant = factor * (self.mean * falls - by_mean / count)
        by_maps = inner.float() * by_channel(factor) - maps.float() * by_channel(factor * falls) + by_channel(constant)
        return by_maps.to(maps.dtype), by_scale, by_shift


def _sums(parts: Tensor, shared: bool = False) -> tuple[Tensor, Tensor]:
    """Both sums of what came in parts, over all processes if `shared`."""
    both = parts[:, 0].sum(0), parts[:, 1].sum(0)  # one by one: the compiler then goes on in the same kernel
    if shared:
        first, second = sum_over_ranks(torch.stack(both))
        return first, second
    return both


def activate(maps: Tensor, scale: Tensor, shift: Tensor, slope: float) -> Tensor:
    """LeakyReLU of a normalization that is written as a line."""
    return F.leaky_relu(maps.float() * by_channel(scale) + by_channel(shift), slope).to(maps.dtype)


def by_channel(values: Tensor) -> Tensor:
    """Numbers of channels, (channels,), where maps can be multiplied by them."""
    return values[:, None, None]


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """What it makes of them; torch gives no type for it."""
    return function.apply(*inputs)  # type: ignore[no-untyped-call]


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, branch: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
        out, parts = add_and_sum(branch, shortcut)
        ctx.mark_non_differentiable(parts)
        return out, parts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], gradients[0]


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, mean: Tensor, inverse: Tensor, shared: bool, scale: Tensor, shift: Tensor, slope: float
    ) -> Tensor:
        ctx.save_for_backward(maps, mean, inverse, scale, shift)
        ctx.shared, ctx.slope = shared, slope
        return activate(maps, *Statistics(mean, inverse, shared).line(scale, shift), slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        maps, mean, inverse, scale, shift = ctx.saved_tensors
        statistics, gradient = Statistics(mean, inverse, ctx.shared), gradients[0]
        by, plus = statistics.line(scale, shift)
        parts = gradient_sums(gradient, maps, by, plus, ctx.slope)
        rises = maps.float() * by_channel(by) + by_channel(plus) > 0
        inner = torch.where(rises, gradient, ctx.slope * gradient)
        by_maps, by_scale, by_shift = statistics.gradients(inner, maps, scale, parts)
        return by_maps, None, None, None, by_scale, by_shift, None
