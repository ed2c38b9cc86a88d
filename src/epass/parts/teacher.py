"""A slowly moving copy of a module."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """Exponential moving average (EMA) of a module's parameters, with the module's live buffers.

    It is itself a module with the same forward, and is never trained. With `batch_statistics` its BatchNorm layers
    normalize by the batch at hand, as teachers in the field do, and still leave their running statistics alone. With
    `average_buffers` running statistics are averaged like parameters instead of copied, which is EMAN.
    """

    def __init__(
        self,
        module: nn.Module,
        momentum: float = 0.999,
        *,
        batch_statistics: bool = False,
        average_buffers: bool = False,
    ) -> None:
        super().__init__()
        self.momentum, self.average_buffers = momentum, average_buffers
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        if batch_statistics:
            for part, live in zip(self.module.modules(), module.modules(), strict=True):
                if isinstance(part, nn.modules.batchnorm._BatchNorm) and live.training:  # the other ones are frozen
                    part.training, part.track_running_stats = True, False

    def train(self, mode: bool = True) -> Average:
        """Keep the mode chosen at the start: an average is never trained."""
        return self

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)

    @torch.no_grad()
    def follow(self, module: nn.Module) -> None:
        """Move towards `module` by one step; momentum 0 copies it."""
        averaged: list[tuple[Tensor, Tensor]] = list(zip(self.module.parameters(), module.parameters(), strict=True))
        copied: list[tuple[Tensor, Tensor]] = []
        for own, live in zip(self.module.buffers(), module.buffers(), strict=True):
            (averaged if self.average_buffers and own.is_floating_point() else copied).append((own, live))
        # lerp weighs its second operand, so momentum 0 gives the module itself, bit for bit
        torch._foreach_lerp_([own for own, _ in averaged], [live for _, live in averaged], 1 - self.momentum)
        copy_all(copied)


@torch.no_grad()
def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy the second tensor of every pair into the first, on a GPU with one kernel for each dtype."""
    of_dtype: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for target, source in pairs:
        of_dtype.setdefault(target.dtype, []).append((target, source))
    for same in of_dtype.values():  # of several dtypes at once, each tensor would be copied by itself
        torch._foreach_copy_([target for target, _ in same], [source for _, source in same])
