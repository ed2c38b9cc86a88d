"""Memory banks of past samples. Buffers only: they are checkpointed, moved and shared across ranks for free."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import gather_rows


class Queue(nn.Module):
    """The last `size` rows pushed, one float buffer per named field: `Queue(2560, embedding=(64,), probs=(10,))`.

    `overrun="skip"` is the published ring: rows that do not fit before the end are dropped, yet counted.
    """

    pushed: Tensor

    def __init__(self, size: int, *, overrun: Literal["wrap", "skip"] = "wrap", **fields: tuple[int, ...]) -> None:
        super().__init__()
        one_of("overrun", overrun, ("wrap", "skip"))
        self.size, self.overrun, self.fields = size, overrun, tuple(fields)
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))
        for name, shape in fields.items():
            self.register_buffer(name, torch.zeros(size, *shape))

    def __getitem__(self, field: str) -> Tensor:
        return self.get_buffer(field)

    @torch.no_grad()
    def push(self, **rows: Tensor) -> None:
        """Append the rows of all ranks, in the order of the global batch."""
        assert set(rows) == set(self.fields)
        gathered = {name: gather_rows(value) for name, value in rows.items()}
        count = len(next(iter(gathered.values())))
        slot = torch.arange(self.size, device=self.pushed.device)
        offset = slot - self.pushed % self.size  # of each slot from the next one to write
        if self.overrun == "wrap":
            offset = offset + (count - 1 - offset) // self.size * self.size  # the last of the rows that land here
        fresh = (offset >= 0) & (offset < count)
        for name, value in gathered.items():
            old = self[name]
            new = value.to(old.dtype)[offset.clamp(0, count - 1)]
            old.copy_(torch.where(fresh.view(-1, *[1] * (old.ndim - 1)), new, old))
        self.pushed.add_(count)


class Table(nn.Module):
    """One row per sample of a data set, one float buffer per named field: `Table(40, embedding=(128,), label=())`."""

    def __init__(self, rows: int, **fields: tuple[int, ...]) -> None:
        super().__init__()
        self.rows, self.fields = rows, tuple(fields)
        for name, shape in fields.items():
            self.register_buffer(name, torch.zeros(rows, *shape))

    def __getitem__(self, field: str) -> Tensor:
        return self.get_buffer(field)

    @torch.no_grad()
    def write(self, index: Tensor, **values: Tensor) -> None:
        """Set rows at `index`; where an index repeats, its last occurrence wins, on every device."""
        index = gather_rows(index)
        order = torch.arange(len(index), device=index.device)
        last = index.new_full((self.rows,), -1).scatter_reduce(0, index, order, "amax")
        for name, value in values.items():
            old = self[name]
            new = gather_rows(value).to(old.dtype)[last.clamp(min=0)]
            old.copy_(torch.where((last >= 0).view(-1, *[1] * (old.ndim - 1)), new, old))


class LastClass(nn.Module):
    """The class that each sample of a data set was last given, and how many samples each class has."""

    classes: Tensor  # (rows,) int64, the last class of every sample; `num_classes` stands for none yet
    counts: Tensor  # (num_classes + 1,) int64, the samples of every class and, at the end, those without one

    def __init__(self, rows: int, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("classes", torch.full((rows,), num_classes))
        self.register_buffer("counts", torch.tensor([*[0] * num_classes, rows]))

    @torch.no_grad()
    def write(self, index: Tensor, classes: Tensor, mask: Tensor) -> None:
        """Give the samples at `index` their `classes` where `mask` is not 0; where one repeats, the last such counts.

        The work does not depend on the number of samples: counts move with the samples that change their class.
        """
        index, classes, given = gather_rows(index), gather_rows(classes), gather_rows(mask) > 0
        order = torch.arange(len(index), device=index.device)
        last = torch.where((index[:, None] == index) & given, order, -1).amax(1)  # that gives this sample a class
        old = self.classes[index]
        new = torch.where(last >= 0, classes[last.clamp(min=0)], old)
        once = (last == order).long()
        self.counts.scatter_add_(0, new, once)
        self.counts.scatter_add_(0, old, -once)
        self.classes.scatter_(0, index, new)  # a sample that repeats gets the same class each time
