from __future__ import annotations

import sys

import numpy as np
import pytest

from epass.errors import InputError
from epass.evaluation import tsne_map
from epass.evaluation.maps import _arrange


def blobs(count: int = 60, width: int = 70) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % 3
    return (10 * np.eye(3, width)[labels] + np.random.default_rng(0).normal(size=(count, width))), labels


@pytest.fixture(params=["openTSNE", "scikit-learn"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "openTSNE":
        pytest.importorskip("openTSNE", reason="the extra 'maps' is not installed")
    else:
        monkeypatch.setitem(sys.modules, "openTSNE", None)
    _arrange.cache_clear()
    return request.param


@pytest.mark.usefixtures("library")
def test_alike_vectors_are_neighbors_and_the_map_is_always_the_same() -> None:
    vectors, labels = blobs()
    places = tsne_map(vectors)
    assert places.shape == (60, 2)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + np.diag(np.full(60, np.inf))
    assert (labels[distances.argmin(axis=1)] == labels).mean() > 0.9
    _arrange.cache_clear()
    assert (tsne_map(vectors) == places).all()


@pytest.mark.usefixtures("library")
def test_ten_vectors_are_enough() -> None:
    assert np.isfinite(tsne_map(blobs(10)[0])).all()


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (np.zeros((9, 3)), "at least 10 images, and there are 9"),
        (np.full((20, 3), np.nan), "not all finite"),
        (np.zeros((20, 3)), "Fewer than 10 of the vectors differ"),
    ],
)
def test_what_cannot_be_arranged_is_said(vectors: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tsne_map(vectors)
