"""Which pseudo-labels are trusted."""

from __future__ import annotations

from torch import Tensor


def confident(probs: Tensor, threshold: float | Tensor) -> Tensor:
    """(N, C) -> (N,) float mask of the rows whose largest probability reaches `threshold` (inclusive), one or (N,)."""
    return (probs.amax(1) >= threshold).float()
