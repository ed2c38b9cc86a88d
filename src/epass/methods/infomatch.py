"""InfoMatch: Entropy Neural Estimation for Semi-Supervised Image Classification (Han et al., IJCAI 2024).

Pseudo-labels above self-adaptive thresholds label two strong views, and weak views that show a part of another image.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.cutmix import cut_mix, patched_consistency
from ..parts.labels import consistency
from ..parts.threshold import ClassThresholds, confident

EPS = 1e-8  # of a variance: equal logits, as of an image without features, have none


class InfoMatch(Method):
    """FreeMatch's thresholds, CutMix of weak views, and two strong views that should agree.

    `fixed_threshold` replaces the thresholds that adapt, as its authors do for SVHN.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong", "strong"))
    shared_crop = True

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        statistics_momentum: float = 0.999,
        fixed_threshold: float | None = None,
        unlabeled_weight: float = 2.0,
        mixed_weight: float = 0.5,
        strong_weight: float = 0.25,
        agreement_weight: float = 0.001,
    ) -> None:
        super().__init__(net)
        self.fixed_threshold, self.unlabeled_weight = fixed_threshold, unlabeled_weight
        self.mixed_weight, self.strong_weight, self.agreement_weight = mixed_weight, strong_weight, agreement_weight
        self.thresholds = ClassThresholds(problem.num_classes, momentum=statistics_momentum)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong, other) = batch.labeled, batch.unlabeled
        patched = cut_mix(weak, batch.seed)
        views = (x, strong, other, patched.images, weak)
        on_x, on_strong, on_other, on_patched, on_weak = predict_jointly(self.net, *views)

        probs = on_weak.logits.detach().softmax(1)
        statistics, labels = self.thresholds.next(probs), probs.argmax(1)
        adapted = self.thresholds(statistics)[labels]
        mask = confident(probs, adapted if self.fixed_threshold is None else self.fixed_threshold)
        mixed = patched_consistency(on_patched.logits, patched, labels, mask)
        on_both = consistency(on_strong.logits, labels, mask) + consistency(on_other.logits, labels, mask)
        agreement = F.mse_loss(standardized(on_strong.logits), standardized(on_other.logits))
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * self.strong_weight * on_both,
                "mixed": self.unlabeled_weight * self.mixed_weight * mixed,
                "agreement": self.unlabeled_weight * self.agreement_weight * agreement,
            },
            metrics={"threshold": statistics["confidence"]},
            memory=statistics,
            pseudo=PseudoLabels(labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.thresholds.remember(memory)


def standardized(logits: Tensor) -> Tensor:
    """(N, C) rows with mean 0 and deviation 1 over the classes."""
    return (logits - logits.mean(1, keepdim=True)) / (logits.var(1, keepdim=True) + EPS).sqrt()
