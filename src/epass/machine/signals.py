"""Ctrl-C and SIGTERM: a run stops between two steps, keeps what it has done, and says how to go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..errors import PeerError
from .launch import FAILED, is_one_of_several


class Terminated(KeyboardInterrupt):
    """SIGTERM: somebody, or a scheduler, wants this process to end."""


class Stopped(KeyboardInterrupt):
    """Work that was stopped by a person, a signal or a scheduler: how to go on, in a sentence, and the exit code."""

    def __init__(self, sentence: str, cause: KeyboardInterrupt) -> None:
        super().__init__(sentence)
        self.code = exit_code(cause)


class Stop:
    """What a signal asked for. Called between steps, it stops the run if one came.

    From the first call on, a signal waits for the next one; a second signal does not.
    """

    def __init__(self) -> None:
        self.called = False
        self.asked: KeyboardInterrupt | None = None
        self.parent: int | None = None
        self.agree: Callable[[float], float] = lambda code: code
        if is_one_of_several():
            from .distributed import largest_over_ranks

            self.parent, self.agree = os.getppid(), largest_over_ranks

    def __call__(self) -> None:
        """Of several processes, all stop at the same step, whichever was asked. So do those whose parent is gone."""
        self.called = True
        if self.parent not in (None, os.getppid()) and self.asked is None:
            self.asked = Terminated()
        code = self.agree(0 if self.asked is None else exit_code(self.asked))
        if code > FAILED / 2:  # another process is in `all_or_none`, and says why
            raise PeerError
        if code:
            raise self.asked or (Terminated() if code == 128 + signal.SIGTERM else KeyboardInterrupt())

    def receive(self, number: int, frame: FrameType | None) -> None:
        waits = self.called and self.asked is None
        self.asked = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if not waits:
            raise self.asked


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Receive both signals, except one that whoever started us has switched off (nohup, a shell's background)."""
    stop, before = Stop(), {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, stop.receive)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def polite_ends() -> Iterator[None]:
    """Let SIGTERM be an exception, as Ctrl-C is, unless whoever started us has it handled or switched off."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopped_with(sentence: str) -> Iterator[None]:
    """Let an interruption say how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise Stopped(sentence, interrupt) from None


def exit_code(stopped: KeyboardInterrupt) -> int:
    """128 and the number of the signal, as shells have it."""
    if isinstance(stopped, Stopped):
        return stopped.code
    return 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)
