"""Mixtures of images and of their labels, and what goes with them: sharper guesses, and passes in chunks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..machine.distributed import gather_rows, rank, world_size
from .draws import permutation, uniform
from .statistics import statistics_kept

_LARGEST_ALPHA = 100  # beyond it every share is one half, more or less, and the table loses its digits


def sharpen(probs: Tensor, temperature: float) -> Tensor:
    """(N, C) class probabilities to the power of 1 / `temperature`, renormalized: 1 keeps them, 0 is the argmax."""
    return (probs.log() / temperature).softmax(1)  # the logarithm survives what a power would round to zero


def check_temperature(temperature: float) -> None:
    """Refuse what `sharpen` cannot use."""
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature is a number above 0, not {temperature}: 1 keeps a guess, 0.5 squares it.")


class SymmetricBeta(nn.Module):
    """Numbers of the distribution Beta(alpha, alpha), as a pure function of a seed.

    They are looked up in a table of quantiles. It needs the half below 0.5 only, the other one is its mirror image, and
    it holds (2x)^alpha instead of x: that takes the singularity at 0 out of the density of an alpha below 1. Up to an
    alpha of 2, straight lines between the entries then give six digits.
    """

    table: Tensor

    def __init__(self, alpha: float, *, entries: int = 2048) -> None:
        super().__init__()
        if not 0 < alpha <= _LARGEST_ALPHA:
            raise InputError(
                f"The alpha of a mixture is above 0 and at most {_LARGEST_ALPHA}, not {alpha}: near 0 images stay "
                "almost as they are, at 1 every share is equally likely, above 1 halves prevail."
            )
        self.alpha, self.entries = alpha, entries
        x = torch.linspace(0, 0.5, 32 * entries + 1, dtype=torch.float64)
        power = (2 * x) ** alpha  # x^(alpha - 1) dx is its differential, up to a constant
        rest = (1 - (x[1:] + x[:-1]) / 2) ** (alpha - 1)  # what remains of the density
        below = torch.cat([torch.zeros(1, dtype=torch.float64), (rest * power.diff()).cumsum(0)])
        below = below / below[-1]
        wanted = torch.linspace(0, 1, entries + 1, dtype=torch.float64)
        upper = torch.searchsorted(below, wanted, right=True).clamp(max=len(x) - 1)
        lower = upper - 1
        share = (wanted - below[lower]) / (below[upper] - below[lower])
        # Made from alpha alone, so there is nothing to save.
        self.register_buffer("table", torch.lerp(power[lower], power[upper], share).float(), persistent=False)

    def forward(self, seed: Tensor, *, salt: int) -> Tensor:
        """One number, which all processes share."""
        return self.quantile(uniform(seed, salt=salt))

    def quantile(self, below: Tensor) -> Tensor:
        """The numbers that have the shares `below` of the distribution below them, element by element."""
        position = 2 * torch.minimum(below, 1 - below) * self.entries
        lower = position.floor().clamp(max=self.entries - 1)
        entry = lower.long()
        power = torch.lerp(torch.take(self.table, entry), torch.take(self.table, entry + 1), position - lower)
        x = power ** (1 / self.alpha) / 2
        return torch.where(below < 0.5, x, 1 - x)


class Mixture(nn.Module):
    """Every image of a batch, and its label, mixed with another one, which may be another process's.

    One share of Beta(alpha, alpha) for the whole batch and one random order of it: row i keeps at least half of itself,
    row order[i] gives the rest. Draws with the salts 0 and 1.
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.shares = SymmetricBeta(alpha)

    def forward(self, images: Tensor, targets: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Images (N, ...) and class probabilities (N, C) in, their mixtures out."""
        share = self.shares(seed, salt=0)
        share = torch.maximum(share, 1 - share)
        partner = permutation(seed, len(images), salt=1)[rank() :: world_size()]
        mixed, mixed_targets = (share * rows + (1 - share) * gather_rows(rows)[partner] for rows in (images, targets))
        return mixed, mixed_targets


def logits_in_chunks(net: nn.Module, images: Tensor, size: int) -> Tensor:
    """(N, C) logits of chunks of `size` images, each a pass of its own.

    BatchNorm normalizes every chunk by itself, and only the first one moves its running statistics.
    """
    first, *others = torch.split(images, size)
    logits: list[Tensor] = [net(first).logits]
    with statistics_kept(net):
        logits += [net(chunk).logits for chunk in others]
    return torch.cat(logits)
