"""Faster convolutions of maps with few channels, for CUDA. They compute the same as the plain modules, up to rounding.

A library's 3 x 3 convolution of 32 channels takes several times as long as the memory needs for its maps, and the
normalization after it reads them twice more. Ours are one kernel each way, and give the normalization its sums.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import passes
from .operators import channels_last, convolve, convolve_pictures, picture_weight_sums, weight_sums
from .passes import Statistics, apply

CHANNELS = (16, 32)  # with more, the library is as fast
MOST_JOINED = 64  # channels; with more, the products by zero cost more than a second pass over the maps


def fits(layer: nn.Conv2d, maps: Tensor, *norms: nn.Module) -> bool:
    """Whether `activated_convolution` and `convolution` can take these layers and maps, and are faster."""
    return (
        passes.fits(maps, *norms)
        and _is_countable(maps)
        and _is_simple(layer)
        and layer.bias is None
        and layer.in_channels in CHANNELS
        and layer.out_channels in CHANNELS
        and maps.shape[3] in (8, 16, 32, 64)
    )


def fits_first(layer: nn.Conv2d, pictures: Tensor) -> bool:
    """The same for `first_convolution`."""
    return (
        passes.can_be_compiled(pictures)
        and _is_countable(pictures)
        and torch.is_autocast_enabled("cuda")
        and _is_simple(layer)
        and layer.bias is not None
        and layer.in_channels <= 3
        and layer.out_channels in CHANNELS
        and not pictures.requires_grad  # it makes no gradient of them
    )


def fits_joining(layer: nn.Conv2d, maps: Tensor) -> bool:
    """The same for `joint_convolution`."""
    return passes.fits(maps) and layer.in_channels <= MOST_JOINED


def _is_countable(maps: Tensor) -> bool:
    return maps.numel() // maps.shape[1] * max(CHANNELS) < 2**31  # the kernels count in 32 bits


def _is_simple(layer: nn.Conv2d) -> bool:
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return shape == ((3, 3), (1, 1), (1, 1), (1, 1)) and (layer.groups, layer.padding_mode) == (1, "zeros")


def first_convolution(layer: nn.Conv2d, pictures: Tensor) -> Tensor:
    """What `layer` makes of `pictures`, in the precision of autocast."""
    dtype = torch.get_autocast_dtype("cuda")
    return cast(Tensor, apply(_FirstConvolution, pictures, layer.weight, layer.bias, dtype))


def convolution(layer: nn.Conv2d, maps: Tensor) -> tuple[Tensor, Tensor]:
    """What `layer` makes of `maps`, and its sums in parts: of each channel, and of its squares, (n, 2, channels)."""
    return cast(tuple[Tensor, Tensor], apply(_Convolution, maps, layer.weight))


def activated_convolution(
    norm: nn.BatchNorm2d,
    slope: float,
    layer: nn.Conv2d,
    maps: Tensor,
    sums: Tensor | None,
    *,
    add: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalization of `maps`, whose sums may be known, LeakyReLU, convolution, and `add` added; and the sums of it.

    All sums that are taken and returned are over the maps of this process.
    """
    found = Statistics.of(norm, maps, sums)
    out = apply(_ActivatedConvolution, maps, *found, norm.weight, norm.bias, layer.weight, add, slope)
    return cast(tuple[Tensor, Tensor], out)


def joint_convolution(layer: nn.Conv2d, pointwise: nn.Conv2d, maps: Tensor) -> tuple[Tensor, Tensor]:
    """What a 3 x 3 layer and a 1 x 1 layer of the same stride make of `maps`, in one pass over these."""
    weight = torch.cat([layer.weight, F.pad(pointwise.weight, (1, 1, 1, 1))])
    both = F.conv2d(maps, weight, stride=layer.stride, padding=layer.padding)
    first, second = torch.split(both, [layer.out_channels, pointwise.out_channels], 1)
    return first, second


class _FirstConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pictures: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(pictures)
        out: Tensor = convolve_pictures(pictures, weight, bias, dtype)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (pictures,) = ctx.saved_tensors
        channels = pictures.shape[1]
        sums = picture_weight_sums(pictures, gradients[0]).sum(0)
        by_weight = sums[: 9 * channels].view(3, 3, channels, -1).permute(3, 2, 0, 1)
        return None, channels_last(by_weight), sums[9 * channels], None


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(maps, weight)
        out, parts = convolve(maps, weight)
        ctx.mark_non_differentiable(parts)
        return out, parts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        maps, weight = ctx.saved_tensors
        by_maps, _ = convolve(gradients[0], weight, transposed=True)
        return by_maps, _weight_gradient(maps, gradients[0])


class _ActivatedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        mean: Tensor,
        inverse: Tensor,
        scale: Tensor,
        shift: Tensor,
        shared: bool,
        norm_weight: Tensor,
        norm_bias: Tensor,
        weight: Tensor,
        add: Tensor | None,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        activated = passes.activate(maps, scale, shift, slope)
        ctx.save_for_backward(maps, activated, weight, norm_weight, mean, inverse, scale, shift)
        ctx.adds, ctx.slope, ctx.shared = add is not None, slope, shared
        out, parts = convolve(activated, weight, add)
        ctx.mark_non_differentiable(parts)
        return out, parts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        maps, activated, weight, norm_weight, mean, inverse, scale, shift = ctx.saved_tensors
        statistics, gradient = Statistics(mean, inverse, scale, shift, ctx.shared), gradients[0]
        inner, parts = convolve(gradient, weight, None, maps, scale, shift, transposed=True, slope=ctx.slope)
        by_norm_weight, by_norm_bias, three = statistics.gradients(maps, norm_weight, parts)
        by_maps = passes.made_of(inner, maps, *three)
        by_weight, by_add = _weight_gradient(activated, gradient), gradient if ctx.adds else None
        return by_maps, None, None, None, None, None, by_norm_weight, by_norm_bias, by_weight, by_add, None


def _weight_gradient(maps: Tensor, gradient: Tensor) -> Tensor:
    sums: Tensor = weight_sums(maps, gradient).sum(0)  # (3, 3, inputs, outputs)
    return channels_last(sums.permute(3, 2, 0, 1))
