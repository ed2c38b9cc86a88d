"""Augmentation as `draw` then `apply`, on uint8 images wherever they live."""

from epass.augment.geometry import check_padding
from epass.augment.jitter import JITTER, color_jitter, gaussian_blur, grayscale
from epass.augment.ops import CUTOUT_COLOR, OPERATIONS, apply_operations, cut_out
from epass.augment.policies import (
    POLICIES,
    Crop,
    CropDraws,
    Draws,
    Policy,
    Strong,
    StrongDraws,
    Weak,
    WeakDraws,
    make_policies,
    normalize,
    reflect_padding,
    with_crop,
)

__all__ = [
    "CUTOUT_COLOR",
    "JITTER",
    "OPERATIONS",
    "POLICIES",
    "Crop",
    "CropDraws",
    "Draws",
    "Policy",
    "Strong",
    "StrongDraws",
    "Weak",
    "WeakDraws",
    "apply_operations",
    "check_padding",
    "color_jitter",
    "cut_out",
    "gaussian_blur",
    "grayscale",
    "make_policies",
    "normalize",
    "reflect_padding",
    "with_crop",
]
