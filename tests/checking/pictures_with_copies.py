"""Images like photos, made of noise: strong in low frequencies, weak in high ones, each with a mean of its own."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def photos(count: int, side: int = 32, channels: int = 3, seed: int = 0) -> Tensor:
    """Uint8 (count, channels, side, side)."""
    random = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    gray = random.normal(size=(count, 1, side, side))
    waves = np.fft.fft2(gray + 0.5 * random.normal(size=(count, channels, side, side)))
    field = np.fft.ifft2(waves / np.maximum(frequency, 1 / side) ** 1.2).real
    field /= field.std((1, 2, 3), keepdims=True)
    levels = random.uniform(90, 160, (count, 1, 1, 1)) + random.uniform(25, 55, (count, 1, 1, 1)) * field
    return torch.from_numpy(levels.round().clip(0, 255).astype(np.uint8))


def recompressed(image: Tensor, quality: int) -> Tensor:
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(buffer))).permute(2, 0, 1)


def shifted(image: Tensor, down: int, right: int) -> Tensor:
    """Moved by that many pixels; what enters at the border is what was there."""
    moved = image.clone()
    moved[:, down:, right:] = image[:, : image.shape[1] - down, : image.shape[2] - right]
    return moved


def brighter(image: Tensor) -> Tensor:
    return (image.float() * 1.2 + 10).clamp(0, 255).byte()


def darker(image: Tensor) -> Tensor:
    return (image.float() * 0.6).byte()
