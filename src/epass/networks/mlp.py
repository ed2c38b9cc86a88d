"""A small body for vectors: what a classifier of features that another network made consists of."""

from __future__ import annotations

from typing import ClassVar, cast

from torch import Tensor, nn


class MLP(nn.Module):
    """Vectors (N, in_channels) in, features (N, hidden) out: linear, BatchNorm, ReLU."""

    takes_vectors: ClassVar[bool] = True

    def __init__(self, *, in_channels: int = 1280, hidden: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_channels, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.num_features = hidden

    def forward(self, vectors: Tensor) -> Tensor:
        return cast(Tensor, self.layers(vectors))
