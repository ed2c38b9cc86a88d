"""BatchNorm on a CPU whose cores do not wait for each other.

Of maps whose channels lie side by side, torch adds up gradients in one row of numbers for each thread, one row after
the other. Where a row is no whole number of cache lines, two threads write to one line, and both together take several
times as long as one alone: with 24 channels, more than all convolutions of a small network.
"""

from __future__ import annotations

from math import gcd
from typing import Any, cast

import torch
from torch import Tensor, nn

from .passes import apply

_LINE = 16  # numbers of 32 bits in a cache line
_TOGETHER = 16  # images whose gradients are made at a time: what the caches hold
_LEAST = 2**20  # numbers in maps: of smaller ones, the wait is as short as our own way takes


def normalized(norm: nn.BatchNorm2d, maps: Tensor) -> Tensor:
    """What `norm` makes of the maps, up to the rounding of gradients."""
    if _fits(norm, maps):
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        kept = (norm.running_mean, norm.running_var, norm.momentum, norm.eps)
        return cast(Tensor, apply(_Normalized, maps, norm.weight, norm.bias, *kept))
    return cast(Tensor, norm(maps))


def _fits(norm: nn.BatchNorm2d, maps: Tensor) -> bool:
    channels = maps.shape[1]
    return (
        maps.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and maps.dtype == torch.float32
        and maps.numel() >= _LEAST
        and channels % _LINE != 0
        and (maps.numel() // channels) % _side_by_side(channels) == 0
        and maps.is_contiguous(memory_format=torch.channels_last)
        and type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
    )


def _side_by_side(channels: int) -> int:
    """Pixels whose channels are a whole number of cache lines."""
    return _LINE // gcd(channels, _LINE)


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Tensor:
        out, batch_mean, inverse = torch.native_batch_norm(maps, weight, bias, mean, var, True, momentum, eps)
        ctx.save_for_backward(maps, weight, batch_mean, inverse)
        ctx.eps = eps
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        maps, weight, mean, inverse = ctx.saved_tensors
        gradient = gradients[0]
        by_weight, by_bias = _sums(gradient, maps, weight, mean, inverse, ctx.eps)
        # A gradient of the maps is a line through it and them: what all pixels of a channel share is computed once.
        share = weight * inverse
        by_maps = -share * inverse * by_weight * (maps.shape[1] / maps.numel())
        constant = -share * by_bias * (maps.shape[1] / maps.numel()) - by_maps * mean
        pixels = maps.shape[2] * maps.shape[3]
        share, by_maps, constant = (numbers.repeat(pixels) for numbers in (share, by_maps, constant))
        made = torch.empty_like(maps)
        rows = [torch.split(_rows(part), _TOGETHER) for part in (made, gradient, maps)]
        for place, inner, outer in zip(*rows, strict=True):
            torch.addcmul(constant, inner, share, out=place).addcmul_(outer, by_maps)
        return made, by_weight, by_bias, None, None, None, None


def _rows(maps: Tensor) -> Tensor:
    """Every image in one row; a copy only of a gradient whose channels do not lie side by side."""
    return maps.permute(0, 2, 3, 1).flatten(1)


def _sums(
    gradient: Tensor, maps: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias: torch's own, of several pixels as if they were one of more channels."""
    many = _side_by_side(len(weight))
    inner, outer = (part.permute(0, 2, 3, 1).reshape(-1, many * len(weight)) for part in (gradient, maps))
    weights, means, inverses = (numbers.repeat(many) for numbers in (weight, mean, inverse))
    _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
        inner, outer, weights, None, None, means, inverses, True, eps, [False, True, True]
    )
    return by_weight.view(many, -1).sum(0), by_bias.view(many, -1).sum(0)
