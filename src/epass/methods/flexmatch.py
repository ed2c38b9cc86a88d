"""FlexMatch: Boosting Semi-Supervised Learning with Curriculum Pseudo Labeling (Zhang et al., NeurIPS 2021).

FixMatch with one threshold per class: a class that few unlabeled images were confidently given to gets a lower one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.labels import consistency
from ..parts.memory import LastClass
from ..parts.threshold import bent_threshold, confident


class FlexMatch(Method):
    """Hard pseudo-labels above thresholds that follow the learning status of the classes.

    With `threshold_warmup` images that no class was given to yet keep all thresholds low at the start.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        unlabeled_weight: float = 1.0,
        threshold_warmup: bool = True,
    ) -> None:
        super().__init__(net)
        self.threshold, self.unlabeled_weight, self.threshold_warmup = threshold, unlabeled_weight, threshold_warmup
        self.last_class = LastClass(problem.num_unlabeled, problem.num_classes)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)

        probs, thresholds = on_weak.logits.detach().softmax(1), self.thresholds()
        pseudo_labels = probs.argmax(1)
        mask = confident(probs, thresholds[pseudo_labels])
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, pseudo_labels, mask),
            },
            metrics={"mean_threshold": thresholds.mean()},
            memory={
                "index": batch.unlabeled_index,
                "label": pseudo_labels,
                "confident": confident(probs, self.threshold),
            },
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def thresholds(self) -> Tensor:
        """(C,): the threshold that every class has at this step."""
        return bent_threshold(self.threshold, self.last_class.counts, warmup=self.threshold_warmup)

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.last_class.write(memory["index"], memory["label"], memory["confident"])
