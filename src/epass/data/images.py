"""Images as one uint8 tensor that lives on the training device, and the seam for what does not fit there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class ImageSource(Protocol):
    """Anything that training and tests can take images from."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 on the training device, -1 = unknown."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: (C, H, W)."""

    @property
    def pixels(self) -> Tensor:
        """All images as uint8 (N, C, H, W): for whoever knows that they fit into memory."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """The images at `index` (n,), as uint8 (n, C, H, W) on the training device."""

    def look(self, index: Tensor) -> Tensor:
        """What people see of the images at `index`: uint8 (n, C, H, W)."""

    def chunks(self, rows: int) -> Iterable[Tensor]:
        """All images in their order, at most `rows` at a time; one empty chunk if there is none."""

    def select(self, index: Tensor) -> ImageSource:
        """The images at `index`, with their labels."""

    def labeled(self, labels: Tensor) -> ImageSource:
        """The same images with other labels."""

    def joined(self, other: ImageSource) -> ImageSource:
        """These images, then those of another source of the same kind."""

    def to(self, device: torch.device | str) -> ImageSource:
        """The same with `device` as the training device."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images that fit into memory: `take` is one gather on whatever device they live."""

    pixels: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64, -1 = unknown

    def __len__(self) -> int:
        return self.pixels.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pixels.shape[1:])

    def take(self, index: Tensor) -> Tensor:
        return self.pixels.index_select(0, index)

    def look(self, index: Tensor) -> Tensor:
        return self.take(index)

    def chunks(self, rows: int) -> Iterable[Tensor]:
        return torch.split(self.pixels, rows)

    def select(self, index: Tensor) -> Images:
        return Images(self.take(index), self.labels.index_select(0, index))

    def labeled(self, labels: Tensor) -> Images:
        return Images(self.pixels, labels)

    def joined(self, other: ImageSource) -> Images:
        return Images(torch.cat([self.pixels, other.pixels]), torch.cat([self.labels, other.labels]))

    def to(self, device: torch.device | str) -> Images:
        return Images(self.pixels.to(device), self.labels.to(device))


def concatenate(first: ImageSource, second: ImageSource) -> ImageSource:
    """The images of `first`, then those of `second`; neither is copied when the other is empty."""
    if not len(second):
        return first
    return first.joined(second) if len(first) else second
