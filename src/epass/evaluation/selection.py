"""Which images a person should look at: those worth a label, labels that may be wrong, and images unlike all others.

All of it works on vectors, one for each image: the features of a network, or whatever else tells images apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import directions
from .baselines import logistic_regression

Floats = NDArray[Any]
Ints = NDArray[np.int64]
FOLDS = 5
NEIGHBOR = 10  # whose distance counts: the nearest ones may be copies
DEVIATIONS = 2.5  # above the median, of the logarithm of that distance
LEAST = 30  # images, below which nobody can say what is usual
_ROWS = 1024  # images that are compared with all others at a time


class Suspects(NamedTuple):
    """Labeled images whose label may be wrong, the most suspicious first."""

    places: Ints  # among the labeled images
    guesses: Ints  # the class that each looks like
    confidences: Floats  # of the guess


def typical(vectors: Floats, count: int, candidates: Ints, labeled: Ints | Sequence[int] = (), seed: int = 0) -> Ints:
    """`count` of the candidates that stand for as many groups of all images, the largest groups without a label first.

    K-means finds the groups, one for each image that has a label or gets one, and of a group the candidate nearest to
    its center is taken. Vectors count by their directions from the mean.
    """
    rows = _from_the_mean(vectors)
    count, labeled = min(count, len(candidates)), np.asarray(labeled, dtype=np.int64)
    groups, centers = _grouped(rows, min(count + len(labeled), len(rows)), seed)
    far = np.square(rows - centers[groups]).sum(1)
    sizes, covered = np.bincount(groups, minlength=len(centers)), np.bincount(groups[labeled], minlength=len(centers))
    waiting = {group: sorted(members, key=far.__getitem__) for group, members in _members(groups, candidates).items()}
    chosen: list[int] = []
    while len(chosen) < count:
        group = min((group for group, left in waiting.items() if left), key=lambda at: (covered[at], -sizes[at]))
        chosen.append(waiting[group].pop(0))
        covered[group] += 1
    return np.array(chosen, dtype=np.int64)


def uncertain(vectors: Floats, probs: Floats, count: int, seed: int = 0) -> Ints:
    """`count` images between whose two likeliest classes (N, C) the model hesitates, and that are unlike each other.

    K-means in which an image weighs the more, the closer its two largest probabilities are; of a group the image
    nearest to its center is taken. Zhdanov, Diverse mini-batch Active Learning, 2019.
    """
    rows = _from_the_mean(vectors)
    count = min(count, len(rows))
    first, second = np.sort(probs, axis=1)[:, :-3:-1].T
    weights = 1 - (first - second)
    # whoever is sure of everything has no doubtful images: then all count alike
    _, centers = _grouped(rows, count, seed, weights + 1e-6)
    chosen: list[int] = []
    for center in centers:
        far = np.square(rows - center).sum(1)
        far[chosen] = np.inf
        chosen.append(int(far.argmin()))
    order = np.argsort(-weights[chosen], kind="stable")
    return np.array(chosen, dtype=np.int64)[order]


def suspected(probs: Floats, labels: Ints) -> Suspects:
    """Labels that speak against probabilities (N, C) of a model that did not learn from them; rows of NaN say nothing.

    An image is counted to a class if that class is at least as likely as it is for images with this label on average.
    Those counted to another class than their own are suspects. Northcutt et al., Confident Learning, 2021.
    """
    known = np.flatnonzero(np.isfinite(probs).all(1))
    told, said = labels[known], probs[known]
    usual = np.array([said[told == c, c].mean() if (told == c).any() else np.inf for c in range(probs.shape[1])])
    likely = np.where(said >= usual, said, -1.0)
    guesses = likely.argmax(1)
    at = np.flatnonzero((likely.max(1) >= 0) & (guesses != told))
    order = np.argsort(said[at, told[at]] - said[at, guesses[at]], kind="stable")
    at = at[order]
    return Suspects(known[at], guesses[at], said[at, guesses[at]])


def out_of_fold(vectors: Floats, labels: Ints, classes: int, seed: int = 0) -> Floats:
    """Probabilities (N, C) by a linear classifier that learned from the other images; NaN where it has no other."""
    from sklearn.model_selection import StratifiedKFold

    probs, sizes = np.full((len(labels), classes), np.nan), np.bincount(labels, minlength=classes)
    usable = np.flatnonzero(sizes[labels] > 1)  # without its only image, a class would be unknown
    present = np.unique(labels)
    if len(present) < 2 or not len(usable):
        return probs
    folds = StratifiedKFold(min(FOLDS, int(sizes.max())), shuffle=True, random_state=seed)
    scaled = standardized(vectors)
    with warnings.catch_warnings(action="ignore"):  # that a class has fewer images than there are folds
        parts = [usable[left_out] for _, left_out in folds.split(usable, labels[usable])]
    for asked in parts:
        taught = np.setdiff1d(np.arange(len(labels)), asked)
        probs[asked] = 0.0
        probs[np.ix_(asked, present)] = logistic_regression(scaled[taught], labels[taught], scaled[:0], scaled[asked])
    return probs


def outlying(vectors: Floats) -> Ints:
    """Images that are farther from their neighbors than nearly all others, the farthest first.

    By the angle that features have from zero: what a network knows nothing about lies near the mean of what it does.
    """
    rows, neighbor = directions(vectors), NEIGHBOR
    if len(rows) < LEAST:
        return np.empty(0, dtype=np.int64)
    parts = []
    for start in range(0, len(rows), _ROWS):
        near = rows[start : start + _ROWS] @ rows.T
        near[np.arange(len(near)), np.arange(start, start + len(near))] = -np.inf  # nobody is a neighbor of itself
        parts.append(np.partition(near, -neighbor, axis=1)[:, -neighbor])
    distance = np.log(np.maximum(1 - np.concatenate(parts), 1e-6))
    middle = np.median(distance)
    spread = 1.4826 * np.median(np.abs(distance - middle))  # the deviation, if most distances are those of a Gaussian
    far = np.flatnonzero(distance > middle + DEVIATIONS * max(spread, 1e-6))
    found: Ints = far[np.argsort(-distance[far], kind="stable")]
    return found


def standardized(vectors: Floats) -> Floats:
    """Vectors whose numbers all have mean zero and deviation one, as a linear classifier wants them."""
    found: Floats = (vectors - vectors.mean(0)) / np.maximum(vectors.std(0), 1e-6)
    return found


def _from_the_mean(vectors: Floats) -> Floats:
    """The directions from the mean of all: the angle between two features says more than the distance."""
    rows = np.asarray(vectors, dtype=np.float32)
    return directions(rows - rows.mean(0))


def _grouped(rows: Floats, count: int, seed: int, weights: Floats | None = None) -> tuple[Ints, Floats]:
    """The group of every row, and the centers of the groups."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings(action="ignore"):  # that some rows are the same, and there are fewer groups
        model = KMeans(count, n_init=1, random_state=seed).fit(rows, sample_weight=weights)
    return model.labels_.astype(np.int64), model.cluster_centers_


def _members(groups: Ints, candidates: Ints) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for place in candidates.tolist():
        members.setdefault(int(groups[place]), []).append(place)
    return members
