"""Collectives that are the identity in a single process.

Every rank computes the same global batch and keeps rows `rank::world`; `gather_rows` restores that order.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The position of this process among them."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all ranks in the order of the global batch; gradients go back to the rank they belong to."""
    if world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


def mean_over_ranks(value: Tensor) -> Tensor:
    """The average of a detached `value` over all ranks."""
    if world_size() == 1:
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total / world_size()


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        world = world_size()
        stacked = rows.new_empty(world * rows.shape[0], *rows.shape[1:])
        dist.all_gather_into_tensor(stacked, rows.contiguous())
        return stacked.view(world, *rows.shape).transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)  # every rank's loss depends on every row
        return total[rank() :: world_size()]
