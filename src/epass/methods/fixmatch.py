"""FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence (Sohn et al., NeurIPS 2020).

Confident predictions on weak views label the strong views of the same images.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency
from ..parts.threshold import confident


class FixMatch(Method):
    """Hard pseudo-labels above one fixed threshold."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self, net: nn.Module, problem: Problem, *, threshold: float = 0.95, unlabeled_weight: float = 1.0
    ) -> None:
        super().__init__(net)
        self.threshold, self.unlabeled_weight = threshold, unlabeled_weight

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        probs = on_weak.logits.detach().softmax(1)
        mask, pseudo_labels = confident(probs, self.threshold), probs.argmax(1)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
            },
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )
