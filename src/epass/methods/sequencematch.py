"""SequenceMatch: Revisiting the Design of Weak-Strong Augmentations for Semi-supervised Learning (Nguyen, WACV 2024).

A medium view stands between the weak and the strong one; each view that is confident teaches those that are stronger.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency, masked_divergence
from ..parts.memory import LastClass
from ..parts.mixing import check_temperature
from ..parts.threshold import bent_threshold, confident


class SequenceMatch(Method):
    """Hard pseudo-labels as in FlexMatch, and sharpened soft ones from weak to medium to strong views.

    `class_thresholds=False` has FixMatch's one threshold instead of those that follow the learning status of the
    classes; the soft ones have it always. `doubtful_weight=1` adds the term of ReFixMatch.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "medium", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        temperature: float = 0.5,
        unlabeled_weight: float = 1.0,
        doubtful_weight: float = 0.0,
        class_thresholds: bool = True,
        threshold_warmup: bool = True,
    ) -> None:
        super().__init__(net)
        check_temperature(temperature)
        self.threshold, self.temperature = threshold, temperature
        self.unlabeled_weight, self.doubtful_weight = unlabeled_weight, doubtful_weight
        self.threshold_warmup = threshold_warmup
        self.last_class = LastClass(problem.num_unlabeled, problem.num_classes) if class_thresholds else None

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, medium, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_medium, on_weak = predict_jointly(self.net, x, strong, medium, weak)

        probs = on_weak.logits.detach().softmax(1)
        pseudo_labels, sure = probs.argmax(1), confident(probs, self.threshold)
        mask = sure if self.last_class is None else confident(probs, self.thresholds(self.last_class)[pseudo_labels])
        sequence = self.teach(on_weak.logits, on_medium.logits) + self.teach(on_medium.logits, on_strong.logits)
        losses = {
            "labeled": F.cross_entropy(on_x.logits, batch.labels),
            "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
            "sequence": self.unlabeled_weight * (sequence + self.teach(on_weak.logits, on_strong.logits)),
        }
        if self.doubtful_weight > 0:
            doubtful = masked_divergence(on_strong.logits, self.sharpened(on_weak.logits), 1 - mask)
            losses["doubtful"] = self.doubtful_weight * doubtful
        return Outcome(
            losses=losses,
            memory={"index": batch.unlabeled_index, "label": pseudo_labels, "confident": sure},
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def teach(self, milder: Tensor, stronger: Tensor) -> Tensor:
        """How far a view's prediction is from the sharpened one on a milder view, where that one is confident."""
        mask = confident(milder.detach().softmax(1), self.threshold)
        return masked_divergence(stronger, self.sharpened(milder), mask)

    def sharpened(self, logits: Tensor) -> Tensor:
        """(N, C) a target, through which no gradient flows."""
        return (logits.detach() / self.temperature).softmax(1)

    def thresholds(self, last_class: LastClass) -> Tensor:
        """(C,): the threshold that every class has at this step."""
        return bent_threshold(self.threshold, last_class.counts, warmup=self.threshold_warmup)

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        if self.last_class is not None:
            self.last_class.write(memory["index"], memory["label"], memory["confident"])
