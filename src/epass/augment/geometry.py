"""Where a pixel comes from: crop, mirror, rotate, shear and shift as one gather each, for every image its own."""

from __future__ import annotations

import torch
from torch import Tensor

from epass.errors import InputError


def crop_and_flip(pixels: Tensor, offset: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Cut a window out of each reflect-padded image, then mirror it.

    Args:
        pixels: (N, C, H, W) images.
        offset: (N, 2) integers, top and left corner of the window in the padded image, in [0, 2 * padding].
        flip: (N, 2) booleans, upside down and left to right.
        padding: Pixels the image is extended by on every side, reflected without repeating the edge.

    Returns:
        (N, C, H, W) images.
    """
    height, width = pixels.shape[-2:]
    if padding >= min(height, width):
        raise InputError(
            f"Reflect padding of {padding} pixels needs images larger than that, these are {height} x {width}: "
            f"choose a padding below {min(height, width)}."
        )
    row = _window(height, offset[:, 0], flip[:, 0], padding)
    column = _window(width, offset[:, 1], flip[:, 1], padding)
    return _fetch(pixels, row[:, :, None] * width + column[:, None, :])


def inverse_map(
    height: int, width: int, *, angle: Tensor, shear_x: Tensor, shear_y: Tensor, shift_x: Tensor, shift_y: Tensor
) -> Tensor:
    """Where the pixels of a rotated, sheared or shifted image come from, in Pillow's conventions.

    The parameters have any one shape, zero leaves an image alone, and at most one of the five is not zero for it.

    Args:
        height: Of the images.
        width: Of the images.
        angle: Degrees counter-clockwise around the center, `Image.rotate(angle)`.
        shear_x: `Image.transform(size, AFFINE, (1, shear_x, 0, 0, 1, 0))`.
        shear_y: `Image.transform(size, AFFINE, (1, 0, 0, shear_y, 1, 0))`.
        shift_x: Fraction of the width, `Image.transform(size, AFFINE, (1, 0, shift_x * width, 0, 1, 0))`.
        shift_y: Fraction of the height.

    Returns:
        (..., 6) int32, the matrix (a, b, c, d, e, f) of x_in = a x + b y + c, y_in = d x + e y + f in units of 2^-16:
        with Pillow's own fixed-point numbers both round at the same pixels.
    """
    turn = torch.deg2rad(-angle.double())
    cosine, sine = turn.cos(), turn.sin()
    x_by_y, y_by_x = sine + shear_x, shear_y - sine
    # Pillow moves whole pixels when nothing else happens, so the shift is rounded before it meets the other terms.
    left = torch.floor(shift_x.double() * width + 0.5) + width / 2 * (1 - cosine) - height / 2 * sine
    top = torch.floor(shift_y.double() * height + 0.5) + height / 2 * (1 - cosine) + width / 2 * sine
    # The half belongs to the center of the pixel.
    x_start, y_start = left + (cosine + x_by_y) / 2, top + (cosine + y_by_x) / 2
    matrix = torch.stack([cosine, x_by_y, x_start, y_by_x, cosine, y_start], dim=-1)
    return torch.floor(matrix * 65536 + 0.5).to(torch.int32)


def warp(pixels: Tensor, matrix: Tensor) -> Tensor:
    """Fetch each pixel from its nearest source, black where that lies outside the image.

    Args:
        pixels: (N, C, H, W) images.
        matrix: (N, 6) from `inverse_map`.

    Returns:
        (N, C, H, W) images.
    """
    height, width = pixels.shape[-2:]
    x = torch.arange(width, dtype=torch.int32, device=pixels.device)
    y = torch.arange(height, dtype=torch.int32, device=pixels.device)[:, None]
    a, b, c, d, e, f = matrix[:, :, None, None].unbind(1)
    from_x = (a * x + (b * y + c)) >> 16
    from_y = (d * x + (e * y + f)) >> 16
    # A black frame of one pixel answers for everything outside.
    framed = torch.nn.functional.pad(pixels, (1, 1, 1, 1))
    return _fetch(framed, from_y.clamp_(-1, height).mul_(width + 2).add_(from_x.clamp_(-1, width)).add_(width + 3))


def _window(size: int, offset: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Source index along one axis, (N, size), of a mirrored window in a reflected image."""
    position = torch.arange(size, device=offset.device)
    position = torch.where(flip[:, None], size - 1 - position, position) + (offset[:, None] - padding)
    return size - 1 - (size - 1 - position.abs()).abs()


def _fetch(pixels: Tensor, source: Tensor) -> Tensor:
    """The pixels at `source`, (N, H, W) indices into the flattened image, the same in every channel."""
    count, channels = pixels.shape[:2]
    index = source.long().flatten(1)[:, None].expand(-1, channels, -1)
    return pixels.flatten(2).gather(2, index).view(count, channels, *source.shape[1:])
