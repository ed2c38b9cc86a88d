"""Vectors instead of pixels: what a network, or anything else, made of images, texts, sounds or rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .images import ImageSource

_SIDE = 8  # of a vector as a picture
_CHUNK = 4096  # vectors at a time: statistics need more digits than the vectors have


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors that fit into memory, one or several views of every example; the first view is the plain one.

    They stand where images do: `take` gives all views of some examples, of which a policy draws one, and `chunks` gives
    the plain view, which is what a network is tested on.
    """

    views: Tensor  # (N, V, D), floats
    labels: Tensor  # (N,) int64, -1 = unknown
    pictures: ImageSource | None = None  # what the vectors were made of, for people to look at
    places: Tensor | None = None  # (N,) positions in `pictures`

    def __len__(self) -> int:
        return self.views.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.views.shape[2],)

    @property
    def pixels(self) -> Tensor:
        """The plain view of all, (N, D)."""
        return self.views[:, 0]

    def take(self, index: Tensor) -> Tensor:
        """All views of the examples at `index`: (n, V, D)."""
        return self.views.index_select(0, index)

    def look(self, index: Tensor) -> Tensor:
        """The images at `index`, uint8 (n, C, H, W), or their first numbers as gray pixels if there are no images."""
        if self.pictures is not None and self.places is not None:
            return self.pictures.take(self.places[index.to(self.places.device)])
        numbers = torch.nn.functional.pad(self.pixels[index].float(), (0, _SIDE**2))[:, : _SIDE**2]
        low, high = numbers.amin(1, keepdim=True), numbers.amax(1, keepdim=True)
        levels = 255 * (numbers - low) / (high - low).clamp(min=1e-12)
        return levels.round().byte().view(-1, 1, _SIDE, _SIDE)

    def chunks(self, rows: int) -> Iterable[Tensor]:
        return torch.split(self.pixels, rows)

    def select(self, index: Tensor) -> Vectors:
        places = None if self.places is None else self.places[index.to(self.places.device)]
        return Vectors(self.take(index), self.labels.index_select(0, index), self.pictures, places)

    def labeled(self, labels: Tensor) -> Vectors:
        return Vectors(self.views, labels, self.pictures, self.places)

    def joined(self, other: ImageSource) -> Vectors:
        if not isinstance(other, Vectors) or other.views.shape[1:] != self.views.shape[1:]:
            raise InputError(f"Vectors of {self.shape[0]} numbers cannot be joined with examples of another shape.")
        labels = torch.cat([self.labels, other.labels])
        return Vectors(torch.cat([self.views, other.views]), labels)

    def to(self, device: torch.device | str) -> Vectors:
        return Vectors(self.views.to(device), self.labels.to(device), self.pictures, self.places)


def views_of_vectors(stored: int, mean: Sequence[float], std: Sequence[float]) -> dict[str, object]:
    """The `Dataset.augment` of vectors with so many `stored` weak and strong views; without any, noise makes them."""
    if stored:
        return {"weak": "stored-weak", "strong": "stored-strong", "crop": "stored-strong", "views": stored}
    noisy = {"weak": "weak-noise", "strong": "strong-noise", "crop": "strong-noise"}
    return {**noisy, "center": mean, "spread": std}


def vector_statistics(vectors: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each of the D numbers of (N, D) vectors; one that never varies is not scaled."""
    total = torch.zeros(vectors.shape[1], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for chunk in torch.split(vectors, _CHUNK):
        total += chunk.double().sum(0).cpu()
    mean = total / len(vectors)
    for chunk in torch.split(vectors, _CHUNK):
        squares += (chunk.double().cpu() - mean).square().sum(0)
    std = (squares / len(vectors)).sqrt()
    std = torch.where(std > 1e-6 * mean.abs().clamp(min=1e-6), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
