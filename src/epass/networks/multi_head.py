"""A classifier with several deep heads on one shared trunk."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from .classifier import Classifier, Prediction

Part = TypeVar("Part", bound=nn.Module)


class MultiHead(nn.Module):
    """`num_heads` heads, made from a classifier: the first one is its own, the others are equal but start anew.

    A backbone whose method `divide()` returns a trunk and a tail, modules of which the second works on what the first
    returns, gives every head a tail of its own. Around any other backbone the heads are linear layers.
    """

    def __init__(self, net: Classifier, num_heads: int = 3) -> None:
        super().__init__()
        divide = getattr(net.backbone, "divide", None)
        trunk, tail = (net.backbone, nn.Identity()) if divide is None else divide()
        self.trunk: nn.Module = trunk
        self.heads = nn.ModuleList([_Head(tail, net.head)])
        self.heads.extend(_Head(_anew(tail), _anew(net.head)) for _ in range(num_heads - 1))
        self.num_features, self.precision = net.num_features, net.precision

    def forward(self, images: Tensor) -> Prediction:
        """The sum of the heads' logits, and the features of the first head."""
        with self.in_precision(images):
            maps = self.trunk(images)
            answers = [cast(Prediction, head(maps)) for head in self.heads]
        logits = torch.stack([answer.logits.float() for answer in answers]).sum(0)
        return Prediction(logits, answers[0].features.float())

    def predict_apart(self, shared: Sequence[Tensor], own: Sequence[Tensor]) -> list[list[Prediction]]:
        """What each head says about the `shared` views and, last, about its own one of the `own` views.

        As in `predict_jointly`, the views that pass a head, and all that pass the trunk, share batch statistics.
        """
        sizes = [len(view) for view in (*shared, *own)]
        with self.in_precision(own[0]):
            maps = torch.split(self.trunk(torch.cat((*shared, *own))), sizes)
            for_all, for_one = maps[: len(shared)], maps[len(shared) :]
            answers = [head(torch.cat((*for_all, mine))) for head, mine in zip(self.heads, for_one, strict=True)]
        sizes = sizes[: len(shared) + 1]
        split = [[torch.split(part.float(), sizes) for part in answer] for answer in answers]
        return [[Prediction(*parts) for parts in zip(*answer, strict=True)] for answer in split]

    def in_precision(self, images: Tensor) -> AbstractContextManager[object]:
        return torch.autocast(images.device.type, self.precision, enabled=self.precision != torch.float32)


class _Head(nn.Module):
    def __init__(self, tail: nn.Module, linear: nn.Linear) -> None:
        super().__init__()
        self.tail, self.linear = tail, linear

    def forward(self, maps: Tensor) -> Prediction:
        features = self.tail(maps)
        return Prediction(self.linear(features), features)


def _anew(part: Part) -> Part:
    """A copy with a random start of its own, that of our networks."""
    part = copy.deepcopy(part)
    for module in part.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_parameters()
    return part
