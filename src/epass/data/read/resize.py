"""Square images of another size."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ..dataset import Dataset
from ..images import Images
from .square import central_square, check_image_size

_CHUNK = 1024  # images per chunk: the float copies of a large set would not fit into memory


def resize(pixels: Tensor, image_size: int) -> Tensor:
    """The central square of uint8 (N, C, H, W) `pixels`, scaled to `image_size` (bilinear, antialiased).

    Scaling the shorter side to `image_size` and cropping the middle gives the same, but for the outermost pixels, with
    more work.
    """
    top, left, side = central_square(*pixels.shape[-2:])
    square = pixels[..., top : top + side, left : left + side]
    if side == check_image_size(image_size):
        return square.contiguous()
    starts = range(0, len(pixels), _CHUNK)
    return torch.cat([_scale(square[start : start + _CHUNK], image_size) for start in starts])


def resized(dataset: Dataset, image_size: int | None) -> Dataset:
    """A data set with images of another size, and a random crop that is as large for them; None changes nothing."""
    side = dataset.train.pixels.shape[-1]
    if image_size is None or image_size == side:
        return dataset
    train, test = (
        images and Images(resize(images.pixels, image_size), images.labels) for images in (dataset.train, dataset.test)
    )
    assert train is not None
    padding = dataset.augment["padding"]
    assert isinstance(padding, int)
    scaled = {**dataset.augment, "padding": round(padding * image_size / side)}
    return replace(dataset, train=train, test=test, augment=scaled)


def _scale(chunk: Tensor, size: int) -> Tensor:
    scaled = F.interpolate(chunk.float(), (size, size), mode="bilinear", antialias=True, align_corners=False)
    return scaled.round().clamp(0, 255).byte()
