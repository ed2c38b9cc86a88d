"""A small convolutional network: a training step on tiny images takes milliseconds on a CPU."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from .cpu_norm import normalized

_SMALLEST = 4
_WORKING_SIZE = 16  # pixels; beyond it, deeper layers would cost time and see too little of the image


class Small(nn.Module):
    """Images (N, in_channels, H, W) in, features (N, 4 * width) out, for images of 8 to 64 pixels."""

    def __init__(self, *, in_channels: int = 1, width: int = 24) -> None:
        super().__init__()
        self.stem = _block(in_channels, width)
        self.body = nn.Sequential(
            nn.MaxPool2d(2),
            _block(width, 2 * width),
            _block(2 * width, 2 * width),
            nn.MaxPool2d(2),
            _block(2 * width, 4 * width),
        )
        self.pool = _Shrink(2)  # and the body's first one, in one
        self.num_features = 4 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third less time on CPUs

    def forward(self, images: Tensor) -> Tensor:
        # The activation is monotone, so it may follow the pooling: the same numbers, of a fraction of the pixels.
        _, first, second, pool, last = self.body
        maps = first(_pooled(self.stem, self.pool, images))
        maps = cast(Tensor, last(_pooled(second, pool, maps)))
        return maps.mean((2, 3))

    def check_images(self, height: int, width: int) -> None:
        """Refuse images of which two poolings leave nothing."""
        if min(height, width) < _SMALLEST:
            raise InputError(
                f"This network takes images of {_SMALLEST} pixels or more, and these have {height} x {width}: set "
                "data.image_size to 8."
            )

    def divide(self) -> tuple[nn.Module, nn.Module]:
        """What several heads share, and what each has of its own: the last convolution."""
        layers = list(self.body)
        tail = nn.Sequential(*layers[-2:], nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(self.stem, _Shrink(), *layers[:-2]), tail


def _pooled(block: nn.Module, pool: nn.Module, maps: Tensor) -> Tensor:
    convolution, norm, activation = cast(nn.Sequential, block)
    return cast(Tensor, activation(pool(normalized(cast(nn.BatchNorm2d, norm), convolution(maps)))))


class _Shrink(nn.Module):
    """Pools large maps down to the size that the body works at, and `further` than that."""

    def __init__(self, further: int = 1) -> None:
        super().__init__()
        self.further = further

    def forward(self, maps: Tensor) -> Tensor:
        factor = max(1, min(maps.shape[2:]) // _WORKING_SIZE)
        return F.max_pool2d(maps, self.further * factor)


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        # With a wide ResNet's 0.001, the statistics of a run of a few hundred steps would stay near their start.
        nn.BatchNorm2d(outputs, momentum=0.1),
        nn.LeakyReLU(0.1, inplace=True),
    )
