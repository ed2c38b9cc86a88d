"""ReFixMatch: Boosting Semi-Supervised Learning by Bridging High and Low-Confidence Predictions (Nguyen & Yang, ICCV-W 2023).

FixMatch that leaves no image out: where it is not confident, the sharpened prediction on the weak view is a soft target.
"""  # noqa: E501  (the title is that long)

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency, masked_divergence
from ..parts.mixing import check_temperature
from ..parts.threshold import confident


class ReFixMatch(Method):
    """Hard pseudo-labels above one fixed threshold, sharpened soft ones below it."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        temperature: float = 0.5,
        unlabeled_weight: float = 1.0,
    ) -> None:
        super().__init__(net)
        check_temperature(temperature)
        self.threshold, self.temperature, self.unlabeled_weight = threshold, temperature, unlabeled_weight

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        weak_logits = on_weak.logits.detach()
        probs, sharpened = weak_logits.softmax(1), (weak_logits / self.temperature).softmax(1)
        mask, pseudo_labels = confident(probs, self.threshold), probs.argmax(1)
        doubtful = masked_divergence(on_strong.logits, sharpened, 1 - mask)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
                "doubtful": self.unlabeled_weight * doubtful,
            },
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )
