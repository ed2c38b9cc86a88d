"""What a run's model answered about its test images, image by image and class by class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evaluation.arrays import as_arrays, log_softmax
from ..evaluation.confusion import count_classes
from ..runs import Predictions, Run, names_of_test_images
from ..untrusted import printable
from .style import NoDataError

NOT_YET = "No predictions yet: a run writes them when it ends."


class Answers(NamedTuple):
    """One entry per test image."""

    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]  # the probability of the predicted class

    @property
    def wrong(self) -> NDArray[np.bool_]:
        wrong: NDArray[np.bool_] = self.labels != self.predicted
        return wrong


class ClassErrors(NamedTuple):
    """How the images of one class fare."""

    number: int
    images: int
    wrong: int
    taken_for: int  # the class that they are most often mistaken for
    times: int


def predictions_of(run: Run) -> Predictions:
    """The predictions of a run, or the reason why there are none."""
    if run.predictions is None:
        raise NoDataError(NOT_YET)
    return run.predictions


def answers_of(run: Run, positions: NDArray[np.int64]) -> Answers:
    """What the model said about the test images at these positions, and how sure it was."""
    logits, labels = predictions_of(run)
    scores, truth = as_arrays(logits[positions], labels[positions])
    return Answers(truth, scores.argmax(axis=1), np.exp(log_softmax(scores).max(axis=1)))


def class_names(run: Run) -> list[str]:
    """The classes in the order of the logits; numbers where the names do not fit."""
    count = predictions_of(run).logits.shape[1]
    names = [str(name) for name in (run.model or {}).get("classes") or []]
    return names if len(names) == count else [str(label) for label in range(count)]


def image_names(run: Run, positions: NDArray[np.int64]) -> list[str]:
    """What the test images at these positions are called, by their files where there are some."""
    names = names_of_test_images(run.path, len(predictions_of(run).labels))
    return [printable(names[position]) for position in positions.tolist()]


def class_errors(predictions: Predictions, most: int) -> list[ClassErrors]:
    """Every class in its order; of more than `most`, those with the highest error, the worst first."""
    scores, labels = as_arrays(*predictions)
    predicted, count = scores.argmax(axis=1), scores.shape[1]
    counts = count_classes(labels, predicted, count)
    wrong = counts.images - counts.hits
    order = np.arange(count)
    if count > most:
        order = np.argsort(-wrong / np.maximum(counts.images, 1), kind="stable")[:most]
    missed = labels != predicted
    kinds, times = np.unique(labels[missed] * count + predicted[missed], return_counts=True)
    rising = np.lexsort((-kinds, times))  # so that the most frequent mistake of a class, of equal ones the first, stays
    worst = dict(
        zip((kinds // count)[rising].tolist(), zip((kinds % count)[rising], times[rising], strict=True), strict=True)
    )
    return [
        ClassErrors(number, int(counts.images[number]), int(wrong[number]), *map(int, worst.get(number, (0, 0))))
        for number in order.tolist()
    ]
