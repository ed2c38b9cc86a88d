from __future__ import annotations

from typing import Any

import pytest

from epass.labeling.enough import enough, standing, why_no_accuracy


def row(labels: int, accuracy: float | None, changed: float | None = 0.1, **more: Any) -> dict[str, Any]:
    wide = 2 / max(labels, 1) ** 0.5
    low, high = (None, None) if accuracy is None else (max(0.0, accuracy - wide / 2), min(1.0, accuracy + wide / 2))
    facts = {"n": labels, "labels": labels, "how": "semi-supervised", "accuracy": accuracy, "low": low, "high": high}
    return {**facts, "changed": changed, "asked": 0, "right": 0, **more}


def test_without_an_accuracy_it_is_not_enough() -> None:
    assert enough([], 100)["verdict"] == "not yet"
    assert enough([row(4, None)], 100)["verdict"] == "not yet"


def test_few_labels_are_not_enough_however_good_they_look() -> None:
    said = enough([row(10, 1.0, 0.0), row(15, 1.0, 0.0), row(20, 1.0, 0.0)], 100)
    assert said["verdict"] == "not yet"
    assert "20 labels" in said["sentence"]


def test_a_model_that_still_grows_needs_more_labels() -> None:
    said = enough([row(30, 0.70), row(40, 0.75), row(60, 0.85, 0.01), row(61, 0.85, 0.01)], 100)
    assert said["verdict"] == "not yet"
    assert "10 points higher" in said["sentence"]


def test_a_model_that_no_longer_changes_has_enough() -> None:
    history = [row(labels, 0.9, 0.01) for labels in range(60, 160, 5)]
    assert enough(history, 100)["verdict"] == "yes"


def test_a_settled_model_of_which_little_is_known_has_probably_enough() -> None:
    history = [row(labels, 0.9, 0.01) for labels in (20, 30, 35, 40, 45)]
    assert history[-1]["high"] - history[-1]["low"] > 0.2
    assert enough(history, 100)["verdict"] == "probably"


def test_right_guesses_speak_for_enough_and_wrong_ones_do_not() -> None:
    history = [row(labels, 0.9, 0.05, asked=5, right=5) for labels in (20, 30, 35, 40)]
    said = enough(history, 100)
    assert said["verdict"] == "probably"
    assert "10 of your last 10 answers" in said["sentence"]
    assert enough([row(labels, 0.9, 0.05, asked=5, right=3) for labels in (20, 30, 40)], 100)["verdict"] == "not yet"


def test_rows_of_the_other_way_to_learn_are_not_compared_with() -> None:
    history = [row(40, 0.5, how="labels only"), *(row(labels, 0.9, 0.01) for labels in range(60, 160, 5))]
    assert enough(history, 100)["verdict"] == "yes"


def test_labels_that_were_taken_back_speak_for_nothing() -> None:
    accepted = [row(40, 0.8, n=1), row(300, 0.9, 0.0, n=2, asked=260, right=260), row(40, 0.8, n=3)]
    assert standing(accepted) == [accepted[0], accepted[2]]
    assert enough(standing(accepted), 100)["verdict"] == "not yet"
    late = [row(41, 0.8, n=6), row(40, 0.8, n=5)]  # which took longer to learn
    assert standing(late) == late


def test_where_every_image_has_an_answer_it_is_enough() -> None:
    assert enough([], 0)["verdict"] == "yes"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "two classes"),
        ({"a": 9, "b": 0}, "two classes"),
        ({"a": 2, "b": 2}, "6 more"),
        ({"a": 20, "b": 1}, "Class 'b' has a single label"),
        ({"a": 20, "b": 1, "c": 1}, "2 classes have a single label"),
    ],
)
def test_few_labels_tell_no_accuracy_and_it_is_said_why(counts: dict[str, int], words: str) -> None:
    assert words in (why_no_accuracy(counts) or "")


def test_from_two_labels_in_each_class_on_there_is_an_accuracy() -> None:
    assert why_no_accuracy({"a": 8, "b": 2, "c": 0}) is None
