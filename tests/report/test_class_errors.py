"""The errors of every class, counted without a matrix of all pairs of classes."""

import tracemalloc

import numpy as np
import pytest

from epass.evaluation import confusion
from epass.report.answers import ClassErrors, class_errors
from epass.runs import Predictions


@pytest.mark.parametrize(("images", "classes"), [(200, 4), (40, 12), (3, 5)])
def test_every_class_has_the_row_of_the_confusion_matrix(images: int, classes: int) -> None:
    random = np.random.default_rng(images)
    predictions = Predictions(
        random.normal(size=(images, classes)).astype(np.float32), random.integers(classes, size=images)
    )
    counts = confusion(*predictions)
    elsewhere = counts - np.diag(np.diag(counts))
    expected = [
        ClassErrors(number, row.sum(), away.sum(), away.argmax(), away.max())  # of equal ones, the first
        for number, (row, away) in enumerate(zip(counts, elsewhere, strict=True))
    ]
    assert class_errors(predictions, classes) == expected
    worst = class_errors(predictions, 2)
    assert [one.wrong / max(one.images, 1) for one in worst] == sorted(
        (one.wrong / max(one.images, 1) for one in expected), reverse=True
    )[:2]
    assert set(worst) <= set(expected)


def test_very_many_classes_take_no_more_memory_than_their_answers() -> None:
    predictions = Predictions(np.eye(4, 3000, dtype=np.float32), np.array([0, 1, 7, 3]))
    tracemalloc.start()
    worst = class_errors(predictions, 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert worst == [ClassErrors(7, 1, 1, 2, 1)]
    assert most < 3_000_000
