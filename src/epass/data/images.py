"""Images as one uint8 tensor that lives on the training device, and the seam for what does not fit there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class ImageSource(Protocol):
    """Anything a `Feed` can take images from."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 on the training device, -1 = unknown."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """The images at `index` (n,), as uint8 (n, C, H, W) on the training device."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images that fit into memory: `take` is one gather on whatever device they live."""

    pixels: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64, -1 = unknown

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def take(self, index: Tensor) -> Tensor:
        return self.pixels.index_select(0, index)

    def select(self, index: Tensor) -> Images:
        return Images(self.take(index), self.labels.index_select(0, index))

    def to(self, device: torch.device | str) -> Images:
        return Images(self.pixels.to(device), self.labels.to(device))


def join(first: Images, second: Images) -> Images:
    """The images of `first`, then those of `second`; neither is copied when the other is empty."""
    if not len(second):
        return first
    if not len(first):
        return second
    return Images(torch.cat([first.pixels, second.pixels]), torch.cat([first.labels, second.labels]))
