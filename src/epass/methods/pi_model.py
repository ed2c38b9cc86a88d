"""Pi-Model: Temporal Ensembling for Semi-Supervised Learning (Laine & Aila, ICLR 2017).

Two random views of one image should get the same prediction.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..method import Batch, Method, Outcome, Problem, Views
from ..parts.labels import squared_error
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept


class PiModel(Method):
    """The prediction on one weak view is the soft target of another one."""

    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))

    def __init__(self, net: nn.Module, problem: Problem, *, unlabeled_weight: float = 10.0, ramp: float = 0.4) -> None:
        super().__init__(net)
        self.unlabeled_weight, self.ramp_steps = unlabeled_weight, round(ramp * problem.steps)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (first, second) = batch.labeled, batch.unlabeled
        on_x = self.net(x)
        with statistics_kept(self.net):
            with torch.no_grad():
                target = self.net(first).logits.softmax(1)
            on_second = self.net(second)

        weight = self.unlabeled_weight * ramp_up(batch.step, self.ramp_steps)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": weight * squared_error(on_second.logits, target),
            }
        )
