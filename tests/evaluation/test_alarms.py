"""A result that is hardly better than guessing is told; one that is not, is not."""

import numpy as np
import pytest

from epass.evaluation import find_alarms, find_untested
from epass.evaluation.alarms import is_near_chance
from epass.evaluation.confusion import ClassCounts


def answers(error: float, classes: int, each: int) -> ClassCounts:
    """Counts with this error, the mistakes spread evenly."""
    wrong = error * each / (classes - 1)
    return counts(np.where(np.eye(classes) > 0, (1 - error) * each, wrong))


def counts(pairs: np.ndarray) -> ClassCounts:
    """Of a confusion matrix, whose rows are the true classes."""
    return ClassCounts(pairs.sum(1), pairs.sum(0), np.diag(pairs))


@pytest.mark.parametrize(
    ("error", "classes", "each", "near"),
    [
        (0.88, 10, 100, True),
        (0.919, 37, 99, True),
        (0.80, 10, 100, False),
        (0.85, 37, 99, False),
        (0.96, 100, 100, False),  # four times as often right as by chance
        (0.97, 100, 100, True),
        (0.99, 1000, 50, False),
        (0.30, 2, 10, True),  # 14 of 20 may be luck
        (0.10, 2, 10, False),
        (0.46, 2, 1000, True),
        (0.40, 2, 1000, False),
        (0.00, 2, 1, False),  # nobody can do better
    ],
)
def test_both_sides_of_the_line(error: float, classes: int, each: int, near: bool) -> None:
    assert is_near_chance(answers(error, classes, each)) == near


def test_the_most_frequent_class_is_no_merit_and_recognizing_rare_ones_is() -> None:
    assert is_near_chance(counts(np.array([[950, 0], [50, 0]])))
    assert is_near_chance(counts(np.array([[940, 10], [47, 3]])))
    assert not is_near_chance(
        counts(np.array([[900, 50], [10, 40]]))
    )  # 94 % right, below the 95 % of the frequent class
    assert not is_near_chance(counts(np.array([[7, 0], [0, 0]])))  # one class in the test says nothing
    assert is_near_chance(counts(np.array([[9, 1, 90], [9, 1, 90], [0, 0, 0]])))  # names a class that is not there


def test_guessing_is_told_nearly_always() -> None:
    random = np.random.default_rng(0)
    for classes, images in ((2, 30), (10, 200), (37, 400)):
        labels = random.integers(0, classes, (200, images))
        told = [find_alarms(random.normal(size=(images, classes)), truth) for truth in labels]
        assert sum(map(bool, told)) >= 190


def test_the_sentence() -> None:
    labels = np.repeat([0, 1, 2], [6, 2, 2])
    assert find_alarms(np.eye(3)[labels], labels) == []
    (sentence,) = find_alarms(np.eye(3)[np.zeros(10, dtype=int)], labels, who="FixMatch (seed 1)")
    beginning = "The result of FixMatch (seed 1) is hardly better than guessing: 60.0 % of 10 test images are right"
    assert sentence.startswith(f"{beginning}, and always naming the most frequent class gives 60.0 %. ")


def told_why(**row: object) -> list[str]:
    labels = np.arange(100) % 10
    return find_alarms(np.eye(10)[np.zeros(100, dtype=int)], labels, row=row)[1:]


def test_why_a_result_is_that_of_guessing() -> None:
    (sentence,) = told_why(quality=0.11, coverage=0.4)
    assert sentence.startswith(
        "The pseudo-labels of this model are no better than chance: 11.0 % of those in use are right, and 10.0 % would "
        "be by luck. "
    )
    assert told_why(quality=0.3, coverage=0.4) == []
    assert told_why(quality=0.11, coverage=0.005) == []  # hardly any
    by_class = {"known_by_class": [0.4, *[0.0] * 9], "images_by_class": [0.55, *[0.05] * 9]}
    (sentence,) = told_why(quality=0.55, coverage=0.4, **by_class)  # always the frequent class
    assert "55.0 % would be by luck" in sentence
    (sentence,) = told_why(loss_labeled=0.001)
    assert "known by heart (their loss is 0.001)" in sentence
    assert told_why(loss_labeled=0.5, quality=None, coverage=[1]) == []
    assert told_why() == []


def test_a_good_result_needs_no_reasons() -> None:
    labels = np.arange(100) % 10
    assert find_alarms(np.eye(10)[labels], labels, row={"quality": 0.1, "coverage": 1.0, "loss_labeled": 0.0}) == []


def test_classes_without_a_test_image_are_named() -> None:
    names = ["sea", "forest", "street"]
    assert find_untested(np.array([2, 0, 1, 1]), names) == []
    (sentence,) = find_untested(np.array([0, 2, 2]), names)
    assert sentence == "No test image is of forest: the test error says nothing about it."
    (sentence,) = find_untested(np.array([0]), [f"class {number}" for number in range(1, 15)])
    assert sentence.startswith("No test image is of class 2, class 3, ")
    assert sentence.endswith(", class 11 and 3 more: the test error says nothing about them.")


def told_of_start(row: dict[str, object] | None, who: str = "this model") -> list[str]:
    labels = np.arange(100) % 10  # of a classifier with these answers much would have to be said
    return find_alarms(np.eye(10)[np.zeros(100, dtype=int)], labels, who, row, start=True)


def test_a_start_that_cannot_tell_turns_has_learned_nothing() -> None:
    (sentence,) = told_of_start({"step": 200, "turns_found": 0.262}, "RotNet")
    assert sentence.startswith(
        "RotNet finds the turn of 26 % of the images, and guessing that of a quarter: there may be "
    )
    assert told_of_start({"step": 199, "turns_found": 0.25}) == []  # nobody can tell yet
    assert told_of_start({"step": 200, "turns_found": 0.31}) == []
    assert told_of_start({"step": 200, "turns_found": None}) == []
    assert told_of_start({"step": 200, "loss": 5.0}) == told_of_start({}) == told_of_start(None) == []  # MoCo
