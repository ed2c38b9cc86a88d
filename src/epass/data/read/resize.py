"""Square images of another size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..dataset import Dataset
from ..images import Images, ImageSource
from .square import central_square, check_image_size

_CHUNK = 1024  # images per chunk: the float copies of a large set would not fit into memory


def resize(pixels: Tensor, image_size: int) -> Tensor:
    """The central square of uint8 (N, C, H, W) `pixels`, scaled to `image_size` (bilinear, antialiased).

    Scaling the shorter side to `image_size` and cropping the middle gives the same, but for the outermost pixels, with
    more work.
    """
    square = squared(pixels)
    if square.shape[-1] == check_image_size(image_size):
        return square.contiguous()
    made = pixels.new_empty((*pixels.shape[:2], image_size, image_size))
    for start in range(0, len(pixels), _CHUNK):
        made[start : start + _CHUNK] = _scale(square[start : start + _CHUNK], image_size)
    return made


def squared(pixels: Tensor) -> Tensor:
    """The central square of (N, C, H, W) `pixels`."""
    top, left, side = central_square(*pixels.shape[-2:])
    return pixels[..., top : top + side, left : left + side]


@dataclass(frozen=True, eq=False)
class EnlargedImages:
    """Square images that are kept as small as they came, and scaled to `side` when some of them are taken.

    The pixels are those of `resize`, bit by bit. Elsewhere than on the CPU, which may scale with another rounding, they
    are stored as large as they are needed.
    """

    small: Images
    side: int

    @property
    def labels(self) -> Tensor:
        return self.small.labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.small.shape[0], self.side, self.side

    @property
    def pixels(self) -> Tensor:
        return resize(self.small.pixels, self.side)

    def __len__(self) -> int:
        return len(self.small)

    def take(self, index: Tensor) -> Tensor:
        return resize(self.small.take(index), self.side)

    def look(self, index: Tensor) -> Tensor:
        return self.take(index)

    def chunks(self, rows: int) -> Iterator[Tensor]:
        return (resize(chunk, self.side) for chunk in self.small.chunks(rows))

    def select(self, index: Tensor) -> EnlargedImages:
        return replace(self, small=self.small.select(index))

    def labeled(self, labels: Tensor) -> EnlargedImages:
        return replace(self, small=self.small.labeled(labels))

    def joined(self, other: ImageSource) -> ImageSource:
        if isinstance(other, EnlargedImages) and other.side == self.side and other.small.shape == self.small.shape:
            return replace(self, small=self.small.joined(other.small))
        return Images(self.pixels, self.labels).joined(other)

    def to(self, device: torch.device | str) -> ImageSource:
        return self if torch.device(device).type == "cpu" else Images(self.pixels, self.labels).to(device)


def scaled(images: Images, image_size: int | None) -> ImageSource:
    """Square images of another size, of which larger ones are made when they are asked for; None changes nothing."""
    side = images.shape[-1]
    if image_size is None or check_image_size(image_size) == side:
        return images
    if image_size > side:
        return EnlargedImages(images, image_size)
    return Images(resize(images.pixels, image_size), images.labels)


def resized(dataset: Dataset, image_size: int | None) -> Dataset:
    """A data set with images of another size, and a random crop that is as large for them; None changes nothing."""
    side = dataset.train.shape[-1]
    if image_size is None or image_size == side:
        return dataset
    train, test = (images and scaled(cast(Images, images), image_size) for images in (dataset.train, dataset.test))
    assert train is not None
    padding = dataset.augment["padding"]
    assert isinstance(padding, int)
    augment = {**dataset.augment, "padding": round(padding * image_size / side)}
    return replace(dataset, train=train, test=test, augment=augment)


def _scale(chunk: Tensor, size: int) -> Tensor:
    scaled = F.interpolate(chunk.float(), (size, size), mode="bilinear", antialias=True, align_corners=False)
    return scaled.round().clamp(0, 255).byte()
