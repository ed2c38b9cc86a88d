"""Which images might be copies of each other: short fingerprints, and a search that does not compare all pairs.

A fingerprint is the coarse structure of an image: the lowest frequencies of its gray version, without the mean and
scaled to unit length, so that neither brightness nor contrast changes it, and a shift by a pixel changes it little. To
find close ones, fingerprints are sorted by the signs of random projections, several times with other projections, and
each is compared with those that follow it: close ones share the first signs and so stand near each other in one of the
orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

SIDE = 32  # of the thumbnails that are compared pixel by pixel
COARSE = 16  # of the gray version whose frequencies are taken
FREQUENCIES = 6  # vertical and horizontal ones together, at most: 27 numbers
CLOSE = 0.9  # cosine from which two fingerprints are candidates: of copies shifted by one of 32 pixels, 99 % are
ORDERS, SIGNS, WINDOW = 24, 24, 16
_CHUNK = 4096  # images per chunk: bounds the extra memory of a pass over a large set


class Candidates(NamedTuple):
    """Pairs of positions with first < second."""

    first: Tensor  # (P,) int64
    second: Tensor  # (P,) int64
    mirrored: Tensor  # (P,) bool: the first resembles the mirrored second


def chunks(images: Tensor, size: int) -> Iterator[Tensor]:
    """Consecutive parts of a batch."""
    for start in range(0, len(images), size):
        yield images[start : start + size]


def thumbnails(pixels: Tensor) -> Tensor:
    """Uint8 (N, C, H, W) with sides of at most 32 pixels; smaller images as they are."""
    size = min(pixels.shape[2], SIDE), min(pixels.shape[3], SIDE)
    if pixels.shape[2:] == size:
        return pixels
    return torch.cat([_scale(chunk.float(), size).round().clamp(0, 255).byte() for chunk in chunks(pixels, _CHUNK)])


def fingerprints(images: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors (N, D) for uint8 (N, C, H, W) images, and the signs (D,) that mirror an image's vector."""
    size = min(images.shape[2], COARSE), min(images.shape[3], COARSE)
    rows, columns = (_cosines(length) for length in size)
    vertical, horizontal = torch.meshgrid(torch.arange(len(rows)), torch.arange(len(columns)), indexing="ij")
    kept = (vertical + horizontal > 0) & (vertical + horizontal <= FREQUENCIES)
    parts = []
    for chunk in chunks(images, _CHUNK):
        gray = _scale(chunk.float().mean(1, keepdim=True), size)[:, 0]
        parts.append((rows @ gray @ columns.T)[:, kept])
    waves = torch.cat(parts)
    # Photos vary most in the lowest frequencies: half of that is taken back, all of it would make shifts look large.
    waves = waves / waves.std(0, correction=0).clamp(min=1e-3).sqrt()
    return F.normalize(waves, dim=1), 1.0 - 2.0 * (horizontal[kept] % 2)


def candidates(images: Tensor, *, mirror: bool) -> Candidates:
    """Pairs of images whose fingerprints are close, also after mirroring one of the two where `mirror` asks for it."""
    vectors, signs = fingerprints(images)
    count = len(vectors)
    if mirror:
        vectors = torch.cat([vectors, vectors * signs])
    keys = [torch.empty(0, dtype=torch.int64)]
    for low, high in _close(vectors):
        first, second = low % count, high % count
        mirrored = (low >= count) != (high >= count)
        # both ways to write a pair become one, so that it is kept once
        pair = torch.minimum(first, second) * count + torch.maximum(first, second)
        keys.append((2 * pair + mirrored)[first != second])
    found = torch.from_numpy(np.unique(torch.cat(keys).numpy()))
    pair = found // 2
    return Candidates(pair // count, pair % count, found % 2 == 1)


def _close(vectors: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)  # a constant: a check finds the same every time
    powers = 2 ** torch.arange(SIGNS)
    for _ in range(ORDERS):
        planes = torch.randn(vectors.shape[1], SIGNS, generator=random)
        order = ((vectors @ planes > 0) * powers).sum(1).argsort(stable=True)
        arranged = vectors[order]
        for step in range(1, min(WINDOW, len(vectors) - 1) + 1):
            cosine = (arranged[:-step] * arranged[step:]).sum(1)
            here = torch.nonzero(cosine > CLOSE).flatten()
            yield order[here], order[here + step]


def _cosines(length: int) -> Tensor:
    """The rows of the discrete cosine transform for the frequencies in use."""
    frequency = torch.arange(min(FREQUENCIES + 1, length))[:, None]
    return torch.cos(torch.pi * frequency * (torch.arange(length) + 0.5) / length)


def _scale(images: Tensor, size: tuple[int, int]) -> Tensor:
    if images.shape[2:] == size:
        return images
    return F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
