"""Which samples a step sees: a pure function of (seed, step), so a resumed run needs no sampler state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from ...seeds import fold

Order = Literal["seed", "reference"]
_BATCHES = 64  # what a block of passes holds at least: few samples would otherwise mean a copy to the device per step
_EPOCH = 1024  # steps between two new starts of the reference order: an epoch of every published configuration


class Shuffle:
    """An endless stream of shuffled passes over `count` samples; `take(step)` is its step-th batch.

    A pass visits every sample once; a batch may span passes, so it repeats samples only where one ends and the next
    begins. The order "reference" is that of the published code, the same for every run seed: the passes of an epoch are
    drawn one after another from a generator seeded with the number of the epoch, and its end cuts the last one short.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, device: torch.device | str, order: Order = "seed"
    ) -> None:
        assert min(count, batch_size) > 0
        self.count, self.batch_size, self.seed, self.device, self.order = count, batch_size, seed, device, order
        whole = -(-_BATCHES * batch_size // count) * count
        self._size = _EPOCH * batch_size if order == "reference" else whole  # of a block
        self._blocks: dict[int, Tensor] = {}

    def take(self, step: int) -> Tensor:
        """(batch_size,) int64 positions."""
        number, start = divmod(step * self.batch_size, self._size)
        head = self._block(number)[start : start + self.batch_size]
        if len(head) == self.batch_size:
            return head
        return torch.cat([head, self._block(number + 1)[: self.batch_size - len(head)]])

    def _block(self, number: int) -> Tensor:
        """Several passes; the last two blocks asked for are kept, since a batch may span two."""
        if number not in self._blocks:
            block = torch.cat(list(self._passes(number)))[: self._size].to(self.device)
            latest = dict(list(self._blocks.items())[-1:])
            self._blocks = {**latest, number: block}
        return self._blocks[number]

    def _passes(self, number: int) -> Iterator[Tensor]:
        """As many passes as a block takes. Drawn on the CPU, so that every kind of device sees the same order."""
        per_block = -(-self._size // self.count)
        generator = torch.Generator().manual_seed(number)
        for position in range(number * per_block, (number + 1) * per_block):
            if self.order == "seed":
                generator.manual_seed(fold(self.seed, position))
            yield torch.randperm(self.count, generator=generator)
