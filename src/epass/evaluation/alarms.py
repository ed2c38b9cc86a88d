"""Results that nobody should take for what they look like, each told in one sentence."""

from __future__ import annotations

import math

import numpy as np

from .arrays import ArrayLike, Integers
from .confusion import count_pairs

HARDLY, TIMES = 0.1, 3  # above chance: less than so much of the way to all right, and less than so many times chance
DEVIATIONS = 2  # of the luck of guessing on so many test images


def find_alarms(logits: ArrayLike, labels: ArrayLike, who: str = "this model") -> list[str]:
    """What has to be said about the answers (N, C) to images with these labels (N,); nothing where all is well."""
    predicted = np.asarray(logits).argmax(axis=1)
    pairs, images = count_pairs(np.asarray(labels), predicted, logits.shape[1]), len(predicted)
    found = []
    if is_near_chance(pairs):
        right, often = np.diag(pairs).sum(), pairs.sum(axis=1).max()
        found.append(
            f"The result of {who} is hardly better than guessing: {100 * right / images:.1f} % of {images:,} test "
            f"images are right, and always naming the most frequent class gives {100 * often / images:.1f} %. More "
            "steps, more labels or another learning rate (plan.lr) may help, and 'epass check' looks for mistakes in "
            "the data."
        )
    return found


def is_near_chance(pairs: Integers) -> bool:
    """Whether (C, C) counts of (true, predicted) classes are hardly better than always naming the most frequent class.

    Rare classes that are recognized count, too: the mean over classes must be hardly better than that of a guess.
    """
    images = pairs.sum(axis=1)
    there = images > 0
    if there.sum() < 2:  # with one class to be right about, nobody can do better
        return False
    sizes, right = images[there], np.diag(pairs)[there]
    often, even = sizes.max() / sizes.sum(), 1 / len(sizes)
    luck = math.sqrt(often * (1 - often) / sizes.sum())
    luck_of_mean = math.sqrt(even * (1 - even) * (1 / sizes).sum()) / len(sizes)
    return _is_near(right.sum() / sizes.sum(), often, luck) and _is_near((right / sizes).mean(), even, luck_of_mean)


def _is_near(share: float, chance: float, luck: float) -> bool:
    hardly = min(HARDLY * (1 - chance), TIMES * chance)
    return bool(share < min(1.0, chance + max(hardly, DEVIATIONS * luck)))
