"""A task that needs no labels: by how many quarter turns was this image rotated?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .draws import uniform

TURNS = 4  # by 0, 90, 180 and 270 degrees


def turn_all_ways(images: Tensor) -> Tensor:
    """(4, N, C, H, H) square images (N, C, H, H), all by no turn, then all by one, by two and by three."""
    height, width = images.shape[2:]
    if height != width:
        raise InputError(
            f"Only square images can be rotated by quarter turns, not {width} x {height} pixels: "
            "resize them (--set data.image_size=32); ReMixMatch can leave this out (--set method.rotation_weight=0)."
        )
    return torch.stack([torch.rot90(images, turn, (2, 3)) for turn in range(TURNS)])


def turn_at_random(images: Tensor, seed: Tensor, *, salt: int) -> tuple[Tensor, Tensor]:
    """Square images (N, C, H, H), each rotated by a random number of quarter turns, and those numbers (N,) int64."""
    count = len(images)
    # All four and a choice: every step has the same shapes, whatever was drawn.
    candidates = turn_all_ways(images)
    turns = (TURNS * uniform(seed, count, salt=salt)).long()
    return candidates[turns, torch.arange(count, device=images.device)], turns
