"""UDA: Unsupervised Data Augmentation for Consistency Training (Xie et al., NeurIPS 2020).

The prediction on a strong view must match the sharpened prediction on the weak view, where that one is confident.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..errors import InputError, one_of
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency
from ..parts.threshold import confident

Annealing = Literal["none", "linear", "exp", "log"]


class UDA(Method):
    """Soft, sharpened targets above one fixed threshold.

    `temperature=1` does not sharpen, which is what the code behind the published tables did. `annealing` is the paper's
    training signal annealing: labeled images that are predicted too confidently for this stage of the run are left out.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.8,
        temperature: float = 0.4,
        annealing: Annealing = "none",
        unlabeled_weight: float = 1.0,
    ) -> None:
        super().__init__(net)
        one_of("annealing", annealing, get_args(Annealing))
        if temperature <= 0:
            raise InputError(f"The temperature that sharpens targets must be above 0, not {temperature}.")
        self.threshold, self.temperature, self.annealing = threshold, temperature, annealing
        self.unlabeled_weight = unlabeled_weight
        self.num_classes, self.steps = problem.num_classes, problem.steps

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        weak_logits = on_weak.logits.detach()
        probs, target = weak_logits.softmax(1), (weak_logits / self.temperature).softmax(1)
        mask = confident(probs, self.threshold)  # of the prediction before it was sharpened
        still_taught = self.still_taught(on_x.logits.detach().softmax(1), batch.step)
        return Outcome(
            losses={
                "labeled": consistency(on_x.logits, batch.labels, still_taught),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
            },
            pseudo=PseudoLabels(probs.argmax(1), mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def still_taught(self, probs: Tensor, step: Tensor) -> Tensor:
        """(B,) float mask of the labeled images that are not yet too confident: the limit rises from 1 / C to 1."""
        if self.annealing == "none":
            return torch.ones_like(probs[:, 0])
        progress = step / self.steps
        share = {"linear": progress, "exp": torch.exp(5 * (progress - 1)), "log": 1 - torch.exp(-5 * progress)}
        limit = share[self.annealing] * (1 - 1 / self.num_classes) + 1 / self.num_classes
        return (probs.amax(1) <= limit).float()
