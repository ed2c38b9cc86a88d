"""One number that makes a model as sure as it is right: its logits divided by a temperature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from .arrays import ArrayLike, Floats, Integers, as_arrays, log_softmax

PRECISION = 1e-10  # relative, of 1 / temperature
MAX_STEPS = 200  # Newton's method takes about five; the rest is for logits of odd sizes, where it has to bisect


class CrossFit(NamedTuple):
    """Logits divided by a temperature that was fitted on other images."""

    logits: Floats  # (N, C)
    temperatures: tuple[float, float]  # of the first and of the second half


def fit_temperature(logits: ArrayLike, labels: ArrayLike, imagined: float = 0) -> float:
    """The temperature T for which logits / T have the lowest negative log-likelihood.

    The likelihood is concave in 1 / T, so that there is one best value: where the expected logit under the model's own
    probabilities is, on average, the logit of the true class. Images that are all right ask for T = 0, and true
    classes that stand out from the others by nothing for an infinite T: both are refused.

    So many `imagined` labels follow the probabilities at T = 1, which pulls T there: a few labels are no reason to
    believe in a T far away, and images that are all right are no reason to refuse.
    """
    scores, truth = as_arrays(logits, labels)
    scores = scores - scores.max(axis=1, keepdims=True)
    true_scores = scores[np.arange(len(truth)), truth]
    if imagined:
        expected = (np.exp(log_softmax(scores)) * scores).sum(axis=1)
        true_scores = (len(truth) * true_scores + imagined * expected) / (len(truth) + imagined)
    if (scores.mean(axis=1) - true_scores).mean() >= 0:
        raise InputError(
            f"No temperature fits best: on {len(truth)} images the true class has no higher logit than the average."
        )
    if not true_scores.any():
        if imagined:  # the model is as sure as numbers can say
            return 1.0
        raise InputError(f"No temperature fits best: the {len(truth)} images are all right, so that lower is better.")

    inverse, low, high = 1.0, 0.0, np.inf
    for _ in range(MAX_STEPS):
        slope, curvature = _derivatives(scores, true_scores, inverse)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        following = inverse - slope / curvature if curvature > 0 else np.nan
        if not low <= following <= high:  # Newton's method has left the bracket, or NaN
            following = (low + high) / 2 if np.isfinite(high) else 2 * inverse
        done = abs(following - inverse) <= PRECISION * inverse
        inverse = following
        if done:
            break
    return float(1 / inverse)


def cross_fit_temperature(logits: ArrayLike, labels: ArrayLike) -> CrossFit:
    """Divide the logits of each half of the images by the temperature that is best on the other half.

    No image is scaled by a number that its own label had a part in. Each half has every second image of every class.
    """
    scores, truth = as_arrays(logits, labels)
    if len(truth) < 2:
        raise InputError("Two halves need at least two images.")
    second = _every_second_of_each_class(truth)
    halves = (~second, second)
    on_first, on_second = (fit_temperature(scores[half], truth[half]) for half in halves)
    return CrossFit(scores / np.where(second, on_first, on_second)[:, None], (on_first, on_second))


def _derivatives(scores: Floats, true_scores: Floats, inverse: float) -> tuple[float, float]:
    """First and second derivative of the mean negative log-likelihood with respect to 1 / temperature."""
    probs = np.exp(log_softmax(inverse * scores))
    mean = (probs * scores).sum(axis=1)
    variance = (probs * (scores - mean[:, None]) ** 2).sum(axis=1)
    return float((mean - true_scores).mean()), float(variance.mean())


def _every_second_of_each_class(truth: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Alternate through the images, class after class: their order in a data set often follows the classes."""
    second = np.zeros(len(truth), dtype=np.bool_)
    second[np.argsort(truth, kind="stable")[1::2]] = True
    return second
