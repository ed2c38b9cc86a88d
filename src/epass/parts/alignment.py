"""Distribution alignment: keep the average pseudo-label close to what the classes should be.

Most forms count the batch at hand before they are applied, so `forward` takes its statistics as an argument and
`remember` writes them down once the weights have moved.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

EPS = 1e-6


def reweigh(probs: Tensor, wanted: Tensor | float, found: Tensor) -> Tensor:
    """Scale class probabilities by wanted / found and renormalize every row."""
    scaled = probs * (wanted + EPS) / (found + EPS)
    return scaled / scaled.sum(1, keepdim=True)


class QueueAlignment(nn.Module):
    """Divide class probabilities by their average over the last `length` batches, towards uniform classes.

    With `fading_steps` it does so less and less, and from that step on no more: for classes that are not equally
    frequent, of which the network knows by then.
    """

    means: Tensor
    pushed: Tensor

    def __init__(self, num_classes: int, length: int, fading_steps: int | None = None) -> None:
        super().__init__()
        self.num_classes, self.fading_steps = num_classes, fading_steps
        self.register_buffer("means", torch.zeros(length, num_classes))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))

    def forward(self, probs: Tensor, mean: Tensor, step: Tensor | None = None) -> Tensor:
        """Align `probs` (N, C), counting `mean` (C,), this batch's over all ranks, as already remembered."""
        # Rows not yet written are zero and only scale the average, which renormalizing cancels.
        found = self.with_newest(mean).mean(0)
        if self.fading_steps is None:
            return reweigh(probs, 1 / self.num_classes, found)
        assert step is not None
        strength = (self.fading_steps - step).clamp(min=0) / max(1, self.fading_steps)
        scaled = probs / (found + EPS) ** strength
        return scaled / scaled.sum(1, keepdim=True)

    @torch.no_grad()
    def remember(self, mean: Tensor) -> None:
        self.means.copy_(self.with_newest(mean))
        self.pushed.add_(1)

    def with_newest(self, mean: Tensor) -> Tensor:
        length = len(self.means)
        newest = torch.arange(length, device=self.means.device) == self.pushed % length
        return torch.where(newest[:, None], mean, self.means)


class AverageAlignment(nn.Module):
    """Divide by a moving average of the class probabilities.

    `target` is "uniform", "model" (a moving average of the predictions on labeled images) or a fixed distribution.
    """

    found: Tensor
    wanted: Tensor
    started: Tensor

    def __init__(
        self, num_classes: int, *, momentum: float = 0.999, target: Literal["uniform", "model"] | Tensor = "uniform"
    ) -> None:
        super().__init__()
        self.momentum, self.follows_labeled = momentum, isinstance(target, str) and target == "model"
        wanted = target.float() if isinstance(target, Tensor) else torch.full((num_classes,), 1 / num_classes)
        self.register_buffer("found", torch.zeros(num_classes))
        self.register_buffer("wanted", wanted)
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, probs: Tensor, mean: Tensor, labeled_mean: Tensor | None = None) -> Tensor:
        """Align `probs` (N, C), counting in this batch's `mean` (C,) and, for target "model", `labeled_mean` (C,)."""
        found, wanted = self.next(mean, labeled_mean)
        return reweigh(probs, wanted, found)

    @torch.no_grad()
    def remember(self, mean: Tensor, labeled_mean: Tensor | None = None) -> None:
        found, wanted = self.next(mean, labeled_mean)
        self.found.copy_(found)
        self.wanted.copy_(wanted)
        self.started.fill_(True)

    def next(self, mean: Tensor, labeled_mean: Tensor | None) -> tuple[Tensor, Tensor]:
        """Both averages after this batch; the first batch starts the first one, the second starts uniform."""
        assert (labeled_mean is not None) == self.follows_labeled
        found = torch.where(self.started, torch.lerp(mean, self.found, self.momentum), mean)
        wanted = self.wanted if labeled_mean is None else torch.lerp(labeled_mean, self.wanted, self.momentum)
        return found, wanted


class LaggedAlignment(nn.Module):
    """Divide by a moving average that starts uniform and, unlike the others, ends with the batch before this one.

    `count_batch` counts the batch at hand as well. With momentum 1 nothing is ever aligned.
    """

    found: Tensor

    def __init__(self, num_classes: int, *, momentum: float = 0.9, count_batch: bool = False) -> None:
        super().__init__()
        self.momentum, self.count_batch = momentum, count_batch
        self.register_buffer("found", torch.full((num_classes,), 1 / num_classes))

    def forward(self, probs: Tensor, mean: Tensor) -> Tensor:
        """Align `probs` (N, C); `mean` (C,) is this batch's over all ranks."""
        scaled = probs / (self.next(mean) if self.count_batch else self.found)
        return scaled / scaled.sum(1, keepdim=True)

    @torch.no_grad()
    def remember(self, mean: Tensor) -> None:
        self.found.copy_(self.next(mean))

    def next(self, mean: Tensor) -> Tensor:
        return torch.lerp(mean, self.found, self.momentum)
