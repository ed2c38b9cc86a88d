"""Patches of other images: every image gets a box of another one of its batch, and a share of that one's label."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..machine.distributed import gather_rows, rank, world_size
from .draws import permutation, uniform


class Patched(NamedTuple):
    """What `cut_mix` made of a batch."""

    images: Tensor  # like those it was given
    share: Tensor  # (N,) how much of each is still its own
    partner: Tensor  # (N,) int64, who gave the rest: a position in the batch of all processes


def cut_mix(images: Tensor, seed: Tensor) -> Patched:
    """Images (N, C, H, W), each with a random box of another one; vectors (N, D) are mixed number by number instead.

    Before it is clipped at the edges, a box takes at most half of the image. Draws with the salts 3, 4 and 5, so that a
    wrapper may use it beside others.
    """
    count = len(images)
    partner = permutation(seed, count, salt=3)[rank() :: world_size()]
    others = gather_rows(images)[partner]
    kept = uniform(seed, count, salt=4)
    kept = torch.maximum(kept, 1 - kept)
    if images.dim() == 2:  # the numbers of a vector have no neighbors that a box could keep together
        return Patched(torch.lerp(others, images, kept[:, None]), kept, partner)
    center, inside, area = uniform(seed, count, 2, salt=5), [], torch.ones_like(kept)
    for side, size in enumerate(images.shape[2:]):
        middle, half = (size * center[:, side]).floor(), (size * (1 - kept).sqrt()).floor() // 2
        low, high = (middle - half).clamp(min=0), (middle + half).clamp(max=size)
        pixel = torch.arange(size, device=images.device)
        inside.append((low[:, None] <= pixel) & (pixel < high[:, None]))
        area = area * (high - low) / size
    box = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return Patched(torch.where(box, others, images), 1 - area, partner)


def patched_consistency(logits: Tensor, patched: Patched, labels: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy with the labels (N,) of both images, each by its share and only where its `mask` (N,) is not 0."""
    _, share, partner = patched
    own = F.cross_entropy(logits, labels, reduction="none") * mask
    other = F.cross_entropy(logits, gather_rows(labels)[partner], reduction="none") * gather_rows(mask)[partner]
    return (share * own + (1 - share) * other).mean()
