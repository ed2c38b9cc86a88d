"""Views of vectors: one of those that are stored with an example, or noise where there is only the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from epass.errors import InputError

WEAK, STRONG = 0.5, 2.0  # of the noise and of the dropout that are set: their geometric mean


class StoredWeak:
    """One of the weak views of (N, 1 + 2 * views, D) vectors: those behind the plain one.

    Args:
        views: How many weak views, and how many strong ones, are stored with every example.
    """

    after = 0  # groups of `views` views between the plain one and these

    def __init__(self, *, views: int) -> None:
        if views < 1:
            raise InputError(f"{views} stored views are too few: embed at least one weak and one strong view.")
        self.first, self.views = 1 + self.after * views, views

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The position of the view of each example."""
        return (torch.randint(0, self.views, (count,), generator=generator, device=generator.device) + self.first,)

    def apply(self, pixels: Tensor, draws: tuple[Tensor, ...]) -> Tensor:
        """The drawn view, (N, D)."""
        (place,) = draws
        return pixels.gather(1, place[:, None, None].expand(-1, 1, pixels.shape[2]))[:, 0]


class StoredStrong(StoredWeak):
    """One of the strong views: those behind the weak ones."""

    after = 1


class WeakNoise:
    """The plain view of (N, 1, D) vectors with noise, and with some numbers replaced by their mean.

    Args:
        center: The mean of each of the D numbers.
        spread: Their standard deviations.
        noise: Standard deviation of the noise over that of the number.
        dropout: The share of numbers that are replaced.
    """

    strength = WEAK

    def __init__(
        self, *, center: Sequence[float], spread: Sequence[float], noise: float = 0.5, dropout: float = 0.2
    ) -> None:
        if not 0 <= dropout * STRONG < 1:
            raise InputError(f"augment.dropout is a share below {1 / STRONG:g}, not {dropout}.")
        self.center, self.spread = tuple(center), tuple(spread)
        self.noise, self.dropout = noise * self.strength, dropout * self.strength

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The noise, and which numbers are replaced: (N, D) each."""
        shape, device = (count, len(self.center)), generator.device
        noise = torch.randn(shape, generator=generator, device=device)
        return noise, torch.rand(shape, generator=generator, device=device) < self.dropout

    def apply(self, pixels: Tensor, draws: tuple[Tensor, ...]) -> Tensor:
        """The drawn view, (N, D)."""
        noise, dropped = draws
        center, spread = _statistics(self.center, self.spread, pixels.device)
        return torch.where(dropped, center, pixels[:, 0].float() + self.noise * spread * noise)


class StrongNoise(WeakNoise):
    """The same with four times as much of both."""

    strength = STRONG


@lru_cache
def _statistics(center: tuple[float, ...], spread: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """On the device; kept, because a copy to it makes the host wait."""
    return torch.tensor(center, device=device), torch.tensor(spread, device=device)
