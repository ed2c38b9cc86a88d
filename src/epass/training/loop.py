"""The training loop, as an iterator over steps: whoever consumes it logs, plots, evaluates, saves or stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from ..method import Outcome
from .optimizer import set_lr
from .schedule import Plan
from .window import Window

T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """Averages over the steps since the last report."""

    step: int  # steps done
    values: dict[str, float]
    by_class: dict[str, list[float]] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()  # what nobody should miss


def train(
    step_fn: Callable[[T], Outcome],
    feed: Callable[[int], T],
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    *,
    start: int = 0,
    window: Window | None = None,
) -> Iterator[Report | None]:
    """Train from step `start` to the end of the plan and yield after every step: a report where one is due, or None.

    The host waits for the device only at a report. `feed` gives a step's input, usually a batch, and `step_fn` takes
    it. `window` holds what follows the last report.
    """
    window = window or Window(start)
    for step in range(start, plan.steps):
        lr = plan.lr * plan.lr_factor(step)
        set_lr(optimizer, lr)
        batch = feed(step)
        window.whole = False
        window.add(step_fn(batch))
        del batch  # or the next one would be made beside it
        report = None
        if plan.reports_after(step + 1):
            report = Report(step + 1, {**window.means(), "lr": lr}, window.by_class())
            window.clear(step + 1)
        window.whole = True
        yield report
