"""Collectives that are the identity in a single process.

Every rank computes the same global batch and keeps rows `rank::world`; `gather_rows` restores that order. What hosts
tell each other travels in CPU tensors, so that no device has to be waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import PeerError

# Its name since torch 2.13, which warns about the other one.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


_FAILED = 2.0  # what the first rank says instead of yes or no, 1 or 0


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The position of this process among them."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def alone() -> bool:
    """Whether there is nobody to talk to."""
    return world_size() == 1


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all ranks in the order of the global batch; gradients go back to the rank they belong to."""
    if alone():
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


def own_rows(rows: Tensor) -> Tensor:
    """This rank's share of `rows`, as many as every rank gets: where they do not divide, the last one is repeated.

    `gather_rows(own_rows(rows))[: len(rows)]` is `rows`.
    """
    world = world_size()
    if alone():
        return rows
    each = -(-len(rows) // world)
    return rows[(rank() + world * torch.arange(each, device=rows.device)).clamp(max=len(rows) - 1)]


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum of a detached `value` over all ranks."""
    if alone():
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total


def mean_over_ranks(value: Tensor) -> Tensor:
    """The average of a detached `value` over all ranks."""
    return value if alone() else sum_over_ranks(value) / world_size()


def least_over_ranks(value: Tensor) -> Tensor:
    """The smallest of a detached `value` over all ranks, element by element."""
    if alone():
        return value
    least = value.detach().clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return least


@torch.no_grad()
def take_from_first_rank(tensors: Iterable[Tensor]) -> None:
    """Overwrite every tensor with the first rank's."""
    if alone():
        return
    for tensor in tensors:
        sent = tensor.contiguous()
        dist.broadcast(sent, 0)
        tensor.copy_(sent)


def bytes_of_first_rank(data: bytes) -> bytes:
    """The first rank's `data`, at least one byte, whatever the others have."""
    if alone():
        return data
    length = torch.tensor(len(data))
    dist.broadcast(length, 0)
    sent = torch.frombuffer(bytearray(data if rank() == 0 else int(length)), dtype=torch.uint8)
    dist.broadcast(sent, 0)
    return sent.numpy().tobytes()


def largest_over_ranks(value: float) -> float:
    """The largest of a number that the hosts know."""
    if alone():
        return value
    largest = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def of_first_rank(value: float) -> float:
    """A number that only the first rank can know, such as what is in its run folder."""
    return largest_over_ranks(value if rank() == 0 else -math.inf)


def first_rank_says(question: Callable[[], bool]) -> bool:
    """What the first rank answers, on all ranks. Its failure ends them all."""
    if alone():
        return question()
    try:
        answer = rank() == 0 and question()
    except BaseException:
        largest_over_ranks(_FAILED)
        raise
    said = largest_over_ranks(answer)
    if said == _FAILED:
        raise PeerError
    return bool(said)


def on_first_rank(work: Callable[[], object]) -> None:
    """Let the first rank do something, such as writing a file, while the others wait. Its failure ends them all."""

    def do() -> bool:
        work()
        return True

    first_rank_says(do)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        world = world_size()
        stacked = rows.new_empty(world * rows.shape[0], *rows.shape[1:])
        _all_gather(stacked, rows.contiguous())
        return stacked.view(world, *rows.shape).transpose(0, 1).flatten(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep; apart from `forward`, so that `torch.func` takes it."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)  # every rank's loss depends on every row
        return total[rank() :: world_size()]
