"""AdaMatch: A Unified Approach to Semi-Supervised Learning and Domain Adaptation (Berthelot et al., ICLR 2022).

Pseudo-labels are aligned with the predictions on labeled images, and need a confidence relative to theirs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import AverageAlignment
from ..parts.labels import consistency
from ..parts.threshold import confident


class AdaMatch(Method):
    """Aligned hard pseudo-labels above a threshold that follows the confidence on labeled images."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        alignment_momentum: float = 0.999,
        unlabeled_weight: float = 1.0,
    ) -> None:
        super().__init__(net)
        self.threshold, self.unlabeled_weight = threshold, unlabeled_weight
        self.alignment = AverageAlignment(problem.num_classes, momentum=alignment_momentum, target="model")

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        probs, probs_x = on_weak.logits.detach().softmax(1), on_x.logits.detach().softmax(1)
        means = {"mean": mean_over_ranks(probs.mean(0)), "labeled_mean": mean_over_ranks(probs_x.mean(0))}
        aligned = self.alignment(probs, **means)
        threshold = self.threshold * mean_over_ranks(probs_x.amax(1).mean())
        mask, pseudo_labels = confident(aligned, threshold), aligned.argmax(1)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
            },
            metrics={"threshold": threshold},
            memory=means,
            pseudo=PseudoLabels(pseudo_labels, mask, aligned),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.alignment.remember(**memory)
