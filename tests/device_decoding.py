"""A decoder that stands in for that of a GPU, where there is none: its pixels can be told from those of the CPU."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from epass.data.stream.device_jpeg import DeviceDecoder

CPU = torch.device("cpu")


def negatives(images: list[Tensor]) -> list[Tensor]:
    """JPEG files, decoded by Pillow, with light and dark exchanged."""
    decoded = (np.array(Image.open(BytesIO(image.numpy().tobytes())).convert("RGB")) for image in images)
    return [torch.from_numpy(255 - pixels.transpose(2, 0, 1)) for pixels in decoded]


def stand_in(_device: torch.device) -> DeviceDecoder:
    return DeviceDecoder(CPU, negatives)
