"""Tensors as Pillow's images, and back."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def to_pillow(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> Tensor:
    array = torch.from_numpy(np.array(image))
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1)
