"""The kernels as operators of PyTorch, which its compiler leaves as they are: shapes and launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PARTS = 264  # of a sum over all pixels: two for each multiprocessor of the card that this was measured on
LEAST_CHANNELS = 16  # that `channel_sums` and the like take, or a multiple of it


def channels_last(maps: Tensor) -> Tensor:
    """The order in memory that the kernels take; a copy only of what has another."""
    return maps.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("epass::convolve", mutates_args=())
def convolve(
    maps: Tensor,
    weight: Tensor,
    add: Tensor | None = None,
    before: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    transposed: bool = False,
    slope: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """A convolution, or if `transposed` the gradient of its input, plus `add`; and its sums in parts, (n, 2, channels).

    With `before`, of which a normalization by `scale` and `shift` made the input of an activation with `slope`, it is
    the gradient of that input, and the second sums are those of its products with `before`.
    """
    from . import kernels

    images, inputs, height, width = maps.shape
    to_output, to_input, to_row, to_column = weight.stride()
    start = 0
    if transposed:
        start, to_row, to_column = 2 * (to_row + to_column), -to_row, -to_column
        to_input, to_output = to_output, to_input
    plain = add is None and before is None
    out, sums = _empty(maps, weight, plain, transposed)
    maps = channels_last(maps)
    kernels.convolve_rows[(len(sums),)](
        maps,
        weight,
        out,
        maps if add is None else channels_last(add),
        maps if before is None else channels_last(before),
        maps if scale is None else scale,
        maps if shift is None else shift,
        sums,
        images,
        start,
        to_input,
        to_output,
        to_row,
        to_column,
        HEIGHT=height,
        WIDTH=width,
        INPUTS=inputs,
        OUTPUTS=out.shape[1],
        IMAGES=_pixels(plain) // width,
        ADDS=add is not None,
        BACKWARD=before is not None,
        SLOPE=slope,
        FOLDS=plain,
        STAGES=3,
        num_warps=8 if plain else 2,  # two do not multiply as a group, which leaves registers to what follows
    )
    return out, sums


def _empty(maps: Tensor, weight: Tensor, plain: bool, transposed: bool) -> tuple[Tensor, Tensor]:
    images, _, height, width = maps.shape
    outputs = weight.shape[1 if transposed else 0]
    parts = -(-images // (_pixels(plain) // width))
    out = maps.new_empty(images, height, width, outputs).permute(0, 3, 1, 2)
    return out, maps.new_empty(parts, 2, outputs, dtype=torch.float32)


def _pixels(plain: bool) -> int:
    """What a program works on at a time: one row of several images."""
    return 128 if plain else 64


@torch.library.custom_op("epass::weight_sums", mutates_args=())
def weight_sums(maps: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of a convolution's weights in parts, (n, 3, 3, inputs, outputs)."""
    from . import kernels

    images, inputs, height, width = maps.shape
    parts = _empty_weight_sums(maps, gradient)
    pixels = 64
    kernels.weight_sums[(PARTS,)](
        channels_last(maps),
        channels_last(gradient),
        parts,
        images,
        HEIGHT=height,
        WIDTH=width,
        INPUTS=inputs,
        OUTPUTS=gradient.shape[1],
        PIXELS=pixels,
        TILES=-(-images * height * width // (pixels * PARTS)),
        STAGES=3,
        num_warps=4,
    )
    return parts


def _empty_weight_sums(maps: Tensor, gradient: Tensor) -> Tensor:
    return maps.new_empty(PARTS, 3, 3, maps.shape[1], gradient.shape[1], dtype=torch.float32)


@torch.library.custom_op("epass::convolve_pictures", mutates_args=())
def convolve_pictures(pictures: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The first convolution of a network, in `dtype`."""
    from . import kernels

    images, channels, height, width = pictures.shape
    out = _empty_pictures(pictures, weight, bias, dtype)
    pixels, tiles = 128, 8
    kernels.convolve_pictures[(-(-images * height * width // (pixels * tiles)),)](
        pictures,
        weight,
        bias,
        out,
        images,
        *pictures.stride(),
        *weight.stride(),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        OUTPUTS=len(bias),
        PIXELS=pixels,
        TILES=tiles,
        num_warps=2,
    )
    return out


def _empty_pictures(pictures: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    images, _, height, width = pictures.shape
    return pictures.new_empty(images, height, width, len(bias), dtype=dtype).permute(0, 3, 1, 2)


@torch.library.custom_op("epass::picture_weight_sums", mutates_args=())
def picture_weight_sums(pictures: Tensor, gradient: Tensor) -> Tensor:
    """The gradients of its weights and bias in parts, (n, 32, outputs): nine times the channels, the bias, zeros."""
    from . import kernels

    images, channels, height, width = pictures.shape
    parts = _empty_picture_weight_sums(pictures, gradient)
    pixels = 256
    kernels.picture_weight_sums[(2 * PARTS,)](
        pictures,
        channels_last(gradient),
        parts,
        images,
        *pictures.stride(),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        OUTPUTS=gradient.shape[1],
        PIXELS=pixels,
        TILES=-(-images * height * width // (pixels * 2 * PARTS)),
        num_warps=4,
    )
    return parts


def _empty_picture_weight_sums(pictures: Tensor, gradient: Tensor) -> Tensor:
    return pictures.new_empty(2 * PARTS, 32, gradient.shape[1], dtype=torch.float32)


@torch.library.custom_op("epass::channel_sums", mutates_args=())
def channel_sums(maps: Tensor) -> Tensor:
    """The sums of each channel, and of its squares, in parts, (n, 2, channels)."""
    return _sum_channels(maps)


@torch.library.custom_op("epass::add_and_sum", mutates_args=())
def add_and_sum(maps: Tensor, add: Tensor) -> tuple[Tensor, Tensor]:
    """Both added, and the sums of the result."""
    out = _empty_like(maps)
    return out, _sum_channels(maps, add, out=out)


@torch.library.custom_op("epass::gradient_sums", mutates_args=())
def gradient_sums(gradient: Tensor, maps: Tensor, scale: Tensor, shift: Tensor, slope: float) -> Tensor:
    """The sums of a gradient, and those of its products with `maps`, in parts, (n, 2, channels).

    It is that of what a normalization made of `maps` by `scale` and `shift`; `gradient` is that of an activation of
    this, with `slope`.
    """
    return _sum_channels(gradient, maps, scale, shift, slope=slope)


def _sum_channels(
    maps: Tensor,
    other: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    out: Tensor | None = None,
    slope: float = 1.0,
) -> Tensor:
    from . import sum_kernels

    channels, block, tile = _tile(maps)
    pixels = maps.numel() // channels
    sums = _empty_channel_sums(maps)
    maps = _by_pixel(maps)
    other = maps if other is None else _by_pixel(other)
    sum_kernels.sum_channels[(len(sums), channels // block)](
        maps,
        other,
        maps if scale is None else scale,
        maps if shift is None else shift,
        maps if out is None else out,
        sums,
        pixels,
        maps.stride(3),
        other.stride(3),
        -(-pixels // (tile * len(sums))),
        CHANNELS=channels,
        BLOCK=block,
        PIXELS=tile,
        ADDS=out is not None,
        BACKWARD=scale is not None,
        SLOPE=slope,
        num_warps=4,
    )
    return sums


def _tile(maps: Tensor) -> tuple[int, int, int]:
    """Channels, how many of these a program sees, a power of two that divides them, and how many pixels at a time."""
    channels = maps.shape[1]
    block = min(128, channels & -channels)
    return channels, block, 4096 // block


def _by_pixel(maps: Tensor) -> Tensor:
    """The order in memory that `sum_channels` takes: there may be other channels between the pixels."""
    height, width = maps.shape[2:]
    step = maps.stride(3)
    return maps if maps.stride() == (height * width * step, 1, width * step, step) else channels_last(maps)


def _empty_channel_sums(maps: Tensor) -> Tensor:
    channels, block, _ = _tile(maps)
    return maps.new_empty(PARTS // min(2, channels // block), 2, channels, dtype=torch.float32)


def _empty_like(maps: Tensor) -> Tensor:
    return torch.empty_like(maps, memory_format=torch.channels_last)


@torch.library.custom_op("epass::sum_parts", mutates_args=())
def sum_parts(parts: Tensor) -> Tensor:
    """Sums in parts, (n, 2, channels), in one, (1, 2, channels). One small kernel: a compiler makes three."""
    from . import sum_kernels

    found = parts.new_empty(1, *parts.shape[1:])
    sum_kernels.total[(parts.shape[2] // LEAST_CHANNELS,)](parts, found, len(parts), **_few_channels(parts.shape[2]))
    return found


@torch.library.custom_op("epass::batch_statistics", mutates_args={"running_mean", "running_var", "batches"})
def batch_statistics(
    parts: Tensor,
    weight: Tensor,
    bias: Tensor,
    count: int,
    epsilon: float,
    running_mean: Tensor | None,  # no default: torch 2.11 cannot tell what an operator changes of arguments left out
    running_var: Tensor | None,
    batches: Tensor | None,
    momentum: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, inverse of the deviation, and the factor and summand of a normalization, of sums in parts.

    They are sums over `count` pixels and sums of squares, (n, 2, channels). Running statistics, if they are given, move
    by `momentum` here, since three kernels of their own would do so for each normalization.
    """
    from . import sum_kernels

    found: tuple[Tensor, Tensor, Tensor, Tensor] = _like(bias, 4)
    sum_kernels.statistics[(len(bias) // LEAST_CHANNELS,)](
        parts,
        weight,
        bias,
        *found,
        *(bias if kept is None else kept for kept in (running_mean, running_var, batches)),
        len(parts),
        float(count),
        epsilon,
        momentum,
        REMEMBERS=batches is not None,
        **_few_channels(len(bias)),
    )
    return found


@torch.library.custom_op("epass::batch_gradients", mutates_args=())
def batch_gradients(
    parts: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, count: int, own: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of weight and bias, and three numbers for a channel that make that of the maps, of sums in parts.

    They are sums of the gradient of what was normalized, and of its products with the maps, (n, 2, channels). The three
    are what that gradient and what the maps are multiplied by, and what is added. The statistics came as numbers: what
    they add to the gradient is in here. Of sums over several processes, those of weight and bias are of this one's
    `own` sums in parts.
    """
    from . import sum_kernels

    found: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] = _like(mean, 5)
    sum_kernels.gradient_statistics[(len(mean) // LEAST_CHANNELS,)](
        parts,
        parts if own is None else own,
        mean,
        inverse,
        weight,
        *found,
        len(parts),
        0 if own is None else len(own),
        float(count),
        SHARED=own is not None,
        **_few_channels(len(mean)),
    )
    return found


def _like(values: Tensor, number: int) -> Any:
    return tuple(torch.empty_like(values, dtype=torch.float32) for _ in range(number))


def _few_channels(channels: int) -> dict[str, int]:
    return {"CHANNELS": channels, "BLOCK": LEAST_CHANNELS, "ROWS": 128, "num_warps": 4}


convolve.register_fake(
    lambda maps, weight, add=None, before=None, scale=None, shift=None, *, transposed=False, slope=1.0: _empty(
        maps, weight, add is None and before is None, transposed
    )
)
weight_sums.register_fake(_empty_weight_sums)
convolve_pictures.register_fake(_empty_pictures)
picture_weight_sums.register_fake(_empty_picture_weight_sums)
channel_sums.register_fake(_empty_channel_sums)
add_and_sum.register_fake(lambda maps, add: (_empty_like(maps), _empty_channel_sums(maps)))
gradient_sums.register_fake(lambda gradient, *others: _empty_channel_sums(gradient))
sum_parts.register_fake(lambda parts: parts.new_empty(1, *parts.shape[1:]))
batch_statistics.register_fake(lambda parts, weight, bias, *others: _like(bias, 4))
batch_gradients.register_fake(lambda parts, mean, *others: _like(mean, 5))
