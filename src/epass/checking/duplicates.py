"""The same image twice: exactly, nearly or mirrored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..data import ImageSource, Split
from .fingerprint import Candidates, candidates, chunks, thumbnails
from .likeness import likeness, threshold

Kind = Literal["exact", "near", "mirrored"]
TOGETHER = 4096  # pairs whose pixels are in memory at the same time
FLAT = 4.0  # gray levels: an image that varies less has no structure to compare


class Pair(NamedTuple):
    """Two images that are nearly the same."""

    first: int
    second: int
    kind: Kind
    likeness: float


def digests(images: ImageSource) -> list[bytes]:
    """A fingerprint of every image's bytes: equal for equal pixels, and only for these."""
    rows = (row for chunk in images.chunks(512) for row in chunk.contiguous().numpy())
    return [blake2b(row, digest_size=16).digest() for row in rows]


def exact_groups(prints: Sequence[bytes]) -> list[list[int]]:
    """The positions of images with the same digest, for every digest that occurs; in the order of the first ones."""
    groups: dict[bytes, list[int]] = {}
    for position, digest in enumerate(prints):
        groups.setdefault(digest, []).append(position)
    return list(groups.values())


def leaks(split: Split, prints: Sequence[bytes] | None = None) -> list[tuple[int, int]]:
    """Every test image that is a labeled one too, pixel by pixel: (position in test, first position in labeled).

    Whoever has the digests of the labeled images, for which all of them are read, gives these `prints`.
    """
    labeled: dict[bytes, int] = {}
    for position, digest in enumerate(digests(split.labeled) if prints is None else prints):
        labeled.setdefault(digest, position)
    return [(position, labeled[digest]) for position, digest in enumerate(digests(split.test)) if digest in labeled]


def contradictions(prints: Sequence[bytes], labels: Tensor) -> list[list[int]]:
    """The positions of labeled images that have the same digest and different labels; by group."""
    return [group for group in exact_groups(prints) if len(group) > 1 and len(set(labels[group].tolist())) > 1]


def near_pairs(pixels: Tensor, *, mirror: bool) -> tuple[list[Pair], float]:
    """Pairs among different images that are nearly the same, the most alike first, and the likeness that was asked for.

    Args:
        pixels: Uint8 (N, C, H, W) without exact duplicates, which would be compared for nothing.
        mirror: An image that is the mirror image of another one counts as well.
    """
    images = thumbnails(pixels)
    structured = torch.nonzero(_spread(images) >= FLAT).flatten()
    images = images[structured]
    if len(images) < 2:
        return [], 1.0
    found, least = candidates(images, mirror=mirror), threshold(images)
    alike = torch.cat([torch.empty(0), *_likeness(images, found)])
    best: dict[tuple[int, int], Pair] = {}
    for number in alike.argsort(descending=True, stable=True).tolist():
        if alike[number] < least:
            break
        first, other = (int(structured[side[number]]) for side in (found.first, found.second))
        kind: Kind = "mirrored" if found.mirrored[number] else "near"
        # a symmetric image resembles its copy both ways: the better one comes first
        best.setdefault((first, other), Pair(first, other, kind, min(1.0, float(alike[number]))))
    return list(best.values()), least


def _likeness(images: Tensor, found: Candidates) -> Iterator[Tensor]:
    """Of the candidates, some at a time: where images are alike, each is in many pairs."""
    for start in range(0, len(found.first), TOGETHER):
        first, second, mirrored = (part[start : start + TOGETHER] for part in found)
        other = images[second]
        yield likeness(images[first], torch.where(mirrored[:, None, None, None], other.flip(3), other))


def connected(count: int, links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The positions 0 to count - 1 that are linked, directly or through others: groups of two or more, ascending."""
    leader = list(range(count))

    def find(position: int) -> int:
        while leader[position] != position:
            leader[position] = leader[leader[position]]
            position = leader[position]
        return position

    for one, other in links:
        first, second = sorted((find(one), find(other)))
        leader[second] = first
    groups: dict[int, list[int]] = {}
    for position in range(count):
        groups.setdefault(find(position), []).append(position)
    return [group for group in groups.values() if len(group) > 1]


def _spread(images: Tensor) -> Tensor:
    """(N,) standard deviation of the gray levels."""
    parts = [chunk.float().mean(1).flatten(1).std(1, correction=0) for chunk in chunks(images, 4096)]
    return torch.cat([torch.empty(0), *parts])
