"""What other people would do with the same vectors and labels: the rows that a semi-supervised method has to beat."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Labels = NDArray[np.int64]
NEIGHBORS, GRAPH_NEIGHBORS = 5, 10  # of k nearest neighbors, and of the graph on which labels spread
MOST_SPREAD = 10_000  # unlabeled vectors on that graph: the time to make it grows with their square
_LEAST = 1e-6  # probability: a class that no neighbor has is unlikely, not impossible


def logistic_regression(labeled: Floats, labels: Labels, unlabeled: Floats, asked: Floats) -> Floats:
    """Probabilities (N, C) of `asked` by a linear classifier of standardized vectors; it sees no unlabeled ones."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(action="ignore"):  # that it has not converged to the last digit
        model = LogisticRegression(max_iter=500).fit(labeled, labels)
    found: Floats = model.predict_proba(asked)
    return found


def nearest_neighbors(labeled: Floats, labels: Labels, unlabeled: Floats, asked: Floats) -> Floats:
    """Probabilities by the labels of the nearest labeled vectors, of which there are at most as many as in a class."""
    from sklearn.neighbors import KNeighborsClassifier

    count = max(1, min(NEIGHBORS, int(np.bincount(labels).min())))
    model = KNeighborsClassifier(count, metric="cosine").fit(labeled, labels)
    found: Floats = model.predict_proba(asked)
    return _never_zero(found)


def label_spreading(labeled: Floats, labels: Labels, unlabeled: Floats, asked: Floats) -> Floats:
    """Probabilities by labels that spread over a graph of neighbors, labeled and unlabeled.

    Of more than `MOST_SPREAD` unlabeled vectors so many are drawn by chance, always the same.
    """
    from sklearn.semi_supervised import LabelSpreading

    if len(unlabeled) > MOST_SPREAD:
        unlabeled = unlabeled[np.sort(np.random.default_rng(0).choice(len(unlabeled), MOST_SPREAD, replace=False))]
    vectors = _unit(np.concatenate([labeled, unlabeled]))
    known = np.concatenate([labels, np.full(len(unlabeled), -1)])
    neighbors = min(GRAPH_NEIGHBORS, len(vectors) - 1)
    with warnings.catch_warnings(action="ignore"):  # of vectors that no label reaches
        model = LabelSpreading(kernel="knn", n_neighbors=neighbors).fit(vectors, known)
        found: Floats = model.predict_proba(_unit(asked))
    return _never_zero(np.nan_to_num(found, nan=1 / found.shape[1]))


class Baseline(NamedTuple):
    """A classifier of vectors that needs no training loop."""

    display_name: str
    answer: Callable[[Floats, Labels, Floats, Floats], Floats]
    labels_only: bool  # it learns nothing from unlabeled vectors


BASELINES = {
    "logistic_regression": Baseline("logistic regression", logistic_regression, labels_only=True),
    "nearest_neighbors": Baseline("nearest neighbors", nearest_neighbors, labels_only=True),
    "label_spreading": Baseline("label spreading", label_spreading, labels_only=False),
}


def _unit(vectors: Floats) -> Floats:
    found: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return found


def _never_zero(probs: Floats) -> Floats:
    raised = probs + _LEAST
    found: Floats = raised / raised.sum(1, keepdims=True)
    return found
