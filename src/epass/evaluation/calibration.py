"""Does a confidence of 80 % mean right in 80 % of the cases?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import ArrayLike, Floats, Integers, as_arrays, log_softmax


class Reliability(NamedTuple):
    """Accuracy against confidence in equal-width, right-closed bins; NaN where a bin is empty."""

    edges: Floats  # (bins + 1,)
    counts: Integers  # (bins,)
    accuracy: Floats  # (bins,)
    confidence: Floats  # (bins,) mean over the bin
    ece: float  # expected calibration error: mean gap, weighted by counts
    mce: float  # maximum calibration error: widest gap


def reliability(logits: ArrayLike, labels: ArrayLike, bins: int = 10) -> Reliability:
    """The reliability of the most probable class."""
    scores, truth = as_arrays(logits, labels)
    return bin_by_confidence(np.exp(log_softmax(scores)).max(axis=1), scores.argmax(axis=1) == truth, bins)


def bin_by_confidence(confidence: Floats, correct: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Reliability from confidences (N,) in [0, 1] and whether each answer was right."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    # side="left" closes the bins on the right; confidence 0 falls before the first one and is dropped
    position = np.searchsorted(edges, confidence, side="left") - 1
    inside = position >= 0
    counts = np.bincount(position[inside], minlength=bins).astype(np.int64)
    with np.errstate(invalid="ignore"):  # an empty bin has no mean
        accuracy = np.bincount(position[inside], weights=correct[inside], minlength=bins) / counts
        mean_confidence = np.bincount(position[inside], weights=confidence[inside], minlength=bins) / counts
    gaps = np.where(counts > 0, np.abs(accuracy - mean_confidence), 0.0)
    ece = float((counts * gaps).sum() / len(confidence))
    return Reliability(edges, counts, accuracy, mean_confidence, ece, float(gaps.max()))
