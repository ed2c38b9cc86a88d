"""The training loop, as an iterator of reports: whoever consumes it logs, plots, evaluates, saves or stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ..method import Outcome
from .optimizer import set_lr
from .schedule import Plan

T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """Averages over the steps since the last report."""

    step: int  # steps done
    values: dict[str, float]


class NotFiniteError(ArithmeticError):
    """A loss stopped being a number; nothing after the last checkpoint is worth keeping."""


def train(
    step_fn: Callable[[T], Outcome],
    feed: Callable[[int], T],
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    *,
    start: int = 0,
    window: Window | None = None,
) -> Iterator[Report]:
    """Train from step `start` to the end of the plan. The host waits for the device only at a report.

    `feed` gives a step's input, usually a batch, and `step_fn` takes it. `window` holds what follows the last report.
    """
    window = window or Window(start)
    for step in range(start, plan.steps):
        lr = plan.lr * plan.lr_factor(step)
        set_lr(optimizer, lr)
        window.add(step_fn(feed(step)))
        if plan.reports_after(step + 1):
            report = Report(step + 1, {**window.means(), "lr": lr})
            window.clear(step + 1)
            yield report


class Window:
    """Running sums of an outcome's scalars, on the device."""

    def __init__(self, start: int) -> None:
        self.clear(start)

    def clear(self, start: int) -> None:
        self.start, self.count = start, 0
        self.losses: tuple[str, ...] = ()
        self.metrics: tuple[str, ...] = ()
        self.total: Tensor | None = None  # losses, then metrics
        self.finite: Tensor | None = None  # steps until a loss part was no longer finite

    def add(self, outcome: Outcome) -> None:
        values = torch.stack([value.float() for value in (*outcome.losses.values(), *outcome.metrics.values())])
        fine = values[: len(outcome.losses)].isfinite()
        self.losses, self.metrics = tuple(outcome.losses), tuple(outcome.metrics)
        if self.total is None or self.finite is None:
            self.total, self.finite = values, fine.long()
        else:
            self.total = self.total + values
            self.finite = self.finite + (fine & (self.finite == self.count))
        self.count += 1

    def means(self) -> dict[str, float]:
        """Averages by name: the one place where the host waits. A loss that is no number stops everything."""
        assert self.total is not None
        assert self.finite is not None
        means = (self.total / self.count).tolist()
        first, name = min(zip(self.finite.tolist(), self.losses, strict=True), key=lambda pair: pair[0])
        if first < self.count:
            raise NotFiniteError(f"The loss '{name}' was no longer finite at step {self.start + first}.")
        parts = dict(zip((f"loss_{name}" for name in self.losses), means, strict=False))
        values = {"loss": math.fsum(parts.values()), **parts}
        values.update(zip(self.metrics, means[len(self.losses) :], strict=True))
        known, right = values.pop("used_known", 0.0), values.pop("used_right", 0.0)
        return {**values, "quality": right / known} if known else values
