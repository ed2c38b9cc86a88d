"""A step and the making of its batch as CUDA graphs, side by side on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ..method import Batch, Outcome
from ..parts.teacher import copy_all

T = TypeVar("T")
R = TypeVar("R")


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


class Recorded(Generic[T, R]):
    """Work as one CUDA graph, recorded when this is made and replayed when it is called.

    Recording does the work a few times, so the tensors of `state` (weights, memories, averages, optimizer state) are
    put back to what they were before. A replay draws from `generators` as they are seeded when it starts. Its result
    lies where that of the replay before lay.
    """

    def __init__(
        self,
        work: Callable[[T], R],
        example: T,
        *,
        state: Sequence[Tensor] = (),
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        self.inputs = tree_map(torch.clone, example)
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with kept(state):
            with torch.cuda.stream(stream):
                for _ in range(3):  # allocates what must not move: gradients, workspaces
                    work(self.inputs)
            torch.cuda.current_stream().wait_stream(stream)
            # Other threads may use the device meanwhile: one that decodes the images of the next step, for instance.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.result = work(self.inputs)

    def take(self, inputs: T) -> None:
        """Copy the inputs to where a replay reads them."""
        copy_all(zip(tree_leaves(self.inputs), tree_leaves(inputs), strict=True))

    def replay(self) -> R:
        self.graph.replay()
        return self.result

    def __call__(self, inputs: T) -> R:
        self.take(inputs)
        return self.replay()


class Overlap(Generic[T]):
    """A feed and a step on CUDA: a batch is made on a stream of its own, while the step before it computes.

    Nothing has to be foreseen for that: the host is ahead of the device, so it asks for a batch before the device
    begins with the step before.
    """

    def __init__(
        self, select: Callable[[int], T], make: Recorded[T, Batch], recorded_step: Recorded[Batch, Outcome]
    ) -> None:
        self.select, self.make, self.recorded_step = select, make, recorded_step
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        self.made, self.taken = torch.cuda.Event(), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def feed(self, number: int) -> Batch:
        """The batch of a step, which may only be given to `step`: the next one is made in the same place."""
        with torch.cuda.stream(self.stream):
            selection = self.select(number)
            for tensor in tree_leaves(selection):
                tensor.record_stream(self.stream)  # parts of it may have been allocated by another one
            self.stream.wait_event(self.taken)  # the batch before, of which the selection's indices are a part
            batch = self.make(selection)
            self.made.record()
        return batch

    def step(self, batch: Batch) -> Outcome:
        torch.cuda.current_stream().wait_event(self.made)
        self.recorded_step.take(batch)
        self.taken.record()
        return self.recorded_step.replay()
