"""What a model said about labeled images, with what several scores need of it computed once."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .arrays import ArrayLike, Floats, Integers, as_arrays, log_softmax
from .calibration import Reliability, bin_by_confidence
from .confusion import ClassCounts, count_classes, count_pairs


class Outputs:
    """Logits (N, C) and labels (N,), checked, and their probabilities, ranks, confusion counts and calibration bins."""

    def __init__(self, logits: ArrayLike, labels: ArrayLike) -> None:
        self.logits, self.labels = as_arrays(logits, labels)
        self.num_classes = self.logits.shape[1]

    @cached_property
    def log_probs(self) -> Floats:
        """(N, C)."""
        return log_softmax(self.logits)

    @cached_property
    def probs(self) -> Floats:
        """(N, C)."""
        probs: Floats = np.exp(self.log_probs)
        return probs

    @cached_property
    def predicted(self) -> Integers:
        """(N,) the class with the highest logit, of equal ones the first."""
        predicted: Integers = self.logits.argmax(axis=1)
        return predicted

    @cached_property
    def ranks(self) -> Integers:
        """(N,) how many classes come before the true one; ties go to the lower class, as in argmax."""
        own = self.of_truth(self.logits)[:, None]
        tied_before = (self.logits == own) & (np.arange(self.num_classes) < self.labels[:, None])
        ranks: Integers = ((self.logits > own) | tied_before).sum(axis=1)
        return ranks

    @cached_property
    def pairs(self) -> Integers:
        """(C, C) how often each (true, predicted) pair of classes occurs."""
        return count_pairs(self.labels, self.predicted, self.num_classes)

    @cached_property
    def counts(self) -> ClassCounts:
        """The images, the answers and the right answers of every class."""
        return count_classes(self.labels, self.predicted, self.num_classes)

    @cached_property
    def bins(self) -> Reliability:
        """Accuracy against confidence in ten bins."""
        return bin_by_confidence(self.probs.max(axis=1), self.ranks == 0)

    def of_truth(self, values: Floats) -> Floats:
        """(N,) the entries of `values` (N, C) for the true classes."""
        return values[np.arange(len(self.labels)), self.labels]
