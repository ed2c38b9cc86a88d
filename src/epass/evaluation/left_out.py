"""What a few labels say about an error, or about which of two models is better, with the doubt that is left."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import ArrayLike, as_arrays
from .bootstrap import NORMAL_QUANTILE


class Estimate(NamedTuple):
    """A share, or the difference of two, and its 95 % interval."""

    value: float
    low: float
    high: float
    labels: int  # that say so


def mistakes(logits: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """(N,) which labels are missed by the logits (N, C), of those whose row is not NaN: it was never asked for."""
    rows = np.asarray(logits, dtype=np.float64)
    asked = ~np.isnan(rows).any(axis=1)
    scores, truth = as_arrays(rows[asked], np.asarray(labels)[asked])
    wrong: NDArray[np.bool_] = scores.argmax(axis=1) != truth
    return wrong


def estimate_error(wrong: NDArray[np.bool_]) -> Estimate:
    """The share of mistakes with Wilson's interval, which is sound for few labels and for none that is missed."""
    count, share, z = len(wrong), float(wrong.mean()), NORMAL_QUANTILE
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Estimate(share, max(0.0, middle - reach), min(1.0, middle + reach), count)


def estimate_gap(wrong: NDArray[np.bool_], other: NDArray[np.bool_]) -> Estimate:
    """By how much the share of mistakes on the same labels is higher than another's.

    Only labels that one of the two misses tell them apart. The interval is Wald's with half a label added to each of
    the four cases (Agresti and Min, 2005), without which a few labels that all say the same would leave no doubt.
    """
    count = len(wrong)
    lost, won = int((wrong & ~other).sum()), int((other & ~wrong).sum())
    middle, total = (lost - won) / (count + 2), count + 2
    reach = NORMAL_QUANTILE * math.sqrt((lost + won + 1) / total - middle**2) / math.sqrt(total)
    return Estimate((lost - won) / count, max(-1.0, middle - reach), min(1.0, middle + reach), count)
