"""How alike two images are, pixel by pixel, and how alike two different images of a data set get by chance.

Likeness is the lowest of three correlations of the gray images: of the pixels, of their horizontal differences and of
their vertical ones. The pixels alone would call any two ships on a horizon the same picture. It knows no brightness and
no contrast, and where the image is not tiny it allows for a shift by one pixel and for the noise of compression.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from .fingerprint import chunks

ALIKE = 0.8  # of copies of CIFAR images at JPEG quality 40, 99.9 % reach it
FEW = 100  # images: among fewer, a few copies are a large part of all pairs and would pass for chance
TINY = 16  # pixels: below this side a shift by one of them is another image
NOISE = 1.0  # variance of gray levels that means nothing: a clear sky is not compared grain by grain
_PAIRS = 6000  # of images drawn to see how alike different ones are
_CHUNK = 512  # pairs per chunk: small enough for the caches


def likeness(first: Tensor, second: Tensor) -> Tensor:
    """(P,) numbers of at most 1 for two uint8 (P, C, H, W) batches."""
    if not len(first):
        return torch.empty(0)
    pairs = zip(chunks(first, _CHUNK), chunks(second, _CHUNK), strict=True)
    return torch.cat([_likeness(one.float().mean(1), other.float().mean(1)) for one, other in pairs])


def threshold(images: Tensor) -> float:
    """The likeness from which two of these images count as near duplicates.

    Chest X-rays or digits are all alike, so a fixed number would call many of them copies. Random pairs of images show
    how alike different ones are; assuming that the upper half of this distribution is a Gaussian (in Fisher's z, the
    scale on which correlations spread evenly), the threshold lies one deviation above what the most alike of all pairs
    reaches by chance.
    """
    count = len(images)
    if count < FEW:
        return ALIKE
    random = torch.Generator().manual_seed(0)  # a constant: a check finds the same every time
    first = torch.randint(count, (_PAIRS,), generator=random)
    second = (first + torch.randint(1, count, (_PAIRS,), generator=random)) % count
    chance = torch.atanh(likeness(images[first], images[second]).clamp(-0.999, 0.999))
    middle, high = chance.quantile(torch.tensor([0.5, 0.99])).tolist()
    deviation = (high - middle) / 2.326  # 99 % of a Gaussian lie below the mean and 2.326 deviations
    extreme = math.sqrt(2 * math.log(max(2.0, count * count / 2)))  # of that many draws, in deviations
    return max(ALIKE, math.tanh(middle + deviation * (extreme + 1)))


def _likeness(first: Tensor, second: Tensor) -> Tensor:
    """Of float gray (P, H, W) images."""
    if min(first.shape[1:]) < TINY:
        return _correlations(first, second)
    first, second = (F.avg_pool2d(images[:, None], 2, stride=1)[:, 0] for images in (first, second))
    height, width = first.shape[1] - 2, first.shape[2] - 2
    inner = first[:, 1:-1, 1:-1].contiguous()
    shifts = list(product(range(3), repeat=2))
    aligned = _centered(inner)
    agreement = [_correlation(aligned, _centered(second[:, y : y + height, x : x + width])) for y, x in shifts]
    best = torch.stack(agreement).argmax(0)
    y, x = torch.tensor(shifts)[best].unbind(1)
    rows, columns = y[:, None] + torch.arange(height), x[:, None] + torch.arange(width)
    pairs = torch.arange(len(first))[:, None, None]
    return _correlations(inner, second[pairs, rows[:, :, None], columns[:, None, :]])


def _correlations(first: Tensor, second: Tensor) -> Tensor:
    """The lowest of the correlations of pixels, horizontal and vertical differences."""
    pixels = _correlation(_centered(first), _centered(second))
    across, down = (_correlation(first.diff(dim=side), second.diff(dim=side)) for side in (2, 1))
    return torch.stack([pixels, across, down]).amin(0)


def _centered(images: Tensor) -> Tensor:
    return images - images.mean((1, 2), keepdim=True)


def _correlation(first: Tensor, second: Tensor) -> Tensor:
    one, two = first.flatten(1), second.flatten(1)
    noise = NOISE * one.shape[1]
    result: Tensor = torch.linalg.vecdot(one, two) + noise
    result /= ((torch.linalg.vecdot(one, one) + noise) * (torch.linalg.vecdot(two, two) + noise)).sqrt()
    return result
