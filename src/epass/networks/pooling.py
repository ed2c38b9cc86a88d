"""Normalization of maps that are pooled right after it, on a CPU: few of the normalized pixels are ever needed.

A normalization keeps the order of the pixels of a channel, or reverses it where its scale is negative, so the maps may
be pooled first. What remains for all pixels is their mean and variance, and a gradient that is a line in the pixel.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_LEAST_SIZE = 4  # of windows, in pixels: with smaller ones next to nothing is gained


class Shrink(nn.Module):
    """Pools maps that are larger than `working_size` down to that size, and `further` than that."""

    def __init__(self, working_size: int, further: int = 1) -> None:
        super().__init__()
        self.working_size, self.further = working_size, further

    def forward(self, maps: Tensor) -> Tensor:
        return F.max_pool2d(maps, self.window(maps))

    def window(self, maps: Tensor) -> int:
        """The side of what becomes one pixel."""
        return self.further * max(1, min(maps.shape[2:]) // self.working_size)


def normalize_and_shrink(convolution: nn.Conv2d, norm: nn.Module, shrink: Shrink, images: Tensor) -> Tensor:
    """`shrink(norm(convolution(images)))`, for a convolution without bias that keeps the size of its maps."""
    window = shrink.window(images)
    if (
        window < _LEAST_SIZE
        or not _fits(convolution, norm, images)
        or any(map(_has_hooks, (convolution, norm, shrink)))
    ):
        return cast(Tensor, shrink(norm(convolution(images))))
    norm = cast(nn.BatchNorm2d, norm)
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    # Where a scale is negative, the opposite weights are taken: then the largest pixel of a window stays the largest.
    signs = torch.where(norm.weight < 0, -1.0, 1.0)
    maps = F.conv2d(images, convolution.weight * signs[:, None, None, None], padding=convolution.padding)
    pooled = _NormalizeAndPool.apply(maps, norm.weight * signs, norm.bias, signs, norm, window)  # type: ignore[no-untyped-call]
    return cast(Tensor, pooled)


def _fits(convolution: nn.Conv2d, norm: nn.Module, images: Tensor) -> bool:
    """Whether a batch is normalized by itself, on a CPU, in maps that have the channels of a pixel side by side."""
    return (
        type(norm) is nn.BatchNorm2d  # not one whose statistics are over several processes
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and images.device.type == "cpu"
        and images.dtype in (torch.float32, torch.float64)
        and convolution.weight.is_contiguous(memory_format=torch.channels_last)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _has_hooks(layer: nn.Module) -> bool:
    """Whether somebody looks at what goes into this layer or comes out of it."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


class _NormalizeAndPool(torch.autograd.Function):
    """The largest pixel of every window, normalized, where no scale is negative."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, scale: Tensor, shift: Tensor, signs: Tensor, norm: nn.BatchNorm2d, window: int
    ) -> Tensor:
        assert norm.running_mean is not None
        running = norm.running_mean * signs  # the mean of the maps as they are here
        mean, variance = torch.ops.aten.batch_norm_update_stats(maps, running, norm.running_var, norm.momentum)
        norm.running_mean.copy_(running * signs)
        inverse = (variance + norm.eps).rsqrt()
        largest, where = F.max_pool2d(maps, window, return_indices=True)
        ctx.save_for_backward(maps, largest, where, mean, inverse, scale)
        slope = inverse * scale
        return _line(slope, shift - mean * slope, largest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, largest, where, mean, inverse, scale = ctx.saved_tensors
        slope, pixels = inverse * scale, maps.numel() // len(mean)
        normalized = _line(inverse, -mean * inverse, largest)
        of_shift, of_scale = gradient.sum((0, 2, 3)), (gradient * normalized).sum((0, 2, 3))
        # Every pixel moves mean and variance; the largest of a window moves its own result besides.
        through_variance = -slope * inverse * of_scale / pixels
        through_mean = -slope * of_shift / pixels - through_variance * mean
        of_maps = _line(through_variance, through_mean, maps)
        of_largest = _line(through_variance, through_mean, largest) + gradient * slope[:, None, None]
        of_maps.flatten(2).scatter_(2, where.flatten(2), of_largest.flatten(2))
        return of_maps, of_scale, of_shift, None, None, None


def _line(slope: Tensor, start: Tensor, maps: Tensor) -> Tensor:
    """`slope` times the maps plus `start`, by channel."""
    return torch.addcmul(start[:, None, None], maps, slope[:, None, None])
