"""Networks: images in, features out, and the classifier that joins a backbone and a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature

from torch import nn

from ..errors import unknown
from .classifier import Classifier, NormalizedBackbone, Prediction, predict_jointly
from .multi_head import MultiHead
from .small import Small
from .wide_resnet import WideResNet

__all__ = [
    "NETWORKS",
    "Classifier",
    "MultiHead",
    "NormalizedBackbone",
    "Prediction",
    "Small",
    "WideResNet",
    "count_parameters",
    "make_network",
    "predict_jointly",
]

# Backbones by name; the keyword-only arguments that each leaves open are what a recipe may set.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "small": Small,
    "wrn-28-2": partial(WideResNet, 28, 2, 3),
    "wrn-28-8": partial(WideResNet, 28, 8, 3),
    "wrn-37-2": partial(WideResNet, 28, 2, 4),
}


def make_network(name: str, *, in_channels: int, num_classes: int, **arguments: object) -> Classifier:
    """The classifier around the backbone called `name`, which takes `arguments`."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    backbone = NETWORKS[name]
    open_arguments = set(signature(backbone).parameters) - {"in_channels"}
    for argument in arguments:
        if argument not in open_arguments:
            raise unknown(f"argument of the {name} network:", argument, open_arguments)
    return Classifier(backbone(in_channels=in_channels, **arguments), num_classes)


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, frozen ones included, as published tables count them."""
    return sum(parameter.numel() for parameter in module.parameters())
