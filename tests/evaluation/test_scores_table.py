"""The one table of scores: what every entry must have, and how values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from epass.errors import InputError
from epass.evaluation import SCORES, Outputs, Score, add_score, score, scores_for

LOGITS, LABELS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 0, 0])


@pytest.fixture(autouse=True)
def same_table_after() -> Iterator[None]:
    before = dict(SCORES)
    yield
    SCORES.clear()
    SCORES.update(before)


@pytest.mark.parametrize("entry", SCORES.values(), ids=list(SCORES))
def test_an_entry_is_complete(entry: Score) -> None:
    assert SCORES[entry.key] is entry
    assert entry.better in ("lower", "higher")
    assert entry.compute is not None
    assert entry.definition
    assert not entry.definition.endswith(".")
    assert not entry.opposite or SCORES[entry.opposite].better != entry.better


def test_names_are_told_apart() -> None:
    for names in ([entry.name for entry in SCORES.values()], [entry.head for entry in SCORES.values()]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("key", "value", "deviation", "cell", "text"),
    [
        ("error", 0.12345, None, "12.35", "12.35 %"),
        ("ece", 0.05, 0.0049, "5.00 ± 0.49", "5.00 ± 0.49 %"),
        ("nll", 0.1767, None, "0.177", "0.177"),
        ("auc", 0.99887, 0.0, "0.9989 ± 0.0000", "0.9989 ± 0.0000"),
    ],
)
def test_values_are_written_in_their_unit(key: str, value: float, deviation: float, cell: str, text: str) -> None:
    assert (SCORES[key].cell(value, deviation), SCORES[key].text(value, deviation)) == (cell, text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(119.4, "119 s"), (119.5, "2 min"), (3599, "1 h 00 min"), (5400.0, "1 h 30 min")]
)
def test_time_is_written_in_hours_and_minutes(seconds: float, text: str) -> None:
    assert Score("seconds", "time", "", "lower", unit="s").text(seconds, 3.0) == text


def test_heads_and_explanations() -> None:
    assert [SCORES[key].head for key in ("ece", "nll", "f1")] == ["ECE, %", "NLL", "F1, %"]
    assert SCORES["ece"].explanation().startswith("Calibration error (ECE): mean gap between accuracy and confidence ")
    assert re.fullmatch(r"Negative log-likelihood \(NLL\): .* \(lower is better\)\.", SCORES["nll"].explanation())
    assert Score("x", "x", "a thing", None).explanation() == "X: a thing."


def test_a_score_of_ones_own_is_computed_after_the_others_from_the_same_outputs() -> None:
    seen: list[Outputs] = []
    for key in ("one", "two"):
        add_score(
            Score(key, key, "the probability of the true class", "higher", lambda o: seen.append(o) or o.probs[0, 0])
        )

    found = score(LOGITS, LABELS)

    assert list(found)[-2:] == ["one", "two"]
    assert found["two"] == pytest.approx(1 / (1 + np.exp(-2)))
    assert type(found["two"]) is float  # of numpy's own, JSON would know nothing
    assert seen[0] is seen[1]
    assert seen[0].probs is seen[1].probs


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_undefined_is_left_out(value: float | None) -> None:
    add_score(Score("mine", "mine", "a share", "higher", lambda outputs: value))
    assert "mine" not in score(LOGITS, LABELS)


@pytest.mark.parametrize(
    ("key", "sentence"), [("error", "There is a score 'error' already"), ("my score", "'my score' cannot name a score")]
)
def test_a_key_must_be_new_and_a_name(key: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        add_score(Score(key, "mine", "a share", "higher", lambda outputs: 0.5))


def test_a_key_that_nobody_knows_has_an_entry_that_no_page_or_terminal_obeys() -> None:
    *known, mine, odd = scores_for(["error", "mine", "<b>[x](y)\n\u202e|", "mine"])

    assert known == list(SCORES.values())
    assert (mine.key, mine.head, mine.text(0.123456), mine.place) == ("mine", "mine", "0.1235", "screen")
    assert odd.name == "_b__x__y____"
