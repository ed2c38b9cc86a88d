"""A tiny network that makes features, and images for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from epass.data import Dataset, Images
from epass.features import Extractor

SIZE = 12


class Eye(nn.Module):
    """A convolution with BatchNorm and means over four parts of the image; it counts what it sees."""

    seen = 0  # images that passed any of them

    def __init__(self, published: bool = False, *, in_channels: int = 3, channels: int = 5, gain: float = 1.0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layer = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.body = nn.Sequential(layer, nn.BatchNorm2d(channels), nn.ReLU())
        self.body[1].running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
        self.body[1].running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
        self.gain, self.num_features = gain, 4 * channels

    def forward(self, images: Tensor) -> Tensor:
        Eye.seen += len(images)
        return self.gain * nn.functional.adaptive_avg_pool2d(self.body(images), 2).flatten(1)


def extractor(*, name: str = "eye", gain: float = 1.0, digest: str = "weights") -> Extractor:
    return Extractor(name, Eye(gain=gain).eval(), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), digest)


def pictures(count: int, seed: int = 0, *, num_classes: int = 3, channels: int = 3) -> Images:
    """Random images, of which each class prefers one color."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % num_classes
    pixels = torch.randint(0, 160, (count, channels, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(count), labels % channels] += 90
    return Images(pixels, labels)


def pictured(train: int = 24, test: int | None = 9) -> Dataset:
    names = ("red", "green", "blue")
    held = None if test is None else pictures(test, seed=1)
    return Dataset("pictured", names, pictures(train), held, (0.5,) * 3, (0.25,) * 3, {})
