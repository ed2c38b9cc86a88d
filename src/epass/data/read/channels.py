"""Gray images for networks that take color, and color images for networks that take gray."""

from __future__ import annotations

from torch import Tensor

from ...augment.tone import luminance


def with_channels(pixels: Tensor, channels: int) -> Tensor:
    """uint8 (N, 1 or 3, H, W) images with 1 or 3 `channels`: gray ones are repeated, colors become Pillow's gray.

    Gray that was repeated comes back unchanged. Images that have these channels already are not copied.
    """
    if pixels.shape[1] == channels:
        return pixels
    return luminance(pixels).byte() if channels == 1 else pixels.expand(-1, channels, -1, -1)
