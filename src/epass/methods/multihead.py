"""Multi-Head Co-Training: Semi-Supervised Learning with Multi-Head Co-Training (Chen et al., AAAI 2022).

Three heads on one trunk, each with a strong view of its own: two that agree on the weak view teach the third.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import Classifier
from ..networks.multi_head import MultiHead
from ..parts.labels import consistency


class MultiHeadCoTraining(Method):
    """Hard pseudo-labels on which the two other heads agree, however unsure they are."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong", "strong", "strong"))

    def __init__(self, net: nn.Module, problem: Problem, *, unlabeled_weight: float = 1.0) -> None:
        super().__init__(net)
        self.unlabeled_weight = unlabeled_weight

    @classmethod
    def adapt(cls, net: nn.Module) -> nn.Module:
        return MultiHead(cast(Classifier, net), num_heads=3)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, *strong) = batch.labeled, batch.unlabeled
        by_head = cast(MultiHead, self.net).predict_apart((x, weak), strong)

        first, second, third = (on_weak.logits.argmax(1) for _, on_weak, _ in by_head)
        # What each head is taught, and where: the class that its two peers agree on.
        lessons = [(second, second == third), (third, third == first), (first, first == second)]
        labeled = [F.cross_entropy(on_x.logits, batch.labels) for on_x, _, _ in by_head]
        unlabeled = [
            consistency(on_strong.logits, labels, agreed.float())
            for (_, _, on_strong), (labels, agreed) in zip(by_head, lessons, strict=True)
        ]
        on_x, on_weak, on_strong = by_head[0]
        return Outcome(
            losses={
                "labeled": torch.stack(labeled).sum(),
                "unlabeled": self.unlabeled_weight * torch.stack(unlabeled).sum(),
            },
            # Any two that agree are on the side of the majority: its class, and the share of heads that are taught it.
            pseudo=PseudoLabels(
                torch.where(second == third, second, first),
                torch.stack([agreed.float() for _, agreed in lessons]).mean(0),
            ),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )
