"""Supervised training: plain cross-entropy, the lower bound."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from ..method import Batch, Method, Outcome, Problem, Views
from ..networks.classifier import predict_jointly


class Supervised(Method):
    """Labels only: what every semi-supervised number is held against."""

    display_name = "labels only"
    views = Views(labeled=("weak",), unlabeled=())

    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net)

    def forward(self, batch: Batch) -> Outcome:
        (on_x,) = predict_jointly(self.net, *batch.labeled)
        return Outcome(losses={"labeled": F.cross_entropy(on_x.logits, batch.labels)})
