"""Which pseudo-labels are trusted, and how much.

The two that adapt count the batch at hand before they are applied: `next` gives the statistics after this batch, over
all ranks, `forward` applies them, and `remember` writes them down once the weights have moved.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..machine.distributed import gather_rows, mean_over_ranks
from .labels import one_hot

SMALLEST_VARIANCE = 1e-12  # equal confidences have none, and 0 / 0 would be no weight


def confident(probs: Tensor, threshold: float | Tensor) -> Tensor:
    """(N, C) -> (N,) float mask of the rows whose largest probability reaches `threshold` (inclusive), one or (N,)."""
    return (probs.amax(1) >= threshold).float()


def bent_threshold(threshold: float, counts: Tensor, *, warmup: bool) -> Tensor:
    """(C,) thresholds: what a class has learned, compared with the one that has learned most, bends the given one.

    `counts` (C + 1,) are those of a `LastClass`. With `warmup` samples without a class count as a class that has
    learned.
    """
    given, undecided = counts[:-1], counts[-1]
    most = given.amax()
    if warmup:
        most = torch.maximum(most, undecided)
    learned = given / most.clamp(min=1)
    return threshold * learned / (2 - learned)


class ClassThresholds(nn.Module):
    """One threshold per class: the usual confidence, lower for classes that get less probability than the others.

    The usual confidence is a moving average of each batch's mean or, with `quantile`, of that quantile, and at most
    `ceiling`.
    """

    confidence: Tensor
    probs: Tensor
    histogram: Tensor

    def __init__(
        self, num_classes: int, *, momentum: float = 0.999, quantile: float | None = None, ceiling: float = 1.0
    ) -> None:
        super().__init__()
        self.momentum, self.quantile, self.ceiling = momentum, quantile, ceiling
        self.register_buffer("confidence", torch.tensor(1 / num_classes))
        self.register_buffer("probs", torch.full((num_classes,), 1 / num_classes))
        self.register_buffer("histogram", torch.full((num_classes,), 1 / num_classes))

    def forward(self, statistics: dict[str, Tensor]) -> Tensor:
        """(C,) thresholds, of statistics that `next` gave."""
        return statistics["confidence"] * statistics["probs"] / statistics["probs"].amax()

    def next(self, probs: Tensor) -> dict[str, Tensor]:
        """The moving averages after this batch: confidence (), class probabilities (C,) and shares of labels (C,)."""
        top = gather_rows(probs.amax(1))
        confidence = top.mean() if self.quantile is None else top.quantile(self.quantile)
        histogram = mean_over_ranks(one_hot(probs.argmax(1), probs.shape[1]).mean(0))
        return {
            "confidence": torch.lerp(confidence, self.confidence, self.momentum).clamp(max=self.ceiling),
            "probs": torch.lerp(mean_over_ranks(probs.mean(0)), self.probs, self.momentum),
            "histogram": torch.lerp(histogram, self.histogram, self.momentum),
        }

    @torch.no_grad()
    def remember(self, statistics: dict[str, Tensor]) -> None:
        for name in ("confidence", "probs", "histogram"):
            self.get_buffer(name).copy_(statistics[name])


class GaussianWeight(nn.Module):
    """1 for confidences above the usual one; below, it falls like a Gaussian fitted to them.

    The Gaussian's standard deviation is the usual one divided by `narrowing`.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, num_classes: int, *, momentum: float = 0.999, narrowing: float = 2.0) -> None:
        super().__init__()
        self.momentum, self.narrowing = momentum, narrowing
        self.register_buffer("mean", torch.tensor(1 / num_classes))
        self.register_buffer("variance", torch.ones(()))

    def forward(self, probs: Tensor, statistics: dict[str, Tensor]) -> Tensor:
        """(N, C) -> (N,) weights, given statistics that `next` gave."""
        below = (probs.amax(1) - statistics["mean"]).clamp(max=0)
        variance = statistics["variance"].clamp(min=SMALLEST_VARIANCE)
        return torch.exp(-((self.narrowing * below) ** 2) / (2 * variance))

    def next(self, probs: Tensor) -> dict[str, Tensor]:
        """The moving averages after this batch of the confidence's mean and unbiased variance."""
        top = gather_rows(probs.amax(1))
        return {
            "mean": torch.lerp(top.mean(), self.mean, self.momentum),
            "variance": torch.lerp(top.var(), self.variance, self.momentum),
        }

    @torch.no_grad()
    def remember(self, statistics: dict[str, Tensor]) -> None:
        for name in ("mean", "variance"):
            self.get_buffer(name).copy_(statistics[name])
