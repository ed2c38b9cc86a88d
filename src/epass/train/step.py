"""One optimization step: losses, gradients, weights, memory, average. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..distributed import average_gradients
from ..method import Batch, Method, Outcome, PseudoLabels
from ..parts.teacher import Average

T = TypeVar("T")
Step = Callable[[Batch], Outcome]
MOST_CLASSES = 100  # of which each is counted on its own: reports list them


def make_step(
    method: Method, optimizer: torch.optim.Optimizer, average: Average, *, forward: nn.Module | None = None
) -> Step:
    """The step of `method`. `forward` computes its outcome where that is its compiled form."""
    compute = method if forward is None else forward
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]

    def step(batch: Batch) -> Outcome:
        outcome: Outcome = compute(batch)
        outcome.loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(weights)  # over all processes, if there are several
        optimizer.step()
        optimizer.zero_grad()  # to none: the next gradients are written, not added; a recorded step keeps their place
        method.update(outcome.memory)
        average.follow(method.net)
        losses = {name: loss.detach() for name, loss in outcome.losses.items()}
        return Outcome(losses, {**outcome.metrics, **observe(outcome.pseudo, batch.unlabeled_truth)})

    return step


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


@contextmanager
def kept(state: Sequence[Tensor], device: torch.device | str | None = None) -> Iterator[None]:
    """Put the tensors of `state` back at the end, whatever happened; their copies wait on `device`, or beside them."""
    before = [tensor.detach().to(device, copy=True) for tensor in state]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)


def capture(
    work: Callable[[T], Outcome], example: T, *, state: Sequence[Tensor], generators: Sequence[torch.Generator] = ()
) -> Callable[[T], Outcome]:
    """Record `work` (a step, or the making of its batch and the step) as one CUDA graph and return what replays it.

    Recording runs the work a few times, so the tensors of `state` (weights, memories, averages, optimizer state) are
    put back to what they were before. A replay draws from `generators` as they are seeded when it starts.
    """
    static = tree_map(torch.clone, example)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with kept(state):
        with torch.cuda.stream(stream):
            for _ in range(3):  # allocates what must not move: gradients, workspaces
                work(static)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            outcome = work(static)

    def replay(inputs: T) -> Outcome:
        tree_map(lambda slot, new: slot.copy_(new), static, inputs)
        graph.replay()
        return outcome

    return replay
