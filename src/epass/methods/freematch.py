"""FreeMatch: Self-adaptive Thresholding for Semi-supervised Learning (Wang et al., ICLR 2023).

The threshold of every class follows the model's own confidence; a fairness term keeps its predictions diverse.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..machine.distributed import gather_rows
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency, one_hot
from ..parts.threshold import ClassThresholds, confident

EPS = 1e-12  # the probability at which the logarithm of the fairness term ends


class FreeMatch(Method):
    """Hard pseudo-labels above self-adaptive thresholds of their classes.

    The global threshold follows the mean confidence of unlabeled images or, with `quantile=0.8`, that quantile of it;
    it never exceeds `highest_threshold`.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        statistics_momentum: float = 0.999,
        quantile: float | None = None,
        highest_threshold: float = 1.0,
        unlabeled_weight: float = 1.0,
        fairness_weight: float = 0.001,
    ) -> None:
        super().__init__(net)
        if quantile is not None and not 0 <= quantile <= 1:
            raise InputError(f"The quantile of the confidence must lie between 0 and 1, not at {quantile}.")
        self.unlabeled_weight, self.fairness_weight = unlabeled_weight, fairness_weight
        self.thresholds = ClassThresholds(
            problem.num_classes, momentum=statistics_momentum, quantile=quantile, ceiling=highest_threshold
        )

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        probs = on_weak.logits.detach().softmax(1)
        statistics, pseudo_labels = self.thresholds.next(probs), probs.argmax(1)
        mask = confident(probs, self.thresholds(statistics)[pseudo_labels])
        # Where a class gets more probability than it gets labels, its predictions are timid.
        timid = sum_to_one(divide(statistics["probs"], statistics["histogram"]))
        fairness = fairness_term(on_strong.logits.softmax(1), mask, timid)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
                "fairness": self.fairness_weight * fairness,
            },
            metrics={"threshold": statistics["confidence"]},
            memory=statistics,
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.thresholds.remember(memory)


def fairness_term(probs: Tensor, mask: Tensor, timid: Tensor) -> Tensor:
    """Minus the cross-entropy of `timid` (C,) and its counterpart in this batch's trusted rows of `probs` (N, C).

    The rows are those of all ranks; without a trusted one it is 0.
    """
    labels = one_hot(probs.argmax(1), probs.shape[1])
    # Sums, not means: the number of trusted rows cancels in the quotient.
    total = gather_rows((mask[:, None] * probs).sum(0, keepdim=True)).sum(0)
    histogram = gather_rows((mask[:, None] * labels).sum(0, keepdim=True)).sum(0)
    in_batch = sum_to_one(divide(total, histogram))
    term = (timid * (in_batch + EPS).log()).sum()
    return torch.where(histogram.sum() > 0, term, 0.0)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, and 0 where the denominator is 0; no gradient comes from there."""
    possible = denominator > 0
    return torch.where(possible, numerator / torch.where(possible, denominator, 1.0), 0.0)


def sum_to_one(values: Tensor) -> Tensor:
    """Nonnegative values scaled to the sum 1; zeros stay zeros."""
    return F.normalize(values, p=1, dim=0)
