from __future__ import annotations

import math
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics

from epass.errors import InputError
from epass.evaluation import confusion, find_alarms, score


def problem(num_images: int, num_classes: int, seed: int = 0, scale: float = 2.0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(num_classes, size=num_images)
    logits = generator.normal(size=(num_images, num_classes)) * scale
    logits[np.arange(num_images), labels] += 1.5
    return logits, labels


def softmax(logits):
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).softmax(1).numpy()


CASES = {
    "ten classes": problem(400, 10),
    "three classes": problem(200, 3, seed=1),
    "binary": problem(150, 2, seed=2),
    "six classes": problem(100, 6, seed=3),
    "one class absent": (lambda x, y: (x, np.where(y == 2, 1, y)))(*problem(200, 4, seed=4)),
    "never predicted": (lambda x, y: (x - 100 * (np.arange(4) == 3), y))(*problem(200, 4, seed=5)),
    "all correct": (10 * np.eye(7)[np.arange(70) % 7], np.arange(70) % 7),
    "all wrong": (10 * np.eye(3)[(np.arange(30) + 1) % 3], np.arange(30) % 3),
    "constant logits": (np.zeros((40, 4)), np.arange(40) % 4),
    "huge logits": (lambda x, y: (1e4 * x, y))(*problem(100, 3, seed=6)),
    "one class has images": (problem(60, 4, seed=7)[0], np.full(60, 2)),
    "all certain": (
        80 * np.eye(3)[np.arange(30) % 3],
        np.where(np.arange(30) < 6, 2 - np.arange(30) % 3, np.arange(30) % 3),
    ),
    "binary ties": (np.array([[0.0, 0.0], [1.0, 1.0]] * 10), np.arange(20) // 10),
    "one image": (np.array([[0.2, 1.4, -0.5]]), np.array([2])),
    "one image of two classes": (np.array([[0.2, 1.4]]), np.array([1])),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_scikit_learn(case):
    logits, labels = CASES[case]
    classes = np.arange(logits.shape[1])
    predicted, probs = logits.argmax(1), softmax(logits)
    got = score(logits, labels)

    macro = {"labels": classes, "average": "macro", "zero_division": 0}
    assert got["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert got["error"] == pytest.approx(1 - metrics.accuracy_score(labels, predicted))
    assert got["precision"] == pytest.approx(metrics.precision_score(labels, predicted, **macro))
    assert got["recall"] == pytest.approx(metrics.recall_score(labels, predicted, **macro))
    assert got["f1"] == pytest.approx(metrics.f1_score(labels, predicted, **macro))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predictions of a class without images
        assert got["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(labels, predicted))
    areas = [metrics.roc_auc_score(labels == c, probs[:, c]) for c in np.unique(labels) if (labels != c).any()]
    assert got.get("auc") == (pytest.approx(np.mean(areas)) if areas else None)
    log_probs = torch.from_numpy(logits).log_softmax(1).numpy()
    assert got["nll"] == pytest.approx(-log_probs[np.arange(len(labels)), labels].mean())
    if log_probs.min() > math.log(np.finfo(np.float64).eps):  # scikit-learn cuts probabilities off there
        assert got["nll"] == pytest.approx(metrics.log_loss(labels, probs, labels=classes))
    assert got["brier"] == pytest.approx(((probs - np.eye(len(classes))[labels]) ** 2).sum(1).mean())
    assert np.array_equal(confusion(logits, labels), metrics.confusion_matrix(labels, predicted, labels=classes))
    if len(classes) > 5:
        top5 = metrics.top_k_accuracy_score(labels, logits, k=5, labels=classes)
        assert (got["top5_accuracy"], got["top5_error"]) == pytest.approx((top5, 1 - top5))
    else:
        assert not {"top5_accuracy", "top5_error"} & got.keys()
    assert all(math.isfinite(value) for value in got.values())


def test_stored_numbers_can_be_computed_again():
    assert score(*CASES["ten classes"]) == {
        "error": 0.72,
        "accuracy": 0.28,
        "top5_error": 0.24,
        "top5_accuracy": 0.76,
        "balanced_accuracy": 0.2808356660509809,
        "precision": 0.27846622076684363,
        "recall": 0.2808356660509809,
        "f1": 0.278030774231091,
        "auc": 0.7238804338970666,
        "ece": pytest.approx(0.2709284930788531, rel=1e-14),  # sums of exp: another libm may round otherwise
        "mce": pytest.approx(0.4091847445976296, rel=1e-14),
        "nll": pytest.approx(2.44863340880757, rel=1e-14),
        "brier": pytest.approx(0.9304921196378624, rel=1e-14),
    }


def test_binary_auc_is_the_usual_one():
    logits, labels = CASES["binary"]
    assert score(logits, labels)["auc"] == pytest.approx(metrics.roc_auc_score(labels, softmax(logits)[:, 1]))


def test_auc_is_left_out_when_only_one_class_has_images():
    got = score(np.eye(3)[[0, 1, 2]], np.zeros(3, dtype=np.int64))
    assert "auc" not in got
    assert got["balanced_accuracy"] == pytest.approx(1 / 3)


def test_tensors_and_arrays_give_the_same_numbers():
    logits, labels = CASES["ten classes"]
    tensor = torch.from_numpy(logits).to(torch.bfloat16).requires_grad_()
    rounded = tensor.detach().double().numpy()
    assert score(tensor, torch.from_numpy(labels)) == score(rounded, labels.astype(np.int32))


@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        (np.zeros((0, 3)), np.zeros(0, dtype=int), "empty"),
        (np.zeros((2, 3)), np.array([0, 3]), "classes 0 to 2"),
        (np.zeros((2, 3)), np.array([-1, 0]), "from -1 to 0"),
        (np.zeros((2, 3)), np.zeros(3, dtype=int), "shape"),
        (np.array([[0.0, np.nan], [0.0, 1.0]]), np.array([0, 1]), "1 of 2 images are not finite"),
    ],
)
def test_bad_input_is_said_in_a_sentence(logits, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        score(logits, labels)


def test_scores_do_not_need_the_square_of_the_classes() -> None:
    logits, labels = problem(5, 3000, seed=8)
    tracemalloc.start()
    found, alarms = score(logits, labels), find_alarms(logits, labels)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8_000_000  # a confusion matrix takes nine times that
    assert found["recall"] == pytest.approx((logits.argmax(1) == labels).sum() / 3000)
    assert len(alarms) <= 1


def test_neighboring_classes_are_counted_together() -> None:
    logits, labels = problem(300, 7, seed=9)
    counts = np.pad(confusion(logits, labels), (0, 2))
    assert np.array_equal(confusion(logits, labels, 3), counts.reshape(3, 3, 3, 3).sum((1, 3)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_are_not_taken_for_logits_without_a_word(dtype: type) -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(50, 4)), random.integers(0, 4, 50)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    with pytest.warns(UserWarning, match=r"look like probabilities: .* numpy\.log of the probabilities"):
        found = score(probs.astype(dtype), labels)
    assert abs(found["ece"] - score(logits, labels)["ece"]) > 0.05
    assert score(np.log(probs), labels)["ece"] == pytest.approx(score(logits, labels)["ece"])
    score(np.eye(4)[labels], labels)  # answers of which nobody says how sure they are
