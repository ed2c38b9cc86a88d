"""ShrinkMatch: Shrinking Class Space for Enhanced Certainty in Semi-Supervised Learning (Yang et al., ICCV 2023).

The shrunk class spaces of ShrinkMatch, added to any method with pseudo-labels.
Around SimMatch or CoMatch with three projectors it is ShrinkMatch + EPASS.
"""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from ..errors import InputError
from ..method import Batch, Method, Outcome, Problem, Wrapper
from ..parts.shrink import HeadNorm, Shrinking, shrink_loss
from .shrinkmatch import ShrinkMatch


@runtime_checkable
class Thresholded(Protocol):
    """A method whose mask compares the confidence with a threshold; a fixed one is a number."""

    threshold: float | Tensor


class Shrink(Wrapper):
    """What the wrapped method's own mask leaves out learns among fewer classes, with a head of its own.

    `threshold` and `weight` are those of the wrapped method, unless they are given.
    """

    display_name = "Shrink"

    def __init__(
        self,
        method: Method,
        problem: Problem,
        *,
        threshold: float | None = None,
        weight: float | None = None,
        share_momentum: float = 0.999,
        restart_steps: int = 0,
        head_norm: HeadNorm = "strong",
    ) -> None:
        super().__init__(method)
        if isinstance(self.host, ShrinkMatch):
            raise InputError("ShrinkMatch shrinks its classes already: wrap another method.")
        known = self.host.threshold if isinstance(self.host, Thresholded) else None
        if threshold is None and not isinstance(known, (int, float)):
            name = type(self.host).__name__
            raise InputError(f"{name} has no fixed threshold that shrunk classes could reach: give one, as threshold.")
        self.threshold = cast(float, known) if threshold is None else threshold
        self.weight = self.host.unlabeled_weight if weight is None else weight
        self.shrinking = Shrinking(
            cast(int, method.net.num_features),
            problem.num_classes,
            momentum=share_momentum,
            restart_steps=restart_steps,
            head_norm=head_norm,
        )

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        features, (probs, mask) = self.features_of(outcome), self.beliefs_of(outcome)
        share = self.shrinking.next_share(mask, batch.step)
        shrink = shrink_loss(self.shrinking(*features), probs, mask, self.threshold)
        return outcome._replace(
            losses={**outcome.losses, "shrink": self.weight * share * shrink},
            metrics={**outcome.metrics, "certain_share": share},
            memory={**outcome.memory, "certain_share": share},
        )

    def beliefs_of(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """The class probabilities that decided about the wrapped method's mask, and the mask."""
        if outcome.pseudo is None or outcome.pseudo.probs is None:
            name = type(self.host).__name__
            raise InputError(f"{name} does not say what its mask was taken from: give its `PseudoLabels` the `probs`.")
        return outcome.pseudo.probs, outcome.pseudo.mask

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        memory = dict(memory)
        self.shrinking.remember(memory.pop("certain_share"))
        super().update(memory)
