"""A network that makes features and the body behind it, trained together."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn


class OnFeatures(nn.Module):
    """`body` works on the features of another network, each of which is standardized, and both learn.

    BatchNorm in the network that makes features keeps the statistics of the many images that it has seen: those of a
    small batch of few classes, half of it strong views, would spoil what it knows. It counts as the first of two layers
    (`plan.layer_decay`), since what it knows should change more slowly than what stands behind it.
    """

    mean: Tensor
    std: Tensor
    num_layers = 1

    def __init__(self, features: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.features, self.body = features, body
        width = cast(int, features.num_features)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))
        self.num_features = cast(int, body.num_features)
        self.train()

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.body((self.features(images) - self.mean) / self.std))

    def train(self, mode: bool = True) -> OnFeatures:
        """Never let a BatchNorm of the features see a batch."""
        super().train(mode)
        for part in self.features.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.eval()
        return self

    def layer_of(self, name: str) -> int:
        """The layer of a parameter: 0 makes features, 1 is behind them."""
        return 0 if name.startswith("features.") else 1

    def check_images(self, height: int, width: int) -> None:
        """Refuse what the network that makes features refuses."""
        check: Callable[[int, int], None] | None = getattr(self.features, "check_images", None)
        if check is not None:
            check(height, width)
