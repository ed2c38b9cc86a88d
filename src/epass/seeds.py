"""Randomness is a function of (seed, step): `fold` turns a seed and a few words into another seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_MASK = (1 << 64) - 1
_TURN = RLock()  # to draw from torch's own generator, of which there is one for all threads


def fold(seed: int, *words: int | str) -> int:
    """Mix integers and names into one 63-bit seed (splitmix64); equal inputs give equal seeds on every machine."""
    state = _mix(seed & _MASK)  # so that seed and first word cannot stand in for each other
    for word in words:
        number = int.from_bytes(word.encode(), "little") if isinstance(word, str) else word
        while True:  # a long name is folded in eight bytes at a time
            state = _mix(state ^ (number & _MASK))
            number >>= 64
            if number in (0, -1):
                break
    return state >> 1


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Within it torch draws from one seed, and threads that want that take turns; its state stays as it was."""
    import torch

    with _TURN, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _mix(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
    return state ^ state >> 31
