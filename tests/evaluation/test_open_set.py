from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

from epass.errors import InputError
from epass.evaluation import open_set_accuracy


def test_every_class_counts_the_same_and_all_unknown_ones_are_one() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 2])  # two known classes; 2 is none of them
    answers = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    assert open_set_accuracy(torch.eye(3)[answers], labels) == pytest.approx((3 / 4 + 0 + 1) / 3)


@pytest.mark.parametrize("num_classes", [3, 7])
def test_it_is_the_balanced_accuracy_of_sklearn(num_classes: int) -> None:
    generator = np.random.default_rng(num_classes)
    labels = generator.integers(num_classes, size=200)
    logits = generator.normal(size=(200, num_classes)) + 2 * np.eye(num_classes)[labels]
    wanted = metrics.balanced_accuracy_score(labels, logits.argmax(1))
    assert open_set_accuracy(logits, labels) == pytest.approx(wanted)


def test_known_classes_without_images_are_left_out() -> None:
    assert open_set_accuracy(np.eye(4)[[0, 3, 0]], np.array([0, 3, 3])) == pytest.approx(0.75)


def test_closed_set_logits_are_refused() -> None:
    with pytest.raises(InputError, match="images of unknown classes, which have the label 2 here: there are none"):
        open_set_accuracy(np.eye(3)[[0, 1]], np.array([0, 1]))
