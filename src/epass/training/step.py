"""One optimization step: losses, gradients, weights, memory, average. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..method import Batch, Method, Outcome, PseudoLabels, check_losses
from ..parts.teacher import Average
from .exchange import averaging, differentiate

Step = Callable[[Batch], Outcome]
MOST_CLASSES = 100  # of which each is counted on its own: reports list them


def make_step(
    method: Method,
    optimizer: torch.optim.Optimizer,
    average: Average,
    *,
    compiler: Callable[..., Any] | None = None,
) -> Step:
    """The step of `method`. Its outcome is computed by what `compiler` makes of it, if there is one."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    compute: nn.Module = Objective(method)
    backward: Callable[[Tensor], None] = partial(differentiate, weights=weights)
    if compiler is not None:
        compute, backward = compiler(averaging(compute)), Tensor.backward

    def step(batch: Batch) -> Outcome:
        loss, memory, told = compute(batch)
        backward(loss)  # gradients are averaged over all processes, if there are several
        optimizer.step()
        optimizer.zero_grad()  # to none: the next gradients are written, not added; a recorded step keeps their place
        method.update(memory)
        average.follow(method.net)
        return cast(Outcome, told)

    return step


class Objective(nn.Module):
    """What a step needs of an outcome, for a compiler to make one graph of: the loss, the memory, and what is told."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor], Outcome]:
        outcome: Outcome = self.method(batch)
        check_losses(outcome, type(self.method).__name__)
        losses = {name: loss.detach() for name, loss in outcome.losses.items()}
        told = Outcome(losses, {**outcome.metrics, **observe(outcome.pseudo, batch.unlabeled_truth)})
        return outcome.loss, outcome.memory, told


@torch.no_grad()
def observe(pseudo: PseudoLabels | None, truth: Tensor) -> dict[str, Tensor]:
    """How many pseudo-labels are used and, where the truth is known, how many of those are right (as shares of all).

    The same again by the class that they name, and beside it the share of images that truly are of a class.
    """
    if pseudo is None:
        return {}
    used = (pseudo.mask > 0).float()
    known = used * (truth >= 0)
    right = known * (pseudo.labels == truth)
    shares = {"coverage": used.mean(), "used_known": known.mean(), "used_right": right.mean()}
    if pseudo.probs is None or pseudo.probs.shape[1] > MOST_CLASSES:
        return shares
    classes = torch.arange(pseudo.probs.shape[1], device=truth.device)
    named, true = (labels[:, None] == classes for labels in (pseudo.labels, truth))
    counted = {"used": used, "known": known, "right": right}
    by_class = {f"{name}_by_class": (chosen[:, None] * named).mean(0) for name, chosen in counted.items()}
    return shares | by_class | {"images_by_class": true.float().mean(0)}
