"""A classifier that answers with the logits of a second head."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from .classifier import Classifier, Prediction


class Balanced(nn.Module):
    """A classifier `net` whose answer is that of `head` on its features, or on what `projector` makes of them.

    It owns none of them: around modules that are in training, it is another way to ask them.
    """

    def __init__(self, net: nn.Module, head: nn.Module, projector: nn.Module | None = None) -> None:
        super().__init__()
        self.net, self.head, self.projector = net, head, projector
        self.training = net.training  # `train` would set the mode of modules that are in use elsewhere

    def forward(self, images: Tensor) -> Prediction:
        prediction: Prediction = self.net(images)
        features = prediction.features if self.projector is None else self.projector(prediction.features)
        return prediction._replace(logits=self.head(features))

    @property
    def num_features(self) -> int:
        return cast(Classifier, self.net).num_features

    @property
    def precision(self) -> torch.dtype:
        """What the classifier computes in; the second head is always exact."""
        return cast(Classifier, self.net).precision

    @precision.setter
    def precision(self, precision: torch.dtype) -> None:
        self.net.precision = precision  # type: ignore[assignment]  # a plain attribute, not a module


def number_of_classes(net: nn.Module) -> int:
    """How many classes the classifier tells apart that `net` is, or is made from."""
    return next(part.head.out_features for part in net.modules() if isinstance(part, Classifier))
