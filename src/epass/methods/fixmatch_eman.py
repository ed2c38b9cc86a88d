"""FixMatch-EMAN: Exponential Moving Average Normalization for Self-supervised and Semi-supervised Learning (Cai et al., CVPR 2021).

FixMatch whose pseudo-labels come from a moving average of the network, its normalization statistics included.
"""  # noqa: E501  (the title is that long)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import Prediction, predict_jointly
from ..parts.labels import consistency
from ..parts.teacher import Average
from ..parts.threshold import confident


class FixMatchEMAN(Method):
    """A teacher in evaluation mode, so that what it says about an image does not depend on the rest of the batch."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.7,
        unlabeled_weight: float = 10.0,
        teacher_momentum: float = 0.999,
    ) -> None:
        super().__init__(net)
        self.threshold, self.unlabeled_weight = threshold, unlabeled_weight
        self.teacher = Average(net, teacher_momentum, average_buffers=True)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong = predict_jointly(self.net, x, strong)
        with torch.no_grad():
            on_weak: Prediction = self.teacher(weak)

        probs = on_weak.logits.softmax(1)
        mask, pseudo_labels = confident(probs, self.threshold), probs.argmax(1)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
            },
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.teacher.follow(self.net)
