"""How far a difference between two trained models could lie elsewhere, had seeds and test images been others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
REPLICATES = 10_000
NORMAL_QUANTILE = 1.96
# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom; the last one serves all above.
T_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def paired_interval(gaps: NDArray[np.float64], on_images: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of a mean difference in error, by a bootstrap that resamples seeds and test images.

    A replicate is the observed mean plus what it changes by when as many seeds are drawn with replacement, plus what it
    changes by when as many test images are. Few seeds drawn with replacement vary less than new seeds would, and their
    spread is itself uncertain: their part is widened by `√(n / (n - 1)) · t / 1.96`. The same input gives the same
    interval.

    Args:
        gaps: (S,) difference in error of each seed. One seed says nothing about others, so only images are drawn.
        on_images: (N,) difference at each test image, -1 to 1, mean over the seeds; empty leaves the images out.
    """
    generator = np.random.default_rng(0)
    changes = np.zeros(REPLICATES)
    if len(gaps) > 1:
        drawn = gaps[generator.integers(len(gaps), size=(REPLICATES, len(gaps)))].mean(axis=1)
        changes += widening(len(gaps)) * (drawn - gaps.mean())
    if len(on_images):
        # images with the same difference are alike, so how many of each kind are drawn is all that matters
        kinds, counts = np.unique(on_images, return_counts=True)
        drawn = generator.multinomial(len(on_images), counts / len(on_images), size=REPLICATES) @ kinds
        changes += drawn / len(on_images) - on_images.mean()
    ends = gaps.mean() + np.quantile(changes, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = np.round(ends, 9)  # an end that is 0 must not miss it by a rounding error
    return float(low), float(high)


def widening(num_seeds: int) -> float:
    """By how much the spread of resampled seeds falls short of that of new ones."""
    t = T_QUANTILES[min(num_seeds - 1, len(T_QUANTILES)) - 1]
    return float(np.sqrt(num_seeds / (num_seeds - 1)) * t / NORMAL_QUANTILE)
