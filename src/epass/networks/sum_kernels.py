"""Triton kernels of the sums that normalizations need, and of what these are made into.

Maps lie in memory as (images, height, width, channels). Only importable where there is Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_channels(
    maps,
    other,
    scale,
    shift,
    out,
    sums,
    pixels,
    to_pixel,
    other_to_pixel,
    tiles,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    PIXELS: tl.constexpr,
    ADDS: tl.constexpr,
    BACKWARD: tl.constexpr,
    SLOPE: tl.constexpr,
):
    """Sums over the pixels of a program, (programs, 2, channels): of each channel of the maps, and of its squares.

    With `ADDS` they are those of `maps` + `other`, which is written. With `BACKWARD` the maps are the gradient of an
    activation and `other` is what the normalization before it was given: then they are those of the gradient between
    these two, and of its products with `other`.
    """
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    by = tl.load(scale + channel)[None, :] if BACKWARD else None
    plus = tl.load(shift + channel)[None, :] if BACKWARD else None
    total = tl.zeros((PIXELS, BLOCK), tl.float32)
    total_product = tl.zeros((PIXELS, BLOCK), tl.float32)
    for tile in tl.range(0, tiles, num_stages=3):
        pixel = (tile * tl.num_programs(0) + tl.program_id(0)) * PIXELS + tl.arange(0, PIXELS)
        there = (pixel < pixels)[:, None]
        values = tl.load(maps + pixel[:, None] * to_pixel + channel[None, :], mask=there, other=0.0).to(tl.float32)
        if ADDS or BACKWARD:
            beside = pixel[:, None] * other_to_pixel + channel[None, :]
            given = tl.load(other + beside, mask=there, other=0.0).to(tl.float32)
        if ADDS:
            written = (values + given).to(out.dtype.element_ty)
            tl.store(out + pixel[:, None] * CHANNELS + channel[None, :], written, mask=there)
            values = written.to(tl.float32)
        if BACKWARD:
            values = tl.where(given * by + plus > 0, values, SLOPE * values)
        total += values
        total_product += values * (given if BACKWARD else values)
    mine = sums + tl.program_id(0) * (2 * CHANNELS) + channel
    tl.store(mine, tl.sum(total, 0))
    tl.store(mine + CHANNELS, tl.sum(total_product, 0))


@triton.jit
def add_parts(parts, number, channel, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Both sums of some channels, which `number` programs have left, (number, 2, channels)."""
    first = tl.zeros((ROWS, BLOCK), tl.float32)
    second = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, number, ROWS):
        part = start + tl.arange(0, ROWS)
        there = (part < number)[:, None]
        place = parts + part[:, None] * (2 * CHANNELS) + channel[None, :]
        first += tl.load(place, mask=there, other=0.0)
        second += tl.load(place + CHANNELS, mask=there, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def total(parts, sums, number, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """The parts of both sums in one, (1, 2, channels)."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = add_parts(parts, number, channel, CHANNELS, BLOCK, ROWS)
    tl.store(sums + channel, first)
    tl.store(sums + CHANNELS + channel, second)


@triton.jit
def statistics(
    parts,
    weight,
    bias,
    mean,
    inverse,
    scale,
    shift,
    running_mean,
    running_var,
    batches,
    number,
    count,
    epsilon,
    momentum,
    REMEMBERS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Of sums and sums of squares over `count` pixels: what a normalization is, also as a factor and a summand.

    With `REMEMBERS` the running statistics move towards the mean and the unbiased variance.
    """
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, squares = add_parts(parts, number, channel, CHANNELS, BLOCK, ROWS)
    middle = total / count
    spread = tl.maximum(squares / count - middle * middle, 0.0)
    steep = 1.0 / tl.sqrt(spread + epsilon)
    factor = tl.load(weight + channel) * steep
    tl.store(mean + channel, middle)
    tl.store(inverse + channel, steep)
    tl.store(scale + channel, factor)
    tl.store(shift + channel, tl.load(bias + channel) - middle * factor)
    if REMEMBERS:
        known = tl.load(running_mean + channel)
        tl.store(running_mean + channel, known + momentum * (middle - known))
        known = tl.load(running_var + channel)
        tl.store(running_var + channel, known + momentum * (spread * count / tl.maximum(count - 1, 1.0) - known))
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def gradient_statistics(
    parts,
    own,
    mean,
    inverse,
    weight,
    by_weight,
    by_bias,
    by_gradient,
    by_maps,
    constant,
    number,
    own_number,
    count,
    SHARED: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Of sums of a gradient, and of its products with the maps: those of weight and bias, and what that of maps is.

    With `SHARED` they are over several processes, and those of weight and bias are of this one's `own`.
    """
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, product = add_parts(parts, number, channel, CHANNELS, BLOCK, ROWS)
    middle = tl.load(mean + channel)
    steep = tl.load(inverse + channel)
    factor = tl.load(weight + channel) * steep
    slant = (product - middle * total) * steep
    falls = steep * slant / count
    mine, my_slant = total, slant
    if SHARED:
        mine, my_product = add_parts(own, own_number, channel, CHANNELS, BLOCK, ROWS)
        my_slant = (my_product - middle * mine) * steep
    tl.store(by_weight + channel, my_slant)
    tl.store(by_bias + channel, mine)
    tl.store(by_gradient + channel, factor)
    tl.store(by_maps + channel, -factor * falls)
    tl.store(constant + channel, factor * (middle * falls - total / count))
