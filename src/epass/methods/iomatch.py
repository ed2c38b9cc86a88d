"""IOMatch: Simplifying Open-Set Semi-Supervised Learning with Joint Inliers and Outliers Utilization (Li et al., ICCV 2023).

Unlabeled images may belong to no class that has labels. All of them teach a classifier with one more class, "none of
these"; those that seem to belong to a known class also teach the classifier of the known ones.
"""  # noqa: E501  (a title is not broken)

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import QueueAlignment
from ..parts.labels import consistency, one_hot
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average
from ..parts.threshold import confident


class IOMatch(Method):
    """Closed-set pseudo-labels for inliers, open-set ones for all. With `size=3` projectors it is IOMatch + EPASS.

    `net` knows the classes that have labels; `open_logits` has one more class, the last one, for everything else. The
    embedding is not normalized. `align=False` leaves the probabilities as they are, as published for CIFAR-10.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    open_set = True
    projector: ProjectorEnsemble

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        projector: ProjectorEnsemble,
        *,
        threshold: float = 0.95,
        open_threshold: float = 0.5,
        align: bool = True,
        alignment_length: int = 128,
        unlabeled_weight: float = 1.0,
        one_vs_all_weight: float = 1.0,
        open_weight: float = 1.0,
        warmup_steps: int = 1024,
        average_momentum: float = 0.999,
    ) -> None:
        super().__init__(net)
        self.threshold, self.open_threshold, self.warmup_steps = threshold, open_threshold, warmup_steps
        self.unlabeled_weight, self.one_vs_all_weight = unlabeled_weight, one_vs_all_weight
        self.open_weight, self.num_classes = open_weight, problem.num_classes
        self.alignment = QueueAlignment(problem.num_classes, alignment_length) if align else None
        self.projector = projector
        self.one_vs_all = nn.Linear(projector.out_dim, 2 * problem.num_classes, bias=False)
        self.open_head = nn.Linear(projector.out_dim, problem.num_classes + 1)
        nn.init.xavier_normal_(self.one_vs_all.weight)
        nn.init.xavier_normal_(self.open_head.weight)
        nn.init.zeros_(self.open_head.bias)
        self.average = Average(nn.ModuleList([projector, self.open_head]), average_momentum)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)
        is_none, is_class = self.one_against_all(on_x.features)
        own = one_hot(batch.labels, self.num_classes)
        hits = -(own * (is_class + 1e-8).log()).sum(1)
        hardest = -((1 - own) * (is_none + 1e-8).log()).amin(1)

        with torch.no_grad():
            probs = on_weak.logits.softmax(1)
            mean_probs = mean_over_ranks(probs.mean(0))
            probs = probs if self.alignment is None else self.alignment(probs, mean_probs)
            is_none, is_class = self.one_against_all(on_weak.features)
            outlier = (probs * is_none).sum(1)
            target = torch.cat([probs * is_class, outlier[:, None]], 1)  # (U, C + 1)
            mask = confident(probs, self.threshold) * (outlier < 0.5)
            open_mask = confident(target, self.open_threshold)

        opened = consistency(self.open_head(self.projector.combined(on_strong.features)), target, open_mask)
        warm = batch.step >= self.warmup_steps  # before that the one-vs-all classifiers know nothing
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "one_vs_all": self.one_vs_all_weight * (hits.mean() + hardest.mean()),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, probs, mask),
                "open": self.open_weight * torch.where(warm, opened, 0.0),
            },
            metrics={
                "outliers": (outlier >= 0.5).float().mean(),
                "head_cosine": self.projector.similarity(on_x.features),
            },
            memory={"mean_probs": mean_probs},
            pseudo=PseudoLabels(probs.argmax(1), mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def one_against_all(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """For every class, how probable it is that an image is not of this class, and that it is; both (N, C)."""
        answers: Tensor = self.one_vs_all(self.projector.combined(features))
        is_none, is_class = answers.view(-1, 2, self.num_classes).softmax(1).unbind(1)
        return is_none, is_class

    @torch.no_grad()
    def open_logits(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, C + 1), the last for no known class: averaged heads on the features of an averaged `net`."""
        projector, head = cast(nn.ModuleList, self.average.module)
        logits: Tensor = head(cast(ProjectorEnsemble, projector).combined(features))
        return logits

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        if self.alignment is not None:
            self.alignment.remember(memory["mean_probs"])
        self.average.follow(nn.ModuleList([self.projector, self.open_head]))
