"""Augmentation as `draw` then `apply`, on uint8 images wherever they live."""

from epass.augment.ops import CUTOUT_COLOR, OPERATIONS, apply_operations, cut_out
from epass.augment.policies import (
    Draws,
    Policy,
    Strong,
    StrongDraws,
    Weak,
    WeakDraws,
    make_policies,
    normalize,
    reflect_padding,
)

__all__ = [
    "CUTOUT_COLOR",
    "OPERATIONS",
    "Draws",
    "Policy",
    "Strong",
    "StrongDraws",
    "Weak",
    "WeakDraws",
    "apply_operations",
    "cut_out",
    "make_policies",
    "normalize",
    "reflect_padding",
]
