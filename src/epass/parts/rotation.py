"""A task that needs no labels: by how many quarter turns was this image rotated?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .draws import uniform

TURNS = 4  # by 0, 90, 180 and 270 degrees


def turn_at_random(images: Tensor, seed: Tensor, *, salt: int) -> tuple[Tensor, Tensor]:
    """Square images (N, C, H, H), each rotated by a random number of quarter turns, and those numbers (N,) int64."""
    count, _, height, width = images.shape
    if height != width:
        raise InputError(
            f"Only square images can be rotated by quarter turns, not {width} x {height} pixels: "
            "resize them (--set data.image_size=32) or leave the task out (--set method.rotation_weight=0)."
        )
    turns = (TURNS * uniform(seed, count, salt=salt)).long()
    # All four and a choice: every step has the same shapes, whatever was drawn.
    candidates = torch.stack([torch.rot90(images, turn, (2, 3)) for turn in range(TURNS)])
    return candidates[turns, torch.arange(count, device=images.device)], turns
