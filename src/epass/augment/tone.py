"""What a pixel becomes: one lookup table and one blend per image, bit for bit what Pillow does."""

from __future__ import annotations

import torch
from torch import Tensor

# Pillow's 16-bit weights of red, green and blue in the gray value (ITU-R 601-2).
LUMINANCE = (19595, 38470, 7471)


def remap(pixels: Tensor, *, auto_contrast: Tensor, equalize: Tensor, bits: Tensor, threshold: Tensor) -> Tensor:
    """Send every channel of each image through its own table of 256 gray levels.

    Every parameter is (N,), and at most one of the four departs from its neutral value for an image.

    Args:
        pixels: (N, C, H, W) uint8 images.
        auto_contrast: True stretches each channel to the whole range, `ImageOps.autocontrast`.
        equalize: True flattens the histogram of each channel, `ImageOps.equalize`.
        bits: High bits to keep, rounded down, `ImageOps.posterize`; 8 is neutral.
        threshold: Levels from here on are inverted, `ImageOps.solarize`; 256 is neutral.

    Returns:
        (N, C, H, W) uint8 images.
    """
    flat = pixels.flatten(2)
    value = flat.long()
    one = torch.ones((), dtype=torch.int32, device=pixels.device)
    histogram = torch.zeros((*flat.shape[:2], 256), dtype=torch.int32, device=pixels.device)
    histogram.scatter_add_(2, value, one.expand_as(value))
    darkest = flat.amin(2, keepdim=True).double()
    brightest = flat.amax(2, keepdim=True).long()

    # Pillow leaves a channel alone that has a single level (auto_contrast) or too few pixels below the top (equalize).
    span = brightest - darkest
    step = (flat.shape[2] - histogram.gather(2, brightest)).div(255, rounding_mode="floor").double()
    stretch = auto_contrast[:, None, None] & (span > 0)
    spread = equalize[:, None, None] & (step > 0)

    level = torch.arange(256, dtype=torch.int16, device=pixels.device)
    inverted = level >= threshold.ceil().to(torch.int16)[:, None]
    kept_bits = 256 - torch.bitwise_left_shift(1, 8 - bits.to(torch.int16))[:, None]
    tone = (level ^ (255 * inverted.to(torch.int16))) & kept_bits
    below = histogram.cumsum(2, dtype=torch.int32) - histogram

    # Every table is one line, scale * x + start. Equalize is floor((below + step // 2) / step): the added half changes
    # no floor of integers and keeps the product with the rounded reciprocal on the right side of it. Auto contrast has
    # no such room, and `255 / span` would be a product with a rounded reciprocal, too.
    scale = torch.where(stretch, torch.full_like(span, 255) / span, torch.where(spread, 1 / step, 1.0))
    start = torch.where(stretch, -darkest * scale, torch.where(spread, (torch.floor(step / 2) + 0.5) * scale, 0.0))
    table = (tone[:, None] + (below - tone[:, None]).mul_(spread)).double().mul_(scale).add_(start)
    return to_bytes(table.clamp_(0, 255)).gather(2, value).view_as(pixels)


def enhance(pixels: Tensor, *, brightness: Tensor, color: Tensor, contrast: Tensor, sharpness: Tensor) -> Tensor:
    """Blend each image with its black, gray, flat or smoothed version, `ImageEnhance` of Pillow.

    Every factor is (N,) in [0, 1], one is neutral, and at most one of the four is not one for an image.

    Args:
        pixels: (N, C, H, W) uint8 images.
        brightness: Share kept against black.
        color: Share kept against the gray image; an image of one channel is its own gray image.
        contrast: Share kept against the mean gray level.
        sharpness: Share kept against the 3 x 3 smoothed image.

    Returns:
        (N, C, H, W) uint8 images.
    """
    original = pixels.to(torch.int16)
    gray = luminance(pixels)
    flat = (gray * per_image(color < 1)).add_(mean_level(gray) * per_image(contrast < 1))
    sharp = per_image(sharpness < 1).to(torch.int16)
    gap = (flat - original).mul_(1 - sharp).add_(_smoothing(original).mul_(sharp))
    # Pillow's degenerate + factor * (original - degenerate), rounded at the same places.
    factor = per_image(brightness * color * contrast * sharpness)
    return to_bytes((original + gap).float().sub_(gap.float().mul_(factor)))


def per_image(value: Tensor) -> Tensor:
    """One value per image (N,), shaped to meet (N, C, H, W)."""
    return value.view(-1, 1, 1, 1)


def to_bytes(value: Tensor) -> Tensor:
    """Truncate as Pillow does; by way of int16, because PyTorch converts floats to bytes one by one on CPUs."""
    return value.to(torch.int16).to(torch.uint8)


def luminance(pixels: Tensor) -> Tensor:
    """Gray image (N, 1, H, W); anything but RGB is averaged over its channels."""
    channels = pixels.shape[1]
    weights = LUMINANCE if channels == 3 else (65536 // channels,) * channels
    weighted = torch.full_like(pixels[:, :1], 32768, dtype=torch.int32)
    for i, weight in enumerate(weights):
        weighted.add_(pixels[:, i : i + 1].to(torch.int32), alpha=weight)
    return (weighted >> 16).to(torch.int16)


def mean_level(gray: Tensor) -> Tensor:
    """The mean of each gray image (N, 1, H, W), rounded as Pillow does, (N, 1, 1, 1) int16."""
    count = gray.shape[2] * gray.shape[3]
    return (2 * gray.sum((2, 3), keepdim=True) + count).div(2 * count, rounding_mode="floor").to(torch.int16)


def _smoothing(original: Tensor) -> Tensor:
    """What `ImageFilter.SMOOTH`, a 3 x 3 mean with the center counted five times, adds to int16 images.

    Nothing at the border, where Pillow keeps the pixels; so the sums may roll over the flat memory, which is the
    fastest way, and what they carry over from the neighboring row or image does not matter.
    """
    height, width = original.shape[-2:]
    column = original.roll(width).add_(original).add_(original.roll(-width))
    total = column.roll(1).add_(column).add_(column.roll(-1)).add_(original, alpha=4)
    interior = torch.zeros((height, width), dtype=torch.int16, device=original.device)
    interior[1:-1, 1:-1] = 1
    return total.float().mul_(1 / 13).add_(0.5).to(torch.int16).sub_(original).mul_(interior)
