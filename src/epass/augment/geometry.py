"""Where a pixel comes from: crop, mirror, scale, rotate, shear and shift by gathers, for every image its own."""

from __future__ import annotations

import torch
from torch import Tensor

from epass.errors import InputError

_WEIGHT_BITS = 22  # of Pillow's weights when it scales images


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
    check_padding(padding, height, width)
    row = _window(height, offset[:, 0], flip[:, 0], padding)
    column = _window(width, offset[:, 1], flip[:, 1], padding)
    return _fetch(pixels, row[:, :, None] * width + column[:, None, :])


def check_padding(padding: int, height: int, width: int) -> None:
    """Refuse to reflect more of an image than there is."""
    if padding >= min(height, width):
        raise InputError(
            f"Reflect padding of {padding} pixels needs images larger than that, these are {height} x {width}: "
            f"choose a padding below {min(height, width)}."
        )


def crop_window(
    height: int, width: int, *, area: Tensor, ratio: Tensor, position: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A window in an image: the first of K candidates that fits.

    Where none fits, it is the largest whose sides are no further apart than 3 : 4, a square image as a whole.

    Args:
        height: Of the images.
        width: Of the images.
        area: (N, K) of the window, over that of the image.
        ratio: (N, K) of its width to its height.
        position: (N, 2) in [0, 1): row and column, over the room that the window leaves.

    Returns:
        Top, left, height and width, (N,) integers each.
    """
    pixels = area * (height * width)
    tall, wide = (pixels / ratio).sqrt().round().long(), (pixels * ratio).sqrt().round().long()
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    last = torch.ones_like(fits[:, :1])
    # argmax gives the first of equal numbers
    choice = torch.cat([fits, last], 1).to(torch.int32).argmax(1, keepdim=True)
    tall = torch.cat([tall, last * min(height, round(width * 4 / 3))], 1).gather(1, choice)[:, 0]
    wide = torch.cat([wide, last * min(width, round(height * 4 / 3))], 1).gather(1, choice)[:, 0]
    top = (position[:, 0] * (height - tall + 1)).long()
    left = (position[:, 1] * (width - wide + 1)).long()
    return top, left, tall, wide


def resized_crop(pixels: Tensor, window: tuple[Tensor, Tensor, Tensor, Tensor], flip: Tensor) -> Tensor:
    """Cut a window out of each image, scale it up to the size of the image, then mirror it.

    This is `Image.crop` and `Image.resize(size, BILINEAR)` of Pillow, in its fixed-point numbers. Pillow's antialiasing
    widens the filter only where an image shrinks, and a window is never larger than its image: there is nothing to add.

    Args:
        pixels: (N, C, H, W) uint8 images.
        window: Top, left, height and width, (N,) integers each, inside the image.
        flip: (N, 2) booleans, upside down and left to right.

    Returns:
        (N, C, H, W) uint8 images.
    """
    top, left, tall, wide = window
    for dim, start, size, mirrored in ((3, left, wide, flip[:, 1]), (2, top, tall, flip[:, 0])):
        pixels = _stretch(pixels, dim, start, size, mirrored)
    return pixels


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


def _stretch(pixels: Tensor, dim: int, start: Tensor, size: Tensor, mirrored: Tensor) -> Tensor:
    """Scale `size` pixels from `start` on, along one axis of each image, up to the whole axis."""
    length = pixels.shape[dim]
    position = torch.arange(length, device=pixels.device)
    position = torch.where(mirrored[:, None], length - 1 - position, position)
    place = (position + 0.5) * (size.double() / length)[:, None] - 0.5  # (N, length), of pixel centers in the window
    first = torch.floor(place)
    after = torch.floor((place - first) * (1 << _WEIGHT_BITS) + 0.5).to(torch.int32)
    shape = (-1, 1, 1, length) if dim == 3 else (-1, 1, length, 1)

    def fetch(index: Tensor) -> Tensor:
        inside = torch.minimum(index.long().clamp(min=0), size[:, None] - 1) + start[:, None]
        return pixels.gather(dim, inside.view(shape).expand_as(pixels)).to(torch.int32)

    after = after.view(shape)
    total = fetch(first).mul_((1 << _WEIGHT_BITS) - after).add_(fetch(first + 1).mul_(after))
    return (total.add_(1 << (_WEIGHT_BITS - 1)) >> _WEIGHT_BITS).to(torch.uint8)


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
