"""How long to train, how fast, and how often to look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..errors import InputError


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The optimization part of a recipe."""

    steps: int
    labeled_batch: int = 64
    unlabeled_ratio: int = 7  # unlabeled images per labeled image
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.03
    schedule: Literal["cosine", "half-cosine", "drops", "constant"] = "cosine"  # of the learning rate; see `lr_factor`
    drops: list[float] | None = None  # shares of the run, for the schedule "drops"
    weight_decay: float = 5e-4
    decayed: Literal["weights", "everything"] = "weights"  # or also biases and what normalizes
    momentum: float = 0.9
    nesterov: bool = True
    average_momentum: float = 0.999  # of the weights that are evaluated and kept
    warmup_steps: int = 0  # of the learning rate
    layer_decay: float = 1.0  # of the learning rate, from each layer of the network to the one before it
    report_every: int = 100
    evaluate_every: int = 1000
    checkpoint_minutes: float = 10.0  # at most between two checkpoints; every test writes one, too
    scores: list[str] | None = None  # of your own, which every test computes besides ours: file.py:score
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"  # only where there is CUDA; it takes a minute or two at the start

    def __post_init__(self) -> None:
        for name in ("steps", "labeled_batch", "unlabeled_ratio", "report_every", "evaluate_every"):
            if getattr(self, name) < 1:
                raise InputError(f"plan.{name} must be at least 1, not {getattr(self, name)}.")
        if self.lr <= 0 or self.weight_decay < 0:
            raise InputError("plan.lr must be above 0 and plan.weight_decay not below it.")
        # Adam divides the rate by what is as small as 1 - momentum, and AdamW multiplies both, in 32 bits.
        if self.optimizer != "sgd" and self.lr * max(self.weight_decay, 1e6) > 1e38:
            raise InputError(
                f"plan.lr={self.lr} and plan.weight_decay={self.weight_decay} are too large for {self.optimizer}: use "
                "numbers below 1."
            )
        if not all(0 < share < 1 for share in self.drops or []):
            raise InputError(f"plan.drops are shares of the run between 0 and 1, not {self.drops}.")
        if (self.schedule == "drops") != bool(self.drops):
            raise InputError('plan.drops and schedule "drops" need each other: use plan.drops=[0.6,0.8], or neither.')
        if not self.checkpoint_minutes > 0:
            raise InputError(f"plan.checkpoint_minutes must be above 0, not {self.checkpoint_minutes}.")
        if not 0 < self.layer_decay <= 1:
            raise InputError(f"plan.layer_decay lies above 0 and not above 1, not at {self.layer_decay}.")
        if not 0 <= self.warmup_steps < self.steps:
            raise InputError(f"plan.warmup_steps lies between 0 and the {self.steps} steps of the run.")
        for name in ("momentum", "average_momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"plan.{name} lies in [0, 1), not at {getattr(self, name)}.")

    @property
    def unlabeled_batch(self) -> int:
        """Unlabeled images per step."""
        return self.labeled_batch * self.unlabeled_ratio

    def lr_factor(self, step: int) -> float:
        """Linear warm-up from 0 to the full rate, then what the schedule says.

        "cosine" ends at cos(7 pi / 16) = 0.195 of the full rate, "half-cosine" at 0, "drops" divides by ten after each
        of the shares of the whole run, "constant" stays.
        """
        if step < self.warmup_steps:
            return step / self.warmup_steps
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        if self.schedule == "cosine":
            return max(0.0, math.cos(7 * math.pi / 16 * progress))
        if self.schedule == "half-cosine":
            return (1 + math.cos(math.pi * min(progress, 1.0))) / 2
        if self.schedule == "drops":
            return 0.1 ** sum(step >= share * self.steps for share in self.drops or [])
        return 1.0

    def reports_after(self, step: int) -> bool:
        """Whether the host looks at the device once `step` steps are done."""
        return step % self.report_every == 0 or self.evaluates_after(step)

    def evaluates_after(self, step: int) -> bool:
        """Whether the average weights are tested, and a checkpoint written, once `step` steps are done."""
        return step % self.evaluate_every == 0 or step == self.steps
