"""Images unlike those that a model was tested on: told by features, and only where there are more than chance makes."""

import numpy as np
import pytest
import torch

from epass.evaluation.novelty import Novelty, are_unlike

RANDOM = np.random.default_rng(0)
CENTERS = RANDOM.normal(size=(4, 32))


def features(count: int, centers: np.ndarray = CENTERS) -> np.ndarray:
    return centers[RANDOM.integers(0, len(centers), count)] + 0.3 * RANDOM.normal(size=(count, 32))


@pytest.mark.parametrize("tested", [20, 60, 600])
def test_features_of_the_same_kind_are_rarely_unlike_and_others_always(tested: int) -> None:
    novelty = Novelty(features(tested).astype(np.float16))
    assert novelty.unlike(features(2000)).mean() < 0.13
    assert novelty.unlike(features(500, RANDOM.normal(size=(4, 32)))).mean() > 0.9
    if tested == 600:
        assert 0.02 < novelty.unlike(features(2000)).mean() < 0.09


def test_only_directions_count_and_nothing_has_one() -> None:
    tested = features(200)
    novelty, same = Novelty(torch.from_numpy(tested)), features(100)
    assert np.array_equal(novelty.unlike(same), novelty.unlike(50 * same))
    assert novelty.unlike(np.zeros((3, 32))).all()


def test_no_image_is_a_neighbor_of_itself() -> None:
    alone = Novelty(np.eye(40))  # all are equally far from each other
    assert alone.limit == 0


@pytest.mark.parametrize(
    ("unlike", "images", "said"),
    [
        (1, 1, False),
        (2, 2, True),
        (2, 3, True),
        (2, 10, False),
        (4, 20, False),
        (5, 20, True),
        (149, 1000, False),
        (150, 1000, True),
        (0, 0, False),
    ],
)
def test_so_many_are_worth_a_sentence(unlike: int, images: int, said: bool) -> None:
    assert are_unlike(unlike, images) == said


def test_false_alarms_are_rare() -> None:
    for images in (2, 5, 20, 100, 1000):
        alarms = [are_unlike(int(count), images) for count in RANDOM.binomial(images, 0.05, 4000)]
        assert np.mean(alarms) < 0.005
