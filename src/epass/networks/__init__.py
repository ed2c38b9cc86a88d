"""Networks: images in, features out, and the classifier that joins a backbone and a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from inspect import isclass, isfunction, signature
from typing import Any

import torch
from torch import nn

from ..errors import InputError, unknown
from ..extensions import Kind, find, takes
from .classifier import Classifier, NormalizedBackbone, Prediction, predict_jointly
from .efficientnet_lite import EfficientNetLite
from .foreign import FOREIGN
from .frozen import FromImages
from .mlp import MLP
from .multi_head import MultiHead
from .resnet import ResNet
from .small import Small
from .tuned import OnFeatures
from .vit import ViT
from .weights import PUBLISHED, start_from
from .wide_resnet import WideResNet

__all__ = [
    "MLP",
    "NETWORKS",
    "Classifier",
    "EfficientNetLite",
    "FromImages",
    "MultiHead",
    "NormalizedBackbone",
    "OnFeatures",
    "Prediction",
    "ResNet",
    "Small",
    "ViT",
    "WideResNet",
    "count_parameters",
    "find_network",
    "input_size",
    "make_network",
    "predict_jointly",
    "start_from",
]

# Backbones by name; the keyword-only arguments that each leaves open are what a recipe may set.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "small": Small,
    "wrn-28-2": partial(WideResNet, 28, 2, 3),
    "wrn-28-8": partial(WideResNet, 28, 8, 3),
    "wrn-37-2": partial(WideResNet, 28, 2, 4),
    "resnet-18": partial(ResNet, (2, 2, 2, 2), False),
    "resnet-50": partial(ResNet, (3, 4, 6, 3), True),
    "efficientnet-lite0": partial(EfficientNetLite, 0),
    "efficientnet-lite1": partial(EfficientNetLite, 1),
    "efficientnet-lite2": partial(EfficientNetLite, 2),
    "mlp": MLP,
    "vit-tiny-patch2-32": partial(ViT, 32, 2, 192, 12, 3, drop_path=0.1),
    "vit-small-patch2-32": partial(ViT, 32, 2, 384, 12, 6, drop_path=0.2),
    "vit-small-patch16-224": partial(ViT, 224, 16, 384, 12, 6, drop_path=0.2),
    "vit-base-patch16-96": partial(ViT, 96, 16, 768, 12, 12, drop_path=0.2),
    "vit-base-patch16-224": partial(ViT, 224, 16, 768, 12, 12, drop_path=0.2),
}
NETWORK = Kind(
    "network",
    lambda found: (isclass(found) or isfunction(found)) and takes(found, in_channels=3),
    "a class or function of in_channels whose module has num_features",
)


def find_network(name: str) -> Callable[..., nn.Module]:
    """What makes the backbone called `name`: one of ours, `timm:NAME`, `hf:NAME_OR_PATH`, or one of yours."""
    library, _, theirs = name.partition(":")
    if library in FOREIGN and theirs:
        return partial(FOREIGN[library], theirs)
    return find(name, NETWORK, NETWORKS, [f"{library}:NAME" for library in FOREIGN])


def make_network(
    name: str,
    *,
    in_channels: int,
    num_classes: int,
    weights: str | None = None,
    behind: str | None = None,
    **arguments: object,
) -> Classifier:
    """The classifier around the backbone called `name`, which takes `arguments`.

    It starts from the `weights` of a file, if one is given. For networks of other libraries, "published" stands for
    those that the library knows. A network of vectors may stand `behind` another one, which makes features of images:
    both learn, and the weights are those of the other one.
    """
    if behind is None:
        return Classifier(_backbone(name, in_channels, weights, **arguments), num_classes)
    features = _backbone(behind, in_channels, weights)
    body = _backbone(name, features.num_features, None, **arguments)
    if getattr(features, "takes_vectors", False) or not getattr(body, "takes_vectors", False):
        raise InputError(f"'{name}' cannot stand behind '{behind}': net.behind takes a network of images, --net mlp.")
    return Classifier(OnFeatures(features, body), num_classes)


def _backbone(name: str, in_channels: Any, weights: str | None, **arguments: object) -> nn.Module:
    backbone = find_network(name)
    open_arguments = set(signature(backbone).parameters) - {"in_channels", "published"}
    for argument in arguments:
        if argument not in open_arguments:
            raise unknown(f"argument of the {name} network:", argument, open_arguments)
    if weights == PUBLISHED:
        if "published" not in signature(backbone).parameters:
            raise InputError(f"'{name}' comes without published weights: net.weights names a file of them.")
        return backbone(published=True, in_channels=in_channels, **arguments)
    made = backbone(in_channels=in_channels, **arguments)
    start_from(made, weights=weights)
    return made


@lru_cache(maxsize=8)
def input_size(name: str) -> int | None:
    """The side of the images that a network was made for, if it knows one and can be made here."""
    try:
        with torch.device("meta") if name in NETWORKS else nullcontext():  # ours need no memory for that
            size: object = getattr(find_network(name)(in_channels=3), "image_size", None)
    except InputError:  # whoever trains it says what is wrong
        return None
    return size if isinstance(size, int) else None


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, frozen ones included, as published tables count them."""
    return sum(parameter.numel() for parameter in module.parameters())
