"""The part of an image that is used, and the sizes it may get."""

from __future__ import annotations

from ...errors import InputError

SMALLEST = 8  # the side of scikit-learn's digits; below it a network has nothing left to pool
LARGEST = 8192  # no network takes more, and a single image has 200 MB then


def check_image_size(image_size: int) -> int:
    """`image_size`, if it is one that images can have."""
    if image_size < SMALLEST:
        raise InputError(f"An image size of {image_size} pixels is too small: use {SMALLEST} or more.")
    if image_size > LARGEST:
        raise InputError(f"An image size of {image_size} pixels is too large: use {LARGEST} or less.")
    return image_size


def central_square(height: int, width: int) -> tuple[int, int, int]:
    """Top, left and side of the largest square in the middle of an image."""
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side
