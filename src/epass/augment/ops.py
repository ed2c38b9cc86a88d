"""The operations of RandAugment and Cutout, batched: every image has its own operation and magnitude."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from epass.augment.geometry import inverse_map, warp
from epass.augment.tone import enhance, remap

# Operation -> smallest and largest magnitude; the position in this table is the number of the operation.
OPERATIONS: Final[dict[str, tuple[float, float]]] = {
    "auto_contrast": (0.0, 0.0),
    "brightness": (0.05, 0.95),
    "color": (0.05, 0.95),
    "contrast": (0.05, 0.95),
    "equalize": (0.0, 0.0),
    "identity": (0.0, 0.0),
    "posterize": (4.0, 8.0),
    "rotate": (-30.0, 30.0),
    "sharpness": (0.05, 0.95),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "solarize": (0.0, 256.0),
    "translate_x": (-0.3, 0.3),
    "translate_y": (-0.3, 0.3),
}

# Left out where the absolute level of a channel carries the class, as in TissueMNIST.
COLOR_OPERATIONS: Final = ("auto_contrast", "color", "contrast", "posterize", "solarize")

CUTOUT_COLOR: Final = (125, 123, 114)
CUTOUT_GRAY: Final = 123  # the luminance of CUTOUT_COLOR

_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}


def apply_operations(pixels: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Apply to each image its own operations, one after the other.

    The operations share three passes (a gather by position, a gather by level, a blend) that are neutral for the
    images that did not choose them, because the choice may not change what runs: that would wait for the device.

    Args:
        pixels: (N, C, H, W) uint8 images.
        operation: (N, K) integers, positions in OPERATIONS.
        magnitude: (N, K) floats in the range that OPERATIONS gives.

    Returns:
        (N, C, H, W) uint8 images.
    """

    def chosen(name: str) -> Tensor:
        return operation == _NUMBER[name]

    def strength(name: str, neutral: float) -> Tensor:
        return torch.where(chosen(name), magnitude, neutral)

    matrix = inverse_map(
        pixels.shape[2],
        pixels.shape[3],
        angle=strength("rotate", 0.0),
        shear_x=strength("shear_x", 0.0),
        shear_y=strength("shear_y", 0.0),
        shift_x=strength("translate_x", 0.0),
        shift_y=strength("translate_y", 0.0),
    )
    table = {
        "auto_contrast": chosen("auto_contrast"),
        "equalize": chosen("equalize"),
        "bits": strength("posterize", 8.0).clamp(min=1.0),
        "threshold": strength("solarize", 256.0),
    }
    blend = {name: strength(name, 1.0) for name in ("brightness", "color", "contrast", "sharpness")}
    for i in range(operation.shape[1]):
        pixels = warp(pixels, matrix[:, i])
        pixels = remap(pixels, **{name: value[:, i] for name, value in table.items()})
        pixels = enhance(pixels, **{name: value[:, i] for name, value in blend.items()})
    return pixels


def cut_out(pixels: Tensor, fraction: Tensor, center: Tensor) -> Tensor:
    """Paint one square of a neutral color into each image.

    The far corner is measured from the already clamped near corner: at the top and left border the square is moved
    into the image, at the bottom and right border it is cut. Both corners are painted, as `ImageDraw.rectangle` does.

    Args:
        pixels: (N, C, H, W) uint8 images.
        fraction: (N,) side of the square as a fraction of the width; no square where it is not positive.
        center: (N, 2) row and column of the center as fractions of height and width.

    Returns:
        (N, C, H, W) uint8 images.
    """
    channels, height, width = pixels.shape[1:]
    side = fraction * width
    rows = _covered(height, center[:, 0] * height, side)
    columns = _covered(width, center[:, 1] * width, side)
    hole = (rows[:, :, None] & columns[:, None, :])[:, None].to(torch.uint8)
    colors = CUTOUT_COLOR if channels == 3 else (CUTOUT_GRAY,) * channels
    paint = torch.cat([hole * color for color in colors], dim=1)
    return pixels * (1 - hole) + paint


def _covered(size: int, center: Tensor, side: Tensor) -> Tensor:
    """Which positions of one axis, (N, size), lie in the square."""
    first = torch.floor((center - side / 2).clamp(min=0.0))
    # Pillow truncates the float corner and paints it; beyond the last pixel there is nothing to paint.
    last = torch.floor(first + side)
    position = torch.arange(size, device=center.device)
    return (position >= first[:, None]) & (position <= last[:, None]) & (side > 0)[:, None]
