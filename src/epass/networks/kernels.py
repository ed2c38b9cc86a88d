"""Triton kernels of 3 x 3 convolutions between few channels, which libraries run far below what the memory delivers.

Maps lie in memory as (images, height, width, channels). Only importable where there is Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def convolve_rows(
    maps,
    weight,
    out,
    add,
    before,
    scale,
    shift,
    sums,
    images,
    weight_start,
    to_input,
    to_output,
    to_row,
    to_column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    IMAGES: tl.constexpr,
    ADDS: tl.constexpr,
    BACKWARD: tl.constexpr,
    SLOPE: tl.constexpr,
    FOLDS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each program walks down the rows of a few images. Of a row it needs itself and itself moved by a pixel each way.

    An input row belongs to three output rows, whose sums move on with the walk, so no row is read for a second time.
    `finish` says what happens to an output row on its way to the memory.
    """
    PIXELS: tl.constexpr = IMAGES * WIDTH
    pixel = tl.arange(0, PIXELS)
    column = pixel % WIDTH
    image = tl.program_id(0) * IMAGES + pixel // WIDTH
    inputs = tl.arange(0, INPUTS)
    outputs = tl.arange(0, OUTPUTS)
    first = (image * (HEIGHT * WIDTH) + column)[:, None]
    source = maps + first * INPUTS + inputs[None, :]
    target = first * OUTPUTS + outputs[None, :]
    there = (image < images)[:, None]
    left_there = there & (column > 0)[:, None]
    right_there = there & (column < WIDTH - 1)[:, None]

    kind = maps.dtype.element_ty
    tap = weight + weight_start + inputs[:, None] * to_input + outputs[None, :] * to_output
    w00 = tl.load(tap).to(kind)
    w01 = tl.load(tap + to_column).to(kind)
    w02 = tl.load(tap + 2 * to_column).to(kind)
    w10 = tl.load(tap + to_row).to(kind)
    w11 = tl.load(tap + to_row + to_column).to(kind)
    w12 = tl.load(tap + to_row + 2 * to_column).to(kind)
    w20 = tl.load(tap + 2 * to_row).to(kind)
    w21 = tl.load(tap + 2 * to_row + to_column).to(kind)
    w22 = tl.load(tap + 2 * to_row + 2 * to_column).to(kind)

    by = tl.load(scale + outputs)[None, :] if BACKWARD else None
    plus = tl.load(shift + outputs)[None, :] if BACKWARD else None
    above = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    here = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    total = fold(above, PIXELS, OUTPUTS, FOLDS)
    total_product = fold(above, PIXELS, OUTPUTS, FOLDS)
    for row in tl.range(0, HEIGHT, num_stages=STAGES):
        at = source + row * (WIDTH * INPUTS)
        middle = tl.load(at, mask=there, other=0.0)
        left = tl.load(at - INPUTS, mask=left_there, other=0.0)
        right = tl.load(at + INPUTS, mask=right_there, other=0.0)
        above = tl.dot(middle, w21, above)
        above = tl.dot(left, w20, above)
        above = tl.dot(right, w22, above)
        here = tl.dot(middle, w11, here)
        here = tl.dot(left, w10, here)
        here = tl.dot(right, w12, here)
        below = tl.dot(middle, w01)
        below = tl.dot(left, w00, below)
        below = tl.dot(right, w02, below)
        place = target + (row - 1) * (WIDTH * OUTPUTS)
        known = there & (row > 0)
        values, product = finish(above, out, add, before, by, plus, place, known, ADDS, BACKWARD, SLOPE)
        total += fold(values, PIXELS, OUTPUTS, FOLDS)
        total_product += fold(product, PIXELS, OUTPUTS, FOLDS)
        above = here
        here = below
    place = target + (HEIGHT - 1) * (WIDTH * OUTPUTS)
    values, product = finish(above, out, add, before, by, plus, place, there, ADDS, BACKWARD, SLOPE)
    total += fold(values, PIXELS, OUTPUTS, FOLDS)
    total_product += fold(product, PIXELS, OUTPUTS, FOLDS)
    mine = sums + tl.program_id(0) * (2 * OUTPUTS) + outputs
    tl.store(mine, tl.sum(tl.reshape(total, (PIXELS // (2 if FOLDS else 1), OUTPUTS)), 0))
    tl.store(mine + OUTPUTS, tl.sum(tl.reshape(total_product, (PIXELS // (2 if FOLDS else 1), OUTPUTS)), 0))


@triton.jit
def finish(
    values,
    out,
    add,
    before,
    scale,
    shift,
    place,
    there,
    ADDS: tl.constexpr,
    BACKWARD: tl.constexpr,
    SLOPE: tl.constexpr,
):
    """Write a row, and return what the normalization after it (or, backward, before it) wants to sum.

    Forward these are the values and their squares. Backward the row first passes the derivative of the activation; then
    they are the result and its products with what the normalization was given.
    """
    if ADDS:
        values += tl.load(add + place, mask=there, other=0.0).to(tl.float32)
    if BACKWARD:
        given = tl.load(before + place, mask=there, other=0.0).to(tl.float32)
        values = tl.where(given * scale + shift > 0, values, SLOPE * values)
    written = tl.where(there, values, 0.0).to(out.dtype.element_ty)
    tl.store(out + place, written, mask=there)
    values = written.to(tl.float32)
    return values, values * (given if BACKWARD else values)


@triton.jit
def fold(values, PIXELS: tl.constexpr, OUTPUTS: tl.constexpr, FOLDS: tl.constexpr):
    """Add up the pixels that one thread of a warp group holds, whose running sums then take half the registers."""
    return tl.sum(tl.reshape(values, (PIXELS // 16, 2, 8, OUTPUTS)), 1) if FOLDS else values


@triton.jit
def weight_sums(
    maps,
    gradient,
    out,
    images,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PIXELS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient of the weights, (programs, 3, 3, inputs, outputs): what every program sums over its pixels.

    One product: on one side the inputs of a pixel and of its neighbours left and right, on the other the gradients of
    the pixel and of its neighbours above and below. A fourth part of each side is empty: sizes are powers of two.
    """
    side = tl.arange(0, 4 * INPUTS)
    inputs = side % INPUTS
    move = side // INPUTS - 1
    other_side = tl.arange(0, 4 * OUTPUTS)
    outputs = other_side % OUTPUTS
    climb = other_side // OUTPUTS - 1
    total = tl.zeros((4 * INPUTS, 4 * OUTPUTS), tl.float32)
    for tile in tl.range(0, TILES, num_stages=STAGES):
        pixel = (tl.program_id(0) * TILES + tile) * PIXELS + tl.arange(0, PIXELS)
        there = (pixel < images * (HEIGHT * WIDTH))[:, None]
        row = (pixel // WIDTH % HEIGHT)[:, None] - climb[None, :]
        column = (pixel % WIDTH)[:, None] + move[None, :]
        source = maps + (pixel[:, None] + move[None, :]) * INPUTS + inputs[None, :]
        around = tl.load(source, mask=there & (column >= 0) & (column < WIDTH) & (move < 2)[None, :], other=0.0)
        source = gradient + (pixel[:, None] - climb[None, :] * WIDTH) * OUTPUTS + outputs[None, :]
        beside = tl.load(source, mask=there & (row >= 0) & (row < HEIGHT) & (climb < 2)[None, :], other=0.0)
        total = tl.dot(tl.trans(around), beside, total)
    tap = (climb + 1)[None, :] * 3 + (move + 1)[:, None]
    place = (tap * INPUTS + inputs[:, None]) * OUTPUTS + outputs[None, :]
    mine = out + tl.program_id(0) * (9 * INPUTS * OUTPUTS)
    tl.store(mine + place, total, mask=(move < 2)[:, None] & (climb < 2)[None, :])


@triton.jit
def look_around(
    pictures,
    pixel,
    there,
    to_image,
    to_channel,
    to_row,
    to_column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """What a 3 x 3 convolution sees from each pixel, 32 numbers: nine times the channels, a one, and zeros."""
    term = tl.arange(0, 32)[None, :]
    row = (pixel // WIDTH % HEIGHT)[:, None] + term // CHANNELS // 3 - 1
    column = (pixel % WIDTH)[:, None] + term // CHANNELS % 3 - 1
    inside = there & (term < 9 * CHANNELS) & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    image = (pixel // (HEIGHT * WIDTH))[:, None]
    source = pictures + image * to_image + term % CHANNELS * to_channel + row * to_row + column * to_column
    return tl.where(term == 9 * CHANNELS, 1.0, tl.load(source, mask=inside, other=0.0).to(tl.float32))


@triton.jit
def convolve_pictures(
    pictures,
    weight,
    bias,
    out,
    images,
    to_image,
    to_channel,
    to_row,
    to_column,
    weight_to_output,
    weight_to_input,
    weight_to_row,
    weight_to_column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PIXELS: tl.constexpr,
    TILES: tl.constexpr,
):
    """The first convolution of a network, with its bias, of pictures that lie in memory in any order."""
    kind = out.dtype.element_ty
    term = tl.arange(0, 32)[:, None]
    outputs = tl.arange(0, OUTPUTS)
    tap = (
        term % CHANNELS * weight_to_input
        + term // CHANNELS // 3 * weight_to_row
        + term // CHANNELS % 3 * weight_to_column
    )
    weights = tl.load(weight + tap + outputs[None, :] * weight_to_output, mask=term < 9 * CHANNELS, other=0.0)
    weights = tl.where(term == 9 * CHANNELS, tl.load(bias + outputs)[None, :], weights).to(kind)
    for tile in range(0, TILES):
        pixel = (tl.program_id(0) * TILES + tile) * PIXELS + tl.arange(0, PIXELS)
        there = (pixel < images * (HEIGHT * WIDTH))[:, None]
        seen = look_around(pictures, pixel, there, to_image, to_channel, to_row, to_column, HEIGHT, WIDTH, CHANNELS)
        values = tl.dot(seen.to(kind), weights)
        tl.store(out + pixel[:, None] * OUTPUTS + outputs[None, :], values.to(kind), mask=there)


@triton.jit
def picture_weight_sums(
    pictures,
    gradient,
    out,
    images,
    to_image,
    to_channel,
    to_row,
    to_column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PIXELS: tl.constexpr,
    TILES: tl.constexpr,
):
    """The gradients of its weights and of its bias, (programs, 32, outputs), in the order of `look_around`."""
    term = tl.arange(0, 32)[:, None]
    outputs = tl.arange(0, OUTPUTS)[None, :]
    total = tl.zeros((32, OUTPUTS), tl.float32)
    for tile in range(0, TILES):
        pixel = (tl.program_id(0) * TILES + tile) * PIXELS + tl.arange(0, PIXELS)
        there = (pixel < images * (HEIGHT * WIDTH))[:, None]
        seen = look_around(pictures, pixel, there, to_image, to_channel, to_row, to_column, HEIGHT, WIDTH, CHANNELS)
        beside = tl.load(gradient + pixel[:, None] * OUTPUTS + outputs, mask=there, other=0.0)
        total = tl.dot(tl.trans(seen.to(gradient.dtype.element_ty)), beside, total)
    tl.store(out + tl.program_id(0) * (32 * OUTPUTS) + term * OUTPUTS + outputs, total)
