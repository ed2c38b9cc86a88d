"""SoftMatch: Addressing the Quantity-Quality Trade-off in Semi-supervised Learning (Chen et al., ICLR 2023).

Every pseudo-label counts, and the less confident it is, the less it counts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import AverageAlignment
from ..parts.labels import consistency
from ..parts.threshold import GaussianWeight


class SoftMatch(Method):
    """Hard pseudo-labels, weighed by a truncated Gaussian that is fitted to the confidence."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        narrowing: float = 2.0,
        statistics_momentum: float = 0.999,
        unlabeled_weight: float = 1.0,
    ) -> None:
        super().__init__(net)
        if problem.unlabeled_batch < 2:
            raise InputError("SoftMatch needs at least 2 unlabeled images per step: one alone has no variance.")
        self.unlabeled_weight = unlabeled_weight
        self.alignment = AverageAlignment(problem.num_classes, momentum=statistics_momentum)
        self.weigh = GaussianWeight(problem.num_classes, momentum=statistics_momentum, narrowing=narrowing)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        probs = on_weak.logits.detach().softmax(1)
        mean_probs = mean_over_ranks(probs.mean(0))
        aligned = self.alignment(probs, mean_probs)  # decides how much a pseudo-label counts, not which class it is
        statistics = self.weigh.next(aligned)
        weight, pseudo_labels = self.weigh(aligned, statistics), probs.argmax(1)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, weight),
            },
            metrics={"weight": weight.mean(), "confidence": statistics["mean"]},
            memory={"mean_probs": mean_probs, **statistics},
            pseudo=PseudoLabels(pseudo_labels, weight, aligned),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.alignment.remember(memory["mean_probs"])
        self.weigh.remember(memory)
