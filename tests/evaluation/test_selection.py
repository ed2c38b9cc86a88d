"""Which images somebody should look at."""

from __future__ import annotations

import numpy as np
import pytest

from epass.evaluation.selection import out_of_fold, outlying, suspected, typical, uncertain

COUNT, GROUPS = 90, 3


def clouds(spread: float = 0.1, groups: int = GROUPS) -> tuple[np.ndarray, np.ndarray]:
    """Vectors in as many directions as there are groups, and their groups."""
    random = np.random.default_rng(0)
    group = np.arange(COUNT) % groups
    return np.eye(8)[group] + spread * random.normal(size=(COUNT, 8)), group


def test_typical_images_are_of_all_groups_and_in_their_middle() -> None:
    vectors, group = clouds()
    chosen = typical(vectors, GROUPS, np.arange(COUNT))
    assert sorted(group[chosen]) == [0, 1, 2]
    to_center = np.linalg.norm(vectors - np.eye(8)[group], axis=1)
    assert (to_center[chosen] < np.median(to_center)).all()


def test_dark_and_light_images_are_groups_although_they_have_one_direction() -> None:
    light = np.arange(COUNT) % 2
    vectors = (1 + light)[:, None] * (1 + 0.02 * np.random.default_rng(0).normal(size=(COUNT, 8)))
    for candidates in np.split(np.arange(COUNT), 5):
        assert sorted(light[typical(vectors, 2, candidates)]) == [0, 1]


def test_typical_images_are_of_groups_without_a_label_and_among_the_candidates() -> None:
    vectors, group = clouds()
    labeled = np.flatnonzero(group < 2)[:2]
    candidates = np.setdiff1d(np.arange(COUNT), labeled)[::2]
    chosen = typical(vectors, 1, candidates, labeled)
    assert group[chosen].tolist() == [2]
    assert np.isin(typical(vectors, 20, candidates, labeled), candidates).all()
    assert sorted(typical(vectors, 99, candidates, labeled)) == sorted(candidates)  # each once, however many are wanted


@pytest.mark.parametrize("large", [1, 2])
def test_of_the_groups_without_a_label_the_largest_comes_first(large: int) -> None:
    group = np.where(np.arange(COUNT) < 20, 0, np.where(np.arange(COUNT) < 40, 3 - large, large))
    vectors = np.eye(8)[group] + 0.1 * np.random.default_rng(0).normal(size=(COUNT, 8))
    chosen = typical(vectors, 1, np.arange(2, COUNT), [0, 1])  # three groups, for two labels and one that is to come
    assert group[chosen].tolist() == [large]


def test_images_that_are_all_the_same_can_be_chosen_from() -> None:
    assert len({*typical(np.ones((5, 3)), 4, np.arange(5)).tolist()}) == 4
    assert len({*uncertain(np.ones((5, 3)), np.full((5, 2), 0.5), 4).tolist()}) == 4


def test_uncertain_images_are_doubtful_and_of_all_groups() -> None:
    vectors, group = clouds()
    doubtful = np.arange(COUNT) % 5 == 0
    probs = np.where(doubtful[:, None], [[0.4, 0.35, 0.25]], [[0.98, 0.01, 0.01]])
    chosen = uncertain(vectors, probs, 2 * GROUPS)
    assert len({*chosen.tolist()}) == 2 * GROUPS
    assert {*group[chosen]} == {0, 1, 2}
    assert doubtful[chosen].mean() > doubtful.mean()
    doubts = 1 - (probs.max(1) - np.median(probs, 1))[chosen]
    assert (np.diff(doubts) <= 0).all()  # the most doubtful first


def test_a_model_that_is_sure_of_everything_leaves_the_choice_to_the_groups() -> None:
    vectors, group = clouds()
    chosen = uncertain(vectors, np.tile([1.0, 0.0], (COUNT, 1)), GROUPS)
    assert sorted(group[chosen]) == [0, 1, 2]


def test_wrong_labels_are_found_and_right_ones_left_alone() -> None:
    vectors, group = clouds()
    labels = group.copy()
    wrong = [4, 41, 77]
    labels[wrong] = (labels[wrong] + 1) % GROUPS
    found = suspected(out_of_fold(vectors, labels, GROUPS), labels)
    assert sorted(found.places) == wrong
    assert (found.guesses == group[found.places]).all()
    assert (np.diff(found.confidences) <= 0.05).all()
    assert len(suspected(out_of_fold(vectors, group, GROUPS), group).places) == 0


def test_a_class_that_is_likelier_than_the_label_but_less_than_usual_is_no_reason() -> None:
    probs = np.array([[0.9, 0.1], [0.45, 0.55], [0.1, 0.9], [0.1, 0.9]])
    assert suspected(probs, np.array([0, 0, 1, 1])).places.tolist() == []
    assert suspected(probs, np.array([0, 0, 1, 0])).places.tolist() == [3]


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_labels_that_cannot_be_left_out_are_not_judged(labels: list[int]) -> None:
    probs = out_of_fold(np.eye(4), np.array(labels), 4)
    assert np.isnan(probs).all()
    assert len(suspected(probs, np.array(labels)).places) == 0


def test_every_label_of_a_small_class_is_judged_by_the_others() -> None:
    labels = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 3])
    probs = out_of_fold(np.random.default_rng(0).normal(size=(10, 4)), labels, 4)
    assert np.isfinite(probs[:9]).all()
    assert np.isnan(probs[9]).all()
    np.testing.assert_allclose(probs[:9].sum(1), 1)
    assert (probs[:9, 2] == 0).all()  # a class that nobody has a label of


def test_images_unlike_all_others_are_found_the_farthest_first() -> None:
    vectors, _ = clouds(0.05, groups=2)
    vectors[[7, 30]] = np.eye(8)[[5, 6]] + [[0.0], [0.4]]
    assert outlying(vectors).tolist()[:2] in ([7, 30], [30, 7])
    assert len(outlying(vectors)) < 6
    assert len(outlying(vectors[:20])) == 0  # of so few, nobody can say what is usual


def test_an_image_is_no_neighbor_of_its_own() -> None:
    # Ten copies, of which each has nine others: the tenth neighbor is one of the usual images, far away.
    vectors, _ = clouds(0.05, groups=1)
    vectors[:10] = np.eye(8)[5]
    assert sorted(outlying(vectors)[:10]) == list(range(10))
