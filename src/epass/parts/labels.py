"""Label encodings and pseudo-label losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(N,) -> (N, num_classes) float. Unlike `F.one_hot`, it never reads the labels on the host."""
    return (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()


def consistency(logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Masked cross-entropy with hard (N,) or soft (N, C) targets; rows that are masked out still count in the mean."""
    return (F.cross_entropy(logits, target, reduction="none") * mask).mean()
