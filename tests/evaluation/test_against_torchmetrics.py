"""Every score against a second library, in which undefined classes and edges of bins are treated otherwise.

torchmetrics leaves classes that occur nowhere out of its macro averages, so its scores of single classes are averaged
here. Its bins of confidence are closed on the left; in mirrored confidences and answers they are ours.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from epass.evaluation import bin_by_confidence, confusion, score
from epass.evaluation.arrays import log_softmax

pytest.importorskip("torchmetrics", reason="a development tool: pip install 'epass[dev]'")

from torchmetrics.functional import classification as theirs
from torchmetrics.functional.text import perplexity

Problem = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics warns of classes without images
        yield


def drawn(num_images: int, num_classes: int, seed: int, scale: float = 2.0) -> Problem:
    generator = np.random.default_rng(seed)
    labels = generator.integers(num_classes, size=num_images)
    return scale * generator.normal(size=(num_images, num_classes)) + 1.5 * np.eye(num_classes)[labels], labels


def answers(predicted: NDArray[np.int64], num_classes: int, logit: float) -> NDArray[np.float64]:
    """About the same confidence in every answer; the classes below it in order, since ties for place five are luck."""
    chosen: NDArray[np.float64] = logit * np.eye(num_classes)[predicted] - 0.01 * np.arange(num_classes)
    return chosen


SIX = np.arange(60) % 6
PROBLEMS: dict[str, Problem] = {
    **{f"{classes} classes, seed {seed}": drawn(211, classes, seed) for classes in (2, 3, 7, 10) for seed in range(3)},
    "one class has images": (drawn(50, 4, 3)[0], np.full(50, 2)),
    "one class has images and gets all answers": (answers(np.full(20, 1), 3, 3.0), np.full(20, 1)),
    "one class gets all answers": (answers(np.zeros(60, dtype=np.int64), 6, 4.0), SIX),
    "two of five classes occur": (answers(np.arange(40) % 2, 5, 2.0), np.arange(40) // 20),
    "all certain and right": (answers(SIX, 6, 80.0), SIX),
    "all certain, some wrong": (answers(np.where(np.arange(60) < 9, (SIX + 1) % 6, SIX), 6, 80.0), SIX),
    "all wrong": (answers((SIX + 1) % 6, 6, 5.0), SIX),
    "binary, all wrong": (answers(1 - np.arange(20) % 2, 2, 5.0), np.arange(20) % 2),
    "all tied": (np.zeros((30, 3)), np.arange(30) % 3),
    "binary, all tied": (np.zeros((30, 2)), np.arange(30) % 2),
    "rounded, so that many tie": (lambda x, y: (x.round(), y))(*drawn(150, 3, 8)),
    "a binary problem, rounded": (lambda x, y: (x.round(), y))(*drawn(150, 2, 9)),
    "one image, right": (np.array([[0.3, 1.9, 0.2]]), np.array([1])),
    "one image, wrong": (np.array([[0.3, 1.9, 0.2]]), np.array([0])),
    "one image of two classes": (np.array([[0.4, 1.0]]), np.array([1])),
}


def of_classes(function: object, probs: Tensor, labels: Tensor) -> Tensor:
    """What torchmetrics says of each class."""
    values: Tensor = function(probs, labels, num_classes=probs.shape[1], average="none")  # type: ignore[operator]
    return values


def mirrored_ece(confidence: NDArray[np.float64], correct: NDArray[np.bool_], norm: str = "l1") -> float:
    away, wrong = torch.from_numpy(1 - confidence), torch.from_numpy(~correct).long()
    return float(theirs.binary_calibration_error(away, wrong, n_bins=10, norm=norm))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_scores_are_those_of_torchmetrics(name: str) -> None:
    logits, truth = PROBLEMS[name]
    # The same probabilities for both: equal ones from sums in another order differ in the last bit and tie no more.
    labels, probs = torch.from_numpy(truth), torch.from_numpy(np.exp(log_softmax(logits)))
    num_classes = probs.shape[1]
    present = torch.bincount(labels, minlength=num_classes) > 0
    got = score(logits, truth)
    expected = {
        "accuracy": theirs.multiclass_accuracy(probs, labels, num_classes=num_classes, average="micro"),
        "precision": of_classes(theirs.multiclass_precision, probs, labels).mean(),
        "recall": of_classes(theirs.multiclass_recall, probs, labels).mean(),
        "f1": of_classes(theirs.multiclass_f1_score, probs, labels).mean(),
        "balanced_accuracy": of_classes(theirs.multiclass_accuracy, probs, labels)[present].mean(),
        "nll": perplexity(torch.from_numpy(logits)[None], labels[None]).log(),
    }
    if num_classes > 5:
        top5 = theirs.multiclass_accuracy(probs, labels, num_classes=num_classes, average="micro", top_k=5)
        expected |= {"top5_accuracy": top5, "top5_error": 1 - top5}
    expected["error"] = 1 - expected["accuracy"]
    if present.sum() > 1:
        expected["auc"] = of_classes(theirs.multiclass_auroc, probs, labels)[present].mean()
    sure = probs.max(1).values.numpy()
    right = logits.argmax(1) == truth
    expected["ece"] = torch.tensor(mirrored_ece(sure, right))
    expected["mce"] = torch.tensor(mirrored_ece(sure, right, "max"))
    expected["brier"] = (probs - torch.eye(num_classes)[labels]).square().sum(1).mean()

    assert got.keys() == expected.keys()
    assert got == pytest.approx({key: float(value) for key, value in expected.items()}, rel=1e-5, abs=1e-6)
    counts = theirs.multiclass_confusion_matrix(probs, labels, num_classes=num_classes)
    assert np.array_equal(confusion(logits, truth), counts.numpy())
    assert all(math.isfinite(value) for value in got.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_away_from_the_edges_of_bins_its_own_calibration_error_is_ours(num_classes: int, seed: int) -> None:
    logits, truth = drawn(300, num_classes, seed)
    probs, labels = torch.from_numpy(logits).softmax(1), torch.from_numpy(truth)
    for key, norm in (("ece", "l1"), ("mce", "max")):
        wanted = theirs.multiclass_calibration_error(probs, labels, num_classes=num_classes, n_bins=10, norm=norm)
        assert score(logits, truth)[key] == pytest.approx(float(wanted), rel=1e-5)


def test_row_16_has_confidences_on_edges() -> None:
    confidence = np.array([0.05, 0.1, 0.15, 0.55, 0.6, 0.95, 1.0])
    correct = np.array([0, 1, 0, 1, 0, 1, 1], dtype=bool)
    assert bin_by_confidence(confidence, correct).ece == pytest.approx(0.171429, rel=1e-4)
    assert mirrored_ece(confidence, correct) == pytest.approx(0.171429, rel=1e-4)
    plain = theirs.binary_calibration_error(torch.from_numpy(confidence), torch.from_numpy(correct).long(), n_bins=10)
    assert float(plain) != pytest.approx(0.171429, rel=1e-2)  # closed on the left it would be another number
