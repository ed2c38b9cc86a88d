"""What a method draws at random, as a pure function of the seed that its batch brings.

`forward` may run twice, in a captured graph, resumed or on several processes: the same batch gives the same draws.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..machine.distributed import gather_rows, rank, world_size

_BITS = 23  # of a number: with the half that keeps it off 0 and 1, all that float32 can hold


def uniform(seed: Tensor, *shape: int, salt: int) -> Tensor:
    """Float32 numbers in (0, 1). The first dimension counts this process's rows of the batch.

    Args:
        seed: `batch.seed`.
        *shape: Without one, a single number that all processes share.
        salt: Tells apart the draws of one step; draws of equal salt are equal.
    """
    rows, *rest = shape or (1,)
    width = math.prod(rest)
    row = rank() + world_size() * torch.arange(rows, device=seed.device) if shape else torch.zeros_like(seed)[None]
    position = row[:, None] * width + torch.arange(width, device=seed.device)
    stream = _mix(seed + _signed(0x9E3779B97F4A7C15 * (salt + 1)))
    # stream + factor * position, with the factor taken out: a compiler takes factor * position, a multiple of a known
    # range, for an address, and addresses do not wrap like int64.
    bits = _shift(_mix(_FACTOR * (stream * _INVERSE + position)), 64 - _BITS)
    numbers = (bits.float() + 0.5) / (1 << _BITS)
    return numbers.view(shape)


def normal(seed: Tensor, *shape: int, salt: int) -> Tensor:
    """Standard normal numbers, otherwise as `uniform`."""
    return math.sqrt(2) * torch.erfinv(2 * uniform(seed, *shape, salt=salt) - 1)


def permutation(seed: Tensor, count: int, *, salt: int) -> Tensor:
    """A random order of the rows of all processes, int64; `count` is that of this one's."""
    return gather_rows(uniform(seed, count, salt=salt)).argsort()


def _signed(number: int) -> int:
    """The last 64 bits as int64 reads them."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


_FACTOR = _signed(0xD1B54A32D192ED03)
_INVERSE = _signed(pow(_FACTOR, -1, 1 << 64))


def _mix(state: Tensor) -> Tensor:
    """The last steps of splitmix64, in wrapping int64 arithmetic."""
    state = (state ^ _shift(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shift(state, 27)) * _signed(0x94D049BB133111EB)
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """A shift to the right that fills up with zeros."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
