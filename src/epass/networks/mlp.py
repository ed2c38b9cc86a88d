"""A small body for vectors: what a classifier of features that another network made consists of."""

from __future__ import annotations

from typing import ClassVar, cast

from torch import Tensor, nn


class MLP(nn.Module):
    """Vectors (N, in_channels) in, features (N, width) out: linear, BatchNorm, ReLU."""

    takes_vectors: ClassVar[bool] = True

    def __init__(self, *, in_channels: int = 1280, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_channels, width), nn.BatchNorm1d(width), nn.ReLU())
        self.num_features = width

    def forward(self, vectors: Tensor) -> Tensor:
        return cast(Tensor, self.layers(vectors))
