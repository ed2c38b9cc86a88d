"""Dash: Semi-Supervised Learning with Dynamic Thresholding (Xu et al., ICML 2021).

Train on the labels first; then use the unlabeled images whose loss is below a threshold that shrinks step by step.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, one_of
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency, one_hot


class Dash(Method):
    """Soft pseudo-labels while the threshold shrinks, hard ones once it has reached `lowest_loss`.

    The threshold starts at the labeled loss of the first step, that of a network that knows nothing: about ln C. With
    `initial_loss="trained"` it is the mean over the last pass over the labeled images in the warm-up. That is near zero
    where a few labels were learned by heart, and the threshold is then the lowest one at once. A number fixes it.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    labeled_loss: Tensor

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        temperature: float = 0.5,
        unlabeled_weight: float = 1.0,
        warmup_steps: int = 2048,
        initial_loss: float | Literal["untrained", "trained"] = "untrained",
        slack: float = 1.0001,
        decay: float = 1.27,
        decay_steps: int = 10240,
        lowest_loss: float = 0.05,
    ) -> None:
        super().__init__(net)
        if decay < 1:
            raise InputError(f"The threshold of Dash is divided by `decay` again and again: at least 1, not {decay}.")
        self.temperature, self.unlabeled_weight = temperature, unlabeled_weight
        self.warmup_steps, self.initial_loss = warmup_steps, initial_loss
        self.slack, self.decay, self.decay_steps, self.lowest_loss = slack, decay, decay_steps, lowest_loss
        if isinstance(initial_loss, str):
            one_of("initial_loss", initial_loss, ("untrained", "trained"))
        one_pass = max(1, min(warmup_steps, math.ceil(problem.num_labeled / problem.labeled_batch)))
        self.measured = range(warmup_steps - one_pass, warmup_steps) if initial_loss == "trained" else range(1)
        self.register_buffer("labeled_loss", torch.zeros(()))  # grows to the mean over the measured steps

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)
        labeled = F.cross_entropy(on_x.logits, batch.labels)

        with torch.no_grad():
            threshold, warm = self.loss_threshold(batch.step), batch.step >= self.warmup_steps
            soft = (on_weak.logits / self.temperature).softmax(1)
            hard = one_hot(on_weak.logits.argmax(1), soft.shape[1])
            target = torch.where(threshold <= self.lowest_loss, hard, soft)
            small = F.cross_entropy(on_weak.logits, target, reduction="none") <= threshold
            mask = (small & warm).float()
            measured = (batch.step >= self.measured.start) & (batch.step < self.measured.stop)
            share = torch.where(measured, mean_over_ranks(labeled.detach()) / len(self.measured), 0.0)

        return Outcome(
            losses={
                "labeled": labeled,
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
            },
            metrics={"threshold": threshold},
            memory={"share_of_labeled_loss": share},
            pseudo=PseudoLabels(target.argmax(1), mask, target),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def loss_threshold(self, step: Tensor) -> Tensor:
        """What the loss on a weak view may be: the lowest one as long as nothing was measured."""
        start = self.labeled_loss if isinstance(self.initial_loss, str) else self.initial_loss
        times = (step - self.warmup_steps).clamp(min=0) // max(self.decay_steps, 1)
        return (self.slack * start * self.decay ** -times.float()).clamp(min=self.lowest_loss)

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.labeled_loss.add_(memory["share_of_labeled_loss"])
