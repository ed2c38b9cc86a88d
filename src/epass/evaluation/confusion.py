"""Which class is taken for which."""

from __future__ import annotations

import numpy as np

from .arrays import ArrayLike, Integers, as_arrays


def confusion(logits: ArrayLike, labels: ArrayLike) -> Integers:
    """Counts (C, C): row = true class, column = predicted class."""
    scores, truth = as_arrays(logits, labels)
    return count_pairs(truth, scores.argmax(axis=1), scores.shape[1])


def count_pairs(truth: Integers, predicted: Integers, num_classes: int) -> Integers:
    """How often each (true, predicted) pair occurs."""
    flat = np.bincount(truth * num_classes + predicted, minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).astype(np.int64)
