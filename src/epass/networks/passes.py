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
from .operators import (
    LEAST_CHANNELS,
    add_and_sum,
    batch_gradients,
    batch_statistics,
    channel_sums,
    channels_last,
    gradient_sums,
    sum_parts,
)
from .shared_norm import SharedBatchNorm

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
        and all(type(norm) in NORMS and norm.training and norm.affine and norm.momentum is not None for norm in norms)
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
    scale: Tensor  # the same as a factor and a summand, with weight and bias
    shift: Tensor
    shared: bool

    @classmethod
    def of(cls, norm: nn.BatchNorm2d, maps: Tensor, parts: Tensor | None) -> Statistics:
        """Of `maps`, whose sums in this process may be known in parts, (n, 2, channels); `norm` remembers them."""
        parts = channel_sums(maps.detach()) if parts is None else parts
        count, shared = maps.numel() // maps.shape[1], isinstance(norm, SharedBatchNorm)
        if shared:
            parts, count = sum_over_ranks(sum_parts(parts)), world_size() * count
        kept: tuple[Any, ...] = (None, None, None, 0.0)
        if norm.track_running_stats:
            kept = (norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.momentum)
        with torch.no_grad():
            found = batch_statistics(parts, norm.weight, norm.bias, count, norm.eps, *kept)
        mean, inverse, scale, shift = found
        return cls(mean, inverse, scale, shift, shared)

    def gradients(self, maps: Tensor, weight: Tensor, parts: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Those of weight and bias, and the three numbers of each channel that make that of `maps`, of `made_of`.

        The `parts` are sums of the gradient of what was normalized, and of its products with `maps`, (n, 2, channels).
        """
        count, own = maps.numel() // maps.shape[1], None
        if self.shared:  # what the statistics add depends on all rows that they were taken over, whoever has them
            own, parts, count = parts, sum_over_ranks(sum_parts(parts)), world_size() * count
        by_weight, by_bias, *three = batch_gradients(parts, self.mean, self.inverse, weight, count, own)
        return by_weight, by_bias, tuple(three)


def made_of(inner: Tensor, maps: Tensor, by_gradient: Tensor, by_maps: Tensor, constant: Tensor) -> Tensor:
    """The gradient of `maps`, of that of what was normalized."""
    found = inner.float() * by_channel(by_gradient) + maps.float() * by_channel(by_maps) + by_channel(constant)
    return found.to(maps.dtype)


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
        ctx: Any,
        maps: Tensor,
        mean: Tensor,
        inverse: Tensor,
        scale: Tensor,
        shift: Tensor,
        shared: bool,
        weight: Tensor,
        bias: Tensor,
        slope: float,
    ) -> Tensor:
        ctx.save_for_backward(maps, mean, inverse, scale, shift, weight)
        ctx.shared, ctx.slope = shared, slope
        return activate(maps, scale, shift, slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        maps, mean, inverse, scale, shift, weight = ctx.saved_tensors
        gradient = channels_last(gradients[0])  # that of a mean over pixels comes in another order
        parts = gradient_sums(gradient, maps, scale, shift, ctx.slope)
        statistics = Statistics(mean, inverse, scale, shift, ctx.shared)
        by_weight, by_bias, three = statistics.gradients(maps, weight, parts)
        rises = maps.float() * by_channel(scale) + by_channel(shift) > 0
        by_maps = made_of(torch.where(rises, gradient, ctx.slope * gradient), maps, *three)
        return by_maps, None, None, None, None, None, by_weight, by_bias, None
