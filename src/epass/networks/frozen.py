"""A classifier of features and the network that makes these features, as one network from image to class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .classifier import Prediction


class FromImages(nn.Module):
    """`net` works on the features of `backbone`, each of which is standardized."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float], net: nn.Module) -> None:
        super().__init__()
        self.backbone, self.net = backbone, net
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))
        self.num_features: int = net.num_features  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Prediction:
        features: Tensor = self.backbone(images)
        answer: Prediction = self.net((features - self.mean) / self.std)
        return answer
