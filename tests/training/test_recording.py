"""A feed and a step on two streams of a pretended device, which may run whatever its streams and events allow."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from epass.training.recording import Overlap

Order = Callable[[list[int]], int]


class Stream:
    """What was asked for, in order: work, and events to wait for."""

    def __init__(self, device: Device) -> None:
        self.device, self.asked = device, deque[Callable[[], bool]]()
        device.streams.append(self)

    def do(self, work: Callable[[], object]) -> None:
        self.asked.append(lambda: (work(), True)[1])

    def wait_event(self, event: Event) -> None:
        mark = event.mark  # what is recorded later is not waited for
        self.asked.append(lambda: mark is None or mark in self.device.reached)

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.device)
        event.record(other)
        self.wait_event(event)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.mark = device, None

    def record(self, stream: Stream | None = None) -> None:
        mark = self.mark = object()
        (stream or self.device.current).do(lambda: self.device.reached.append(mark))


class Device:
    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.reached: list[object] = []
        self.current = Stream(self)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def run(self, choose: Order) -> None:
        """Everything that was asked for, one piece at a time, of the stream that `choose` picks."""
        while waiting := [number for number, stream in enumerate(self.streams) if stream.asked]:
            while True:
                number = choose(waiting)
                if self.streams[number].asked[0]():
                    self.streams[number].asked.popleft()
                    break
                waiting.remove(number)
                assert waiting, "every stream waits for another"


class Rows:
    """The selection of a step; the allocator must learn which stream reads it."""

    def __init__(self, step: int) -> None:
        self.step, self.readers = step, []

    def record_stream(self, stream: Stream) -> None:
        self.readers.append(stream)


class Work:
    """In the place of a recorded graph: reads its inputs when the device comes to it, and writes to one place."""

    def __init__(self, device: Device, compute: Callable[[Any], object]) -> None:
        self.device, self.compute, self.inputs, self.result = device, compute, None, None

    def take(self, inputs: Any) -> None:
        def copy() -> None:
            self.inputs = inputs() if callable(inputs) else inputs

        self.device.current.do(copy)

    def replay(self) -> Callable[[], Any]:
        def work() -> None:
            self.result = self.compute(self.inputs)

        self.device.current.do(work)
        return lambda: (self.inputs, self.result)  # a batch holds the indices that it was made of

    def __call__(self, inputs: Any) -> Callable[[], Any]:
        self.take(inputs)
        return self.replay()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    pretended = Device()
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(pretended))
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(pretended))
    monkeypatch.setattr(torch.cuda, "stream", pretended.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: pretended.current)
    return pretended


def first(waiting: list[int]) -> int:
    return waiting[0]


def last(waiting: list[int]) -> int:
    return waiting[-1]


@pytest.mark.parametrize("choose", [first, last, *(random.Random(seed).choice for seed in range(8))])
def test_every_step_gets_its_own_batch_whatever_runs_first(choose: Order, device: Device) -> None:
    seen = []
    chosen = [Rows(step) for step in range(12)]
    make = Work(device, lambda rows: f"batch {rows.step}")
    step = Work(device, lambda batch: seen.append((batch[0].step, batch[1])))
    overlap: Any = Overlap(chosen.__getitem__, make, step)  # type: ignore[arg-type]
    for number in range(12):
        overlap.step(overlap.feed(number))
    device.run(choose)
    assert seen == [(number, f"batch {number}") for number in range(12)]
    assert all(rows.readers == [overlap.stream] for rows in chosen)


def test_a_batch_is_made_while_the_step_before_has_not_begun(device: Device) -> None:
    happened = []
    make = Work(device, lambda rows: happened.append(f"batch {rows.step}"))
    step = Work(device, lambda batch: happened.append(f"step {batch[0].step}"))
    overlap: Any = Overlap(Rows, make, step)  # type: ignore[arg-type]
    for number in range(3):
        overlap.step(overlap.feed(number))
    device.run(last)  # the batches' stream first
    assert happened == ["batch 0", "batch 1", "step 0", "batch 2", "step 1", "step 2"]
