"""VAT: Virtual Adversarial Training (Miyato et al., TPAMI 2019).

The small change of an image that changes its prediction most should not change it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..method import Batch, Method, Outcome, Problem, Views
from ..parts.draws import normal
from ..parts.labels import divergence, entropy
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept


class VAT(Method):
    """Predictions that are smooth around every unlabeled image, and certain.

    Lengths are in normalized pixels over the whole image. `probe_length=1e-6` is the published one; float32 rounds so
    short a step away, and the direction found is that of rounding errors.
    """

    views = Views(labeled=("weak",), unlabeled=("weak",))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        radius: float = 6.0,
        probe_length: float = 1.0,
        unlabeled_weight: float = 1.0,
        entropy_weight: float = 0.06,
        ramp: float = 0.4,
    ) -> None:
        super().__init__(net)
        self.radius, self.probe_length = radius, probe_length
        self.unlabeled_weight, self.entropy_weight = unlabeled_weight, entropy_weight
        self.ramp_steps = round(ramp * problem.steps)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak,) = batch.labeled, batch.unlabeled
        on_x = self.net(x)
        with statistics_kept(self.net):
            on_weak = self.net(weak)
            target = on_weak.logits.detach().softmax(1)
            attack = self.radius * self.sensitive_direction(weak, target, batch.seed)
            on_attacked = self.net(weak + attack)

        weight = self.unlabeled_weight * ramp_up(batch.step, self.ramp_steps)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": weight * divergence(on_attacked.logits, target),
                "entropy": self.entropy_weight * entropy(on_weak.logits),
            }
        )

    @torch.no_grad()  # what `torch.func.grad` computes inside is a gradient of the images, and none of the weights
    def sensitive_direction(self, images: Tensor, target: Tensor, seed: Tensor) -> Tensor:
        """Where predictions change most: one power iteration, from a random probe, on the curvature of the change."""

        def change(step: Tensor) -> Tensor:
            return divergence(self.net(images + step).logits, target)

        probe = self.probe_length * unit(normal(seed, *images.shape, salt=0))
        return unit(torch.func.grad(change)(probe))


def unit(steps: Tensor) -> Tensor:
    """Of length 1 over each image."""
    lengths: Tensor = steps.flatten(1).norm(dim=1) + 1e-16
    return steps / lengths.view(-1, *[1] * (steps.ndim - 1))
