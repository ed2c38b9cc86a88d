"""What happened since the last report, summed up on the device."""

from __future__ import annotations

import math
from itertools import islice

import torch
from torch import Tensor

from ..machine.distributed import least_over_ranks, mean_over_ranks
from ..method import Outcome


class NotFiniteError(ArithmeticError):
    """A loss stopped being a number; nothing after the last checkpoint is worth keeping."""

    def __init__(self, problem: str, *, at_once: bool = False) -> None:
        super().__init__(problem)
        self.at_once = at_once  # before a weight had moved


class Window:
    """Running sums of an outcome's scalars, and of its metrics by class, on the device."""

    def __init__(self, start: int) -> None:
        self.clear(start)

    whole = True  # no step is under way: weights and memories are those after the steps counted

    def clear(self, start: int) -> None:
        self.start, self.count = start, 0
        self.losses: tuple[str, ...] = ()
        self.metrics: dict[str, torch.Size] = {}  # their shapes: () or (C,)
        self.total: Tensor | None = None  # losses, then metrics, one after the other
        self.finite: Tensor | None = None  # steps until a loss part was no longer finite

    def add(self, outcome: Outcome) -> None:
        parts = (*outcome.losses.values(), *outcome.metrics.values())
        values = torch.cat([value.float().reshape(-1) for value in parts])
        fine = values[: len(outcome.losses)].isfinite()
        self.losses = tuple(outcome.losses)
        self.metrics = {name: value.shape for name, value in outcome.metrics.items()}
        if self.total is None or self.finite is None:
            self.total, self.finite = values, fine.long()
        else:
            self.total = self.total + values
            self.finite = self.finite + (fine & (self.finite == self.count))
        self.count += 1

    def agree(self) -> None:
        """Take the sums of all ranks into account; a second time changes nothing."""
        if self.total is not None and self.finite is not None:
            self.total, self.finite = mean_over_ranks(self.total), least_over_ranks(self.finite)

    def means(self) -> dict[str, float]:
        """Averages by name: the one place where the host waits. A loss that is no number stops everything."""
        self.agree()
        assert self.total is not None
        assert self.finite is not None
        first, name = min(zip(self.finite.tolist(), self.losses, strict=True), key=lambda pair: pair[0])
        if first < self.count:
            at = self.start + first
            raise NotFiniteError(f"The loss '{name}' was no longer finite at step {at}.", at_once=not at)
        means = (self.total[: len(self.losses)] / self.count).tolist()
        parts = dict(zip((f"loss_{name}" for name in self.losses), means, strict=True))
        values = {"loss": math.fsum(parts.values()), **parts}
        values |= {name: mean[0] for name, mean in self._metric_means().items() if not self.metrics[name]}
        known, right = values.pop("used_known", 0.0), values.pop("used_right", 0.0)
        return {**values, "quality": right / known} if known else values

    def by_class(self) -> dict[str, list[float]]:
        """Averages of the metrics that have a value for every class, short enough to be listed."""
        found = {name: mean for name, mean in self._metric_means().items() if self.metrics[name]}
        return {name: [round(value, 6) for value in mean] for name, mean in found.items()}

    def _metric_means(self) -> dict[str, list[float]]:
        assert self.total is not None
        means = iter((self.total[len(self.losses) :] / self.count).tolist())
        return {name: list(islice(means, shape.numel())) for name, shape in self.metrics.items()}
