"""Which class is taken for which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import ArrayLike, Integers, as_arrays


class ClassCounts(NamedTuple):
    """Three numbers for every class: what scores need of a confusion matrix, whose size is the square of theirs."""

    images: Integers  # (C,) that are of it
    answers: Integers  # (C,) that say so
    hits: Integers  # (C,) both


def confusion(logits: ArrayLike, labels: ArrayLike, together: int = 1) -> Integers:
    """Counts (C, C): row = true class, column = predicted class; so many neighbors `together` count as one class."""
    scores, truth = as_arrays(logits, labels)
    return count_pairs(truth // together, scores.argmax(axis=1) // together, -(-scores.shape[1] // together))


def count_pairs(truth: Integers, predicted: Integers, num_classes: int) -> Integers:
    """How often each (true, predicted) pair occurs."""
    flat = np.bincount(truth * num_classes + predicted, minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).astype(np.int64, copy=False)


def count_classes(truth: Integers, predicted: Integers, num_classes: int) -> ClassCounts:
    """How often each class occurs, is named, and is named where it occurs."""
    parts = (truth, predicted, truth[truth == predicted])
    return ClassCounts(*(np.bincount(part, minlength=num_classes) for part in parts))
