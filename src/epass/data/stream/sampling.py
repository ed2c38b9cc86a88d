"""Which samples a step sees: a pure function of (seed, step), so a resumed run needs no sampler state."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ...seeds import fold

Order = Literal["seed", "reference"]
_BATCHES = 64  # what a block of passes holds at least: few samples would otherwise mean a copy to the device per step


class Shuffle:
    """An endless stream of shuffled passes over `count` samples; `take(step)` is its step-th batch.

    A pass visits every sample once; a batch may span passes, so it repeats samples only where one ends and the next
    begins. With the order "reference" a pass is shuffled by its number alone, as in the reference code, where every
    run seed sees the samples in the same order.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, device: torch.device | str, order: Order = "seed"
    ) -> None:
        assert min(count, batch_size) > 0
        self.count, self.batch_size, self.seed, self.device, self.order = count, batch_size, seed, device, order
        self._passes = -(-_BATCHES * batch_size // count)  # per block
        self._blocks: dict[int, Tensor] = {}

    def take(self, step: int) -> Tensor:
        """(batch_size,) int64 positions."""
        size = self._passes * self.count
        number, start = divmod(step * self.batch_size, size)
        head = self._block(number)[start : start + self.batch_size]
        if len(head) == self.batch_size:
            return head
        return torch.cat([head, self._block(number + 1)[: self.batch_size - len(head)]])

    def _block(self, number: int) -> Tensor:
        """Several whole passes; the last two asked for are kept, since a batch may span two."""
        if number not in self._blocks:
            passes = range(number * self._passes, (number + 1) * self._passes)
            block = torch.cat([self._permutation(position) for position in passes]).to(self.device)
            latest = dict(list(self._blocks.items())[-1:])
            self._blocks = {**latest, number: block}
        return self._blocks[number]

    def _permutation(self, position: int) -> Tensor:
        # Drawn on the CPU, so that every kind of device sees the same order.
        seed = position if self.order == "reference" else fold(self.seed, position)
        return torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
