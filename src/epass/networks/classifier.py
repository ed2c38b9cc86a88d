"""A backbone with a linear classification layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..errors import InputError


class Prediction(NamedTuple):
    """What a classifier says about N images, in float32 whatever the precision of the network."""

    logits: Tensor  # (N, num_classes)
    features: Tensor  # (N, num_features), of the backbone


class Classifier(nn.Module):
    """Joins a `backbone` and a linear layer.

    Any module that has `num_features` and turns images (N, C, H, W) into features (N, num_features) is a backbone.
    """

    def __init__(self, backbone: nn.Module, num_classes: int) -> None:
        super().__init__()
        num_features = getattr(backbone, "num_features", None)
        if not isinstance(num_features, int):
            raise InputError(
                f"{type(backbone).__name__} cannot be a backbone: it needs an integer `num_features`, "
                "the width of the features that its forward(images) returns."
            )
        self.backbone = backbone
        self.precision = torch.float32  # what the network computes in; what it returns is always float32
        self.num_features = num_features
        self.head = nn.Linear(num_features, num_classes)
        nn.init.xavier_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Prediction:
        with torch.autocast(images.device.type, self.precision, enabled=self.precision != torch.float32):
            features = self.backbone(images)
            logits = self.head(features)
        # Projectors, pseudo-labels, losses and memories need full precision whatever the network computed in.
        return Prediction(logits.float(), features.float())

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse examples that the backbone cannot take: images (C, H, W) for vectors (D,), or of a wrong size."""
        takes_vectors = bool(getattr(self.backbone, "takes_vectors", False))
        if takes_vectors != (len(shape) == 1):
            found, wanted = ("images", "vectors") if takes_vectors else ("vectors", "images")
            advice = "another one" if takes_vectors else "mlp"
            raise InputError(f"The network takes {wanted}, and these are {found}: use {advice} (--net).")
        check: Callable[[int, int], None] | None = getattr(self.backbone, "check_images", None)
        if check is not None:
            check(*shape[1:])


class NormalizedBackbone(nn.Module):
    """A backbone with a LayerNorm on its features: how long they are no longer says anything about an image."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features = cast(int, backbone.num_features)
        self.norm = nn.LayerNorm(self.num_features)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.norm(self.backbone(images))
        return features


def predict_jointly(net: nn.Module, *views: Tensor) -> list[Prediction]:
    """Run all views as one batch and split the result per view.

    Views that pass the network one after the other would each be normalized with their own batch statistics, which
    costs several times the error rate: they must share them. So does leaving the rows of views that only teach others
    out of the backward pass: the gradient that reaches them through the shared statistics is needed.
    """
    sizes = [len(view) for view in views]
    prediction: Prediction = net(torch.cat(views))
    logits, features = (torch.split(part, sizes) for part in prediction)
    return [Prediction(*parts) for parts in zip(logits, features, strict=True)]
