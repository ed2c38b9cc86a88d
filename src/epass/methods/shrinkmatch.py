"""ShrinkMatch: Shrinking Class Space for Enhanced Certainty in Semi-Supervised Learning (Yang et al., ICCV 2023).

Images that are not confident learn too: among fewer classes, without those that they are confused with.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import AverageAlignment, QueueAlignment
from ..parts.labels import consistency
from ..parts.shrink import HeadNorm, Shrinking, shrink_loss
from ..parts.threshold import confident


class ShrinkMatch(Method):
    """FixMatch with distribution alignment and soft pseudo-labels, and the shrunk classes for the uncertain images.

    The defaults are those for CIFAR. The published code for STL-10 has `target="hard"`, `alignment="average"`,
    `ranking="logits"` and `head_norm="all"`; that for SVHN the same with `alignment="none"`. The code for CIFAR forgets
    the share of certain images at every epoch, `restart_steps=1024`.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        threshold: float = 0.95,
        unlabeled_weight: float = 1.0,
        target: Literal["soft", "hard"] = "soft",
        alignment: Literal["queue", "average", "none"] = "queue",
        alignment_length: int = 32,
        alignment_momentum: float = 0.999,
        ranking: Literal["target", "logits"] = "target",
        share_momentum: float = 0.999,
        restart_steps: int = 0,
        head_norm: HeadNorm = "strong",
    ) -> None:
        super().__init__(net)
        one_of("target", target, ("soft", "hard"))
        one_of("alignment", alignment, ("queue", "average", "none"))
        one_of("ranking", ranking, ("target", "logits"))
        self.threshold, self.unlabeled_weight = threshold, unlabeled_weight
        self.target, self.ranking = target, ranking
        self.alignment: QueueAlignment | AverageAlignment | None = None
        if alignment == "queue":
            self.alignment = QueueAlignment(problem.num_classes, alignment_length)
        elif alignment == "average":
            self.alignment = AverageAlignment(problem.num_classes, momentum=alignment_momentum)
        self.shrinking = Shrinking(
            cast(int, net.num_features),
            problem.num_classes,
            momentum=share_momentum,
            restart_steps=restart_steps,
            head_norm=head_norm,
        )

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)
        auxiliary = self.shrinking(on_x.features, on_weak.features, on_strong.features)

        with torch.no_grad():
            raw = on_weak.logits.softmax(1)
            mean_probs = mean_over_ranks(raw.mean(0))
            probs = raw if self.alignment is None else self.alignment(raw, mean_probs)
            mask, pseudo_labels = confident(probs, self.threshold), probs.argmax(1)
            share = self.shrinking.next_share(mask, batch.step)

        target = probs if self.target == "soft" else pseudo_labels
        ranking = probs if self.ranking == "target" else raw
        shrink = shrink_loss(auxiliary, probs, mask, self.threshold, ranking=ranking)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
                "shrink": self.unlabeled_weight * share * shrink,
            },
            metrics={"certain_share": share},
            memory={"mean_probs": mean_probs, "certain_share": share},
            pseudo=PseudoLabels(pseudo_labels, mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        if self.alignment is not None:
            self.alignment.remember(memory["mean_probs"])
        self.shrinking.remember(memory["certain_share"])
