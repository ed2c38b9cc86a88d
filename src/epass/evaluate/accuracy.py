"""Every number of a results table, from one set of logits."""

from __future__ import annotations

import numpy as np

from .arrays import ArrayLike, Floats, Integers, as_arrays, log_softmax
from .calibration import bin_by_confidence
from .confusion import count_pairs


def score(logits: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """All metrics of the predictions, as fractions (`nll` in nats, `brier` summed over the classes, 0 to 2).

    Precision, recall and F1 are macro averages over all classes, with 0 for a class where they are undefined.
    Balanced accuracy and AUC leave out the classes that have no test image. `top5_error` is there for more than five
    classes, `auc` when at least one class has images on both sides.
    """
    scores, truth = as_arrays(logits, labels)
    num_images, num_classes = scores.shape
    log_probs = log_softmax(scores)
    probs = np.exp(log_probs)
    ranks = _rank_of_truth(scores, truth)

    result = {"error": float((ranks > 0).mean())}
    if num_classes > 5:
        result["top5_error"] = float((ranks >= 5).mean())
    result |= macro_averages(count_pairs(truth, scores.argmax(axis=1), num_classes))
    auc = _one_vs_rest_auc(probs, truth)
    if auc is not None:
        result["auc"] = auc
    result["nll"] = float(-log_probs[np.arange(num_images), truth].mean())
    # sum over c of (p_c - y_c)^2 without building the one-hot y
    result["brier"] = float(((probs**2).sum(axis=1) - 2 * probs[np.arange(num_images), truth] + 1).mean())
    bins = bin_by_confidence(probs.max(axis=1), ranks == 0)
    return result | {"ece": bins.ece, "mce": bins.mce}


def _rank_of_truth(scores: Floats, truth: Integers) -> Integers:
    """How many classes come before the true one; ties go to the lower class, as in argmax."""
    own = scores[np.arange(len(truth)), truth][:, None]
    tied_before = (scores == own) & (np.arange(scores.shape[1]) < truth[:, None])
    ranks: Integers = ((scores > own) | tied_before).sum(axis=1)
    return ranks


def macro_averages(pairs: Integers) -> dict[str, float]:
    """Means over classes, from the counts of (true, predicted) pairs."""
    hits = np.diag(pairs).astype(np.float64)
    actual, predicted = pairs.sum(axis=1), pairs.sum(axis=0)
    recall = hits / np.maximum(actual, 1)  # no image, no hit: 0
    return {
        "balanced_accuracy": float(recall[actual > 0].mean()),
        "precision": float((hits / np.maximum(predicted, 1)).mean()),
        "recall": float(recall.mean()),
        "f1": float((2 * hits / np.maximum(actual + predicted, 1)).mean()),
    }


def _one_vs_rest_auc(probs: Floats, truth: Integers) -> float | None:
    """Mean over classes of P(a random member scores above a random non-member), ties counting half."""
    areas = []
    for label in np.unique(truth):
        member = truth == label
        positives, negatives = int(member.sum()), int((~member).sum())
        if negatives:
            _, group, sizes = np.unique(probs[:, label], return_inverse=True, return_counts=True)
            mid_ranks = np.cumsum(sizes) - (sizes - 1) / 2  # tied scores share the middle of their ranks
            wins = mid_ranks[group][member].sum() - positives * (positives + 1) / 2
            areas.append(wins / (positives * negatives))
    return float(np.mean(areas)) if areas else None
