"""What a few labels say about an error, or about which of two models is better, with the doubt that is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .arrays import ArrayLike, as_arrays
from .bootstrap import LEVEL, NORMAL_QUANTILE

Key = TypeVar("Key")


class Estimate(NamedTuple):
    """A share, or the difference of two, and its 95 % interval."""

    value: float
    low: float
    high: float
    labels: int  # that say so


def mistakes(logits: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """(N,) which labels are missed by the logits (N, C), of those whose row is not NaN: it was never asked for."""
    rows = np.asarray(logits, dtype=np.float64)
    asked = np.flatnonzero(~np.isnan(rows).any(axis=1))
    if not len(asked):
        return np.zeros(0, dtype=bool)
    scores, truth = as_arrays(rows[asked], np.asarray(labels)[asked])
    wrong: NDArray[np.bool_] = scores.argmax(axis=1) != truth
    return wrong


def estimate_error(wrong: NDArray[np.bool_]) -> Estimate:
    """The share of mistakes with Wilson's interval, which is sound for few labels and for none that is missed."""
    count, share, z = len(wrong), float(wrong.mean()), NORMAL_QUANTILE
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Estimate(share, max(0.0, middle - reach), min(1.0, middle + reach), count)


def estimate_gap(wrong: NDArray[np.bool_], other: NDArray[np.bool_], gaps: int = 1) -> Estimate:
    """By how much the share of mistakes on the same labels is higher than another's.

    Only labels that one of the two misses tell them apart. The interval is Wald's with half a label added to each of
    the four cases (Agresti and Min, 2005), without which a few labels that all say the same would leave no doubt. It is
    as wide as it takes to hold for all of so many `gaps` at once (Bonferroni).
    """
    count = len(wrong)
    lost, won = int((wrong & ~other).sum()), int((other & ~wrong).sum())
    middle, total = (lost - won) / (count + 2), count + 2
    quantile = NORMAL_QUANTILE if gaps == 1 else NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * gaps))
    reach = quantile * math.sqrt((lost + won + 1) / total - middle**2) / math.sqrt(total)
    return Estimate((lost - won) / count, max(-1.0, middle - reach), min(1.0, middle + reach), count)


def choose(wrong: Mapping[Key, NDArray[np.bool_]], usual: Key | None) -> tuple[Key, bool]:
    """Which of several to use, by the labels each misses, and whether that is more than luck.

    It is the `usual` one unless another is better by more than luck: among many, some always have luck with few labels.
    Where none is usual, it is the one that misses the fewest, the first of equals.
    """
    lowest = min(wrong, key=lambda key: wrong[key].mean())
    start = lowest if usual is None else usual
    better = [key for key in wrong if estimate_gap(wrong[start], wrong[key], max(1, len(wrong) - 1)).low > 0]
    return min(better, key=lambda key: wrong[key].mean(), default=start), bool(better)
