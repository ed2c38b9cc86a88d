"""ABC: Auxiliary Balanced Classifier for Class-imbalanced Semi-supervised Learning (Lee, Shin & Kim, NeurIPS 2021).

A second classifier on the features of any method sees few images of frequent classes and all of rare ones.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from ..errors import InputError, one_of
from ..method import Batch, Method, Outcome, Problem, Wrapper
from ..networks.balanced import Balanced, number_of_classes
from ..parts.draws import uniform
from ..parts.labels import consistency
from ..parts.projector import ProjectorEnsemble
from ..parts.threshold import confident

LABELED_DRAW, UNLABELED_DRAW = 1_000, 1_001  # salts beyond those of any wrapped method


class ABC(Wrapper):
    """A linear classifier that is trained beside the wrapped method's own, and evaluated instead of it.

    `feature="embedding"` puts it on the embedding of a method that has a projector, as the published long-tailed runs
    with SimMatch and CoMatch do, instead of on the features of the backbone.
    """

    keep: Tensor

    def __init__(
        self,
        method: Method,
        problem: Problem,
        *,
        threshold: float = 0.95,
        weight: float = 1.0,
        feature: Literal["backbone", "embedding"] = "backbone",
    ) -> None:
        super().__init__(method)
        one_of("feature", feature, ("backbone", "embedding"))
        if feature == "embedding" and self.host.projector is None:
            raise InputError(f"{type(self.host).__name__} has no embedding for ABC to read: use feature='backbone'.")
        if min(problem.label_counts) < 1:
            raise InputError("ABC balances the classes by their labels, so every class needs a labeled image.")
        self.threshold, self.weight, self.feature, self.steps = threshold, weight, feature, problem.steps
        self.head = nn.Linear(self.width(method.net, self.projector), problem.num_classes)
        rarest = min(problem.label_counts)
        self.register_buffer("keep", torch.tensor([rarest / count for count in problem.label_counts]))

    @property
    def projector(self) -> nn.Module | None:  # type: ignore[override]
        """What stands between features and head; it belongs to the wrapped method."""
        return self.host.projector if self.feature == "embedding" else None

    @property
    def net(self) -> nn.Module:  # type: ignore[override]
        """The wrapped method's network with the balanced head, which is what is evaluated and kept."""
        return Balanced(self.method.net, self.head, self.projector)

    @classmethod
    def adapt(cls, net: nn.Module, projector: ProjectorEnsemble | None = None) -> nn.Module:
        """A network that takes the weights of a finished run; with the run's `projector` if its head reads that."""
        return Balanced(net, nn.Linear(cls.width(net, projector), number_of_classes(net)), projector)

    @staticmethod
    def width(net: nn.Module, projector: nn.Module | None) -> int:
        """Of what the head reads."""
        return cast(int, net.num_features if projector is None else projector.out_dim)

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        features = self.features_of(outcome)
        with torch.no_grad():
            probs = self.classify(features.weak).softmax(1)
            pseudo_labels = probs.argmax(1)
            progress = batch.step / self.steps
            kept_x = self.draw(self.keep[batch.labels], batch.seed, LABELED_DRAW)
            kept_u = self.draw(self.fading(progress)[pseudo_labels], batch.seed, UNLABELED_DRAW)
            mask = confident(probs, self.threshold) * kept_u

        labeled = consistency(self.classify(features.labeled), batch.labels, kept_x)
        unlabeled = consistency(self.classify(features.strong), pseudo_labels, mask)
        return outcome._replace(
            losses={
                **outcome.losses,
                "balanced_labeled": self.weight * labeled,
                "balanced_unlabeled": self.weight * unlabeled,
            },
            metrics={**outcome.metrics, "balanced_coverage": mask.mean()},
        )

    def classify(self, features: Tensor) -> Tensor:
        """(N, C) balanced logits."""
        logits: Tensor = self.head(features if self.projector is None else self.projector(features))
        return logits

    def fading(self, progress: Tensor) -> Tensor:
        """(C,) how probably an unlabeled image is kept: always at first, like a labeled one at the end of the run."""
        return 1 - progress * (1 - self.keep)

    @staticmethod
    def draw(probability: Tensor, seed: Tensor, salt: int) -> Tensor:
        """(N,) 1 with the given probability, else 0."""
        return (uniform(seed, len(probability), salt=salt) < probability).float()
