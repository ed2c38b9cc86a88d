"""MixMatch: A Holistic Approach to Semi-Supervised Learning (Berthelot et al., NeurIPS 2019).

Guesses for unlabeled images are averaged over two views and sharpened; then all images and labels are mixed in pairs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..method import Batch, Method, Outcome, Problem, PseudoLabels, Views
from ..parts.labels import one_hot
from ..parts.mixing import Mixture, check_temperature, logits_in_chunks, sharpen
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept


class MixMatch(Method):
    """Mixtures of labeled and guessed images: cross-entropy on the former, squared error on the latter."""

    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        temperature: float = 0.5,
        mix_alpha: float = 0.5,
        unlabeled_weight: float = 100.0,
        ramp: float = 0.4,
    ) -> None:
        super().__init__(net)
        check_temperature(temperature)
        self.temperature, self.unlabeled_weight = temperature, unlabeled_weight
        self.num_classes, self.ramp_steps = problem.num_classes, round(ramp * problem.steps)
        self.mixture = Mixture(mix_alpha)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, other) = batch.labeled, batch.unlabeled
        with torch.no_grad(), statistics_kept(self.net):
            probs = (self.net(weak).logits.softmax(1) + self.net(other).logits.softmax(1)) / 2
        guess = sharpen(probs, self.temperature)

        count = len(x)  # the mixtures that are mostly labeled come first
        labels = one_hot(batch.labels, self.num_classes)
        mixed, target = self.mixture(torch.cat([x, weak, other]), torch.cat([labels, guess, guess]), batch.seed)
        logits = logits_in_chunks(self.net, mixed, count)

        ramp = ramp_up(batch.step, self.ramp_steps)
        unlabeled = F.mse_loss(logits[count:].softmax(1), target[count:])
        return Outcome(
            losses={
                "labeled": F.cross_entropy(logits[:count], target[:count]),
                "unlabeled": self.unlabeled_weight * ramp * unlabeled,
            },
            pseudo=PseudoLabels(guess.argmax(1), torch.ones_like(guess[:, 0]), guess),
        )
