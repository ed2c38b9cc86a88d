"""Randomness is a function of (seed, step): `fold` turns a seed and a few words into another seed."""

from __future__ import annotations

from threading import Lock
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MASK = (1 << 64) - 1
_OWN_GENERATOR = Lock()  # torch's own, of which there is one for all threads


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


def _mix(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
    return state ^ state >> 31


class Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, what this thread draws on the CPU comes from one seed, whatever other threads draw meanwhile.

    The numbers are those that torch's own generator would give, whose state stays as it is.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        taking = _with_generator(func)
        if taking is not None and _on_cpu(args, kwargs):
            return taking(*args, **kwargs, generator=self.generator)
        with _OWN_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.generator.get_state())
            drawn = func(*args, **kwargs)
            self.generator.set_state(torch.get_rng_state())
        return drawn


def _with_generator(func: Any) -> Any:
    """The overload of a function that takes a generator: itself, or one of its siblings, if there is one."""
    name = func._overloadname
    for overload in (name, "generator" if name == "default" else f"{name}_generator"):
        found = getattr(func.overloadpacket, overload, None)
        if found is not None and any(argument.name == "generator" for argument in found._schema.arguments):
            return found
    return None


def _on_cpu(args: Any, kwargs: Any) -> bool:
    """Whether a generator of the CPU fits to these tensors, or to the device that they are to be made on."""
    places = [value.device for value in args if isinstance(value, torch.Tensor)]
    return all(torch.device(place).type == "cpu" for place in (*places, kwargs.get("device") or "cpu"))
