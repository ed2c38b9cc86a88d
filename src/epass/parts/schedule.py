"""Weights that change in the course of a run."""

from __future__ import annotations

from torch import Tensor


def ramp_up(step: Tensor, steps: int) -> Tensor:
    """From 0 at the first step to 1 after `steps`, in a straight line."""
    return (step / max(steps, 1)).clamp(max=1.0)
