"""What others would do with the same vectors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

from epass.evaluation import baselines
from epass.evaluation.baselines import BASELINES, label_spreading, nearest_neighbors


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return ((found.data - found.data.mean(0)) / (found.data.std(0) + 1e-6)).astype(np.float32), found.target


def chosen(labels: np.ndarray, each: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)])


@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_learns_digits_from_few_labels(name: str, each: int, digits: tuple[np.ndarray, np.ndarray]) -> None:
    vectors, labels = digits
    known = chosen(labels, each)
    rest = np.setdiff1d(np.arange(len(labels)), known)
    unlabeled, asked = rest[:600], rest[600:900]
    probs = BASELINES[name].answer(vectors[known], labels[known], vectors[unlabeled], vectors[asked])
    assert probs.shape == (300, 10)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)
    assert probs.min() > 0  # or one mistake would make the likelihood infinite
    assert (probs.argmax(1) == labels[asked]).mean() > 0.4  # chance is 0.1


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two arcs of the circle, which only a chain of neighbors connects."""
    angles = np.concatenate([np.linspace(0.0, 1.4, 60), np.linspace(1.7, 4.0, 60)])
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32), np.repeat([0, 1], 60)


def test_labels_spread_over_unlabeled_vectors() -> None:
    vectors, truth = moons()
    known = np.array([0, 65])  # far from 59, whose nearest label is that of the other arc
    unlabeled = np.setdiff1d(np.arange(120), known)
    asked = vectors[59:60]
    inputs = vectors[known], truth[known]
    assert label_spreading(*inputs, vectors[unlabeled], asked).argmax() == 0
    assert nearest_neighbors(*inputs, vectors[unlabeled], asked).argmax() == 1


def test_labels_spread_over_no_more_vectors_than_a_graph_is_made_of_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = moons()
    known = np.array([0, 65])
    rest, seen = np.setdiff1d(np.arange(120), known), []
    monkeypatch.setattr(LabelSpreading, "fit", lambda self, found, labels: seen.append((found, labels)) or self)
    monkeypatch.setattr(LabelSpreading, "predict_proba", lambda self, asked: np.full((len(asked), 2), 0.5))
    for most in (118, 50, 50):
        monkeypatch.setattr(baselines, "MOST_SPREAD", most)
        label_spreading(vectors[known], truth[known], vectors[rest], vectors[:3])
    (whole, labels), (some, fewer), again = seen
    np.testing.assert_allclose(whole, np.concatenate([vectors[known], vectors[rest]]), atol=1e-6)
    assert (labels[:2].tolist(), fewer[:2].tolist(), set(fewer[2:])) == ([0, 1], [0, 1], {-1})
    assert len(some) == len(fewer) == 52
    assert len({tuple(vector) for vector in some} & {tuple(vector) for vector in whole}) == 52  # each at most once
    assert np.ptp(np.arctan2(some[2:, 1], some[2:, 0])) > 3  # from both arcs, not the first ones
    np.testing.assert_array_equal(again[0], some)


def test_vectors_that_no_label_reaches_are_anybody_s() -> None:
    angles = np.concatenate([np.full(30, 0.0), np.full(30, 1.5), np.full(30, 3.0)]) + np.tile(np.arange(30) * 1e-3, 3)
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1)
    probs = label_spreading(vectors[[0, 30]], np.array([0, 1]), np.delete(vectors, [0, 30], 0), vectors[75:76])
    np.testing.assert_allclose(probs, [[0.5, 0.5]], atol=1e-3)


def test_no_more_neighbors_are_asked_than_a_class_has() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    probs = nearest_neighbors(vectors, np.array([0, 0, 0, 1]), vectors[:0], np.array([[0.1, 1.0]]))
    assert probs.argmax() == 1
