"""The contract between a semi-supervised method and everything around it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn


class Views(NamedTuple):
    """The augmented views a method asks for, by policy name, in the order it unpacks them."""

    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """The facts known before training starts."""

    num_classes: int
    num_labeled: int
    num_unlabeled: int
    label_counts: tuple[int, ...]  # labeled images per class
    labeled_batch: int  # labeled images per step, over all processes
    unlabeled_batch: int  # unlabeled images per step, over all processes


class Batch(NamedTuple):
    """One step's input. Every field is a tensor on the training device, of the same shape at every step."""

    labeled: tuple[Tensor, ...]  # views of (B, C, H, W), normalized
    labels: Tensor  # (B,) int64
    unlabeled: tuple[Tensor, ...]  # views of (U, C, H, W), normalized
    labeled_index: Tensor  # (B,) position in the labeled set
    unlabeled_index: Tensor  # (U,) position in the unlabeled set
    unlabeled_truth: Tensor  # (U,) true class or -1: for diagnostics, no method reads it
    step: Tensor  # () int64


class PseudoLabels(NamedTuple):
    """The classes a method believes its unlabeled images have, and which of them it trains on."""

    labels: Tensor  # (U,) int64
    mask: Tensor  # (U,) float, 0 = not used


class Outcome(NamedTuple):
    """One step's result. `memory` is handed to `Method.update` once the weights have moved."""

    losses: dict[str, Tensor]  # scalars, already weighted: their sum is minimized
    metrics: dict[str, Tensor] = {}  # noqa: RUF012  (detached scalars, still on the device)
    memory: dict[str, Tensor] = {}  # noqa: RUF012
    pseudo: PseudoLabels | None = None

    @property
    def loss(self) -> Tensor:
        """What is minimized: the sum of the parts, so that the log adds up."""
        return torch.stack(list(self.losses.values())).sum()


class Method(nn.Module):
    """A semi-supervised objective around a classifier `net`.

    `forward` reads state and never writes it (BatchNorm's running statistics excepted); `update` writes it, after the
    optimizer step. All state is parameters and registered buffers, so `state_dict()` is the whole method. The
    keyword-only arguments of `__init__` are the hyper-parameters: their names and defaults are the schema of a recipe.
    """

    views: ClassVar[Views]
    all_labels: ClassVar[bool] = False  # an upper bound that trains on every known label, not on the few

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    @abstractmethod
    def forward(self, batch: Batch) -> Outcome:
        """The whole objective of one step."""

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        """Remember what this step taught; a method without memory keeps this default."""
