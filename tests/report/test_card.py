from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from epass.errors import InputError
from epass.report import write_card
from epass.report.card import render_card
from epass.runs import Predictions

FACTS = {"channels": 3, "height": 8, "width": 6}


@pytest.fixture
def run(make_run):
    made = make_run()
    made.model.update(FACTS)
    made.results.update(labels=40, images=1000, held_out=True)
    return made


def rows(card, heading):
    part = card.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in part.splitlines() if line.startswith("| ")][2:]


def test_every_class_has_its_error_and_what_it_is_taken_for(run):
    truth = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    predicted = np.array([0, 0, 0, 1, 1, 2, 1, 1])
    answers = replace(run, predictions=Predictions(np.eye(3, dtype=np.float32)[predicted], truth))
    card = render_card(answers, "title")
    assert rows(card, "Error of every class") == [
        "| cat | 6 | 50.00 % | 50.00 % | dog (2) |",
        "| dog | 2 | 0.00 % | 100.00 % | – |",
        "| ship | 0 | – | – | – |",
    ]
    assert "1 class without a test image" in card


def test_of_many_classes_the_worst_are_listed(run):
    truth = np.repeat(np.arange(40), 2)
    predicted = truth.copy()
    predicted[2 * 35 : 2 * 35 + 2] = 0
    predicted[2 * 7] = 3
    run.model["classes"] = [f"c{number}" for number in range(40)]
    many = replace(run, predictions=Predictions(np.eye(40, dtype=np.float32)[predicted], truth))
    listed = rows(render_card(many, "title"), "Error of every class")
    assert len(listed) == 30
    assert listed[:2] == ["| c35 | 2 | 100.00 % | 0.00 % | c0 (2) |", "| c7 | 2 | 50.00 % | 50.00 % | c3 (1) |"]


def test_best_on_test_is_named_as_such(run):
    scores = rows(render_card(run, "title"), "Test scores")
    assert scores[0] == "| test error, last step | 10.00 %: the stored weights |"
    assert scores[1] == (
        "| test error, best on test | 9.00 % at step 300, chosen by looking at the test labels: only to compare with "
        "papers; the weights of that step are not stored |"
    )
    run.results["best_on_test"]["step"] = 400
    assert "not stored" not in render_card(run, "title")


def test_a_row_cannot_be_broken_by_a_name(run):
    run.model["classes"][0] = "a|b"
    assert rows(render_card(run, "title"), "Error of every class")[0].startswith("| a&#124;b | 20 |")


def test_the_limits_follow_from_the_run(run):
    card = render_card(run, "title")
    assert "One test image is 1.67 points of error, and the standard error of the test error is 3.87 points." in card
    assert "from the same collection" in card
    assert "pre-trained" not in card
    run.results["held_out"] = False
    run.recipe["start"] = {"weights": "somewhere"}
    card = render_card(run, "title")
    assert "from the same collection" not in card
    assert "It started from pre-trained weights" in card


def test_a_path_is_named_by_its_end(run):
    run.recipe["data"]["name"] = "/home/somebody/photos"
    card = render_card(run, "title")
    assert "- data set: photos\n" in card
    assert "somebody" not in card


def test_an_unfinished_run_has_no_card(tmp_path, make_run):
    with pytest.raises(InputError, match="no finished model yet"):
        write_card(tmp_path / "card.md", make_run(finished=False), title="title")
    assert list(tmp_path.iterdir()) == []
