"""A task that needs no labels: by how many quarter turns was this image rotated?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .draws import uniform

TURNS = 4  # by 0, 90, 180 and 270 degrees


def turn_all_ways(images: Tensor) -> tuple[Tensor, Tensor]:
    """Square images (N, C, H, H), all by no turn, then all by one, two and three, and these numbers (4 N,) int64."""
    count, _, height, width = images.shape
    if height != width:
        raise InputError(
            f"Only square images can be rotated by quarter turns, not {width} x {height} pixels: "
            "resize them (--set data.image_size=32); ReMixMatch can leave this out (--set method.rotation_weight=0)."
        )
    turned = torch.cat([torch.rot90(images, turn, (2, 3)) for turn in range(TURNS)])
    return turned, torch.arange(TURNS, device=images.device).repeat_interleave(count)


def turn_at_random(images: Tensor, seed: Tensor, *, salt: int) -> tuple[Tensor, Tensor]:
    """Square images (N, C, H, H), each rotated by a random number of quarter turns, and those numbers (N,) int64."""
    count = len(images)
    turned, _ = turn_all_ways(images)
    turns = (TURNS * uniform(seed, count, salt=salt)).long()
    # All four and a choice: every step has the same shapes, whatever was drawn.
    return turned[count * turns + torch.arange(count, device=images.device)], turns
