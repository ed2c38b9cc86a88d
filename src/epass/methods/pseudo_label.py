"""Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural Networks (Lee, ICML-W 2013).

The network's own confident predictions are labels, and matter more and more as it learns.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from ..method import Batch, Method, Outcome, Problem, PseudoLabels, Views
from ..parts.labels import consistency
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept
from ..parts.threshold import confident


class PseudoLabel(Method):
    """Hard pseudo-labels above a fixed threshold, for the same view that they were predicted from."""

    views = Views(labeled=("weak",), unlabeled=("weak",))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        unlabeled_weight: float = 1.0,
        ramp: float = 0.4,
    ) -> None:
        super().__init__(net)
        self.threshold, self.unlabeled_weight = threshold, unlabeled_weight
        self.ramp_steps = round(ramp * problem.steps)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak,) = batch.labeled, batch.unlabeled
        on_x = self.net(x)
        with statistics_kept(self.net):
            on_weak = self.net(weak)

        probs = on_weak.logits.detach().softmax(1)
        mask, pseudo_labels = confident(probs, self.threshold), probs.argmax(1)
        weight = self.unlabeled_weight * ramp_up(batch.step, self.ramp_steps)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": weight * consistency(on_weak.logits, pseudo_labels, mask),
            },
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
        )
