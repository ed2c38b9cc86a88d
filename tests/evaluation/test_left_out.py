"""Errors and differences from a few labels, with intervals that know how few they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from epass.errors import InputError
from epass.evaluation.left_out import choose, estimate_error, estimate_gap, mistakes


def missed(count: int, total: int) -> NDArray[np.bool_]:
    return np.arange(total) < count


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (1, 10, 0.0179, 0.4042), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_the_interval_of_an_error_is_wilsons(count: int, total: int, low: float, high: float) -> None:
    found = estimate_error(missed(count, total))
    assert (found.value, found.labels) == (count / total, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_a_gap_counts_the_labels_that_only_one_misses() -> None:
    found = estimate_gap(missed(4, 12), missed(0, 12))
    assert found.value == pytest.approx(4 / 12)
    middle, reach = 4 / 14, 1.96 * math.sqrt(5 / 14 - (4 / 14) ** 2) / math.sqrt(14)
    assert (found.low, found.high) == pytest.approx((middle - reach, middle + reach))
    assert found.low > 0
    assert estimate_gap(missed(3, 12), missed(0, 12)).low < 0  # three labels may be luck
    assert estimate_gap(missed(0, 12), missed(4, 12))[:3] == pytest.approx((-found.value, -found.high, -found.low))
    same = estimate_gap(missed(6, 12), missed(6, 12))
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)
    assert same.high > 0


def test_the_interval_of_a_gap_ends_where_errors_do() -> None:
    always, never = missed(2, 2), missed(0, 2)
    assert estimate_gap(always, never).high == 1
    assert estimate_gap(never, always).low == -1


def test_the_interval_of_a_gap_holds_what_it_says() -> None:
    random = np.random.default_rng(0)
    kinds, chances = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=bool), [0.2, 0.05, 0.1, 0.65]
    held = 0
    for _ in range(400):
        drawn = kinds[random.choice(4, size=30, p=chances)]
        found = estimate_gap(drawn[:, 0], drawn[:, 1])
        held += found.low <= 0.15 <= found.high
    assert held / 400 > 0.92


def test_what_was_never_answered_is_no_mistake() -> None:
    logits = np.array([[2.0, 1.0], [np.nan, np.nan], [2.0, 1.0]])
    assert mistakes(logits, np.array([0, 1, 1])).tolist() == [False, True]
    with pytest.raises(InputError, match="are not finite"):
        mistakes(np.array([[np.inf, 1.0]]), np.array([0]))
    assert len(mistakes(np.full((2, 3), np.nan), np.array([0, 1]))) == 0


def test_many_gaps_need_more_than_one() -> None:
    alone, among = (estimate_gap(missed(5, 12), missed(0, 12), gaps) for gaps in (1, 25))
    assert among.value == alone.value
    assert among.low < 0 < alone.low


def test_the_usual_is_chosen_unless_another_is_better_by_more_than_luck() -> None:
    wrong = {"plain": missed(9, 30), "usual": missed(4, 30), "lucky": missed(2, 30)}
    assert choose(wrong, "usual") == ("usual", False)
    assert choose(wrong | {"good": missed(0, 30), "usual": missed(16, 30)}, "usual") == ("good", True)
    assert choose(wrong, None) == ("lucky", False)
    assert choose({"first": missed(2, 30)} | wrong, None) == ("first", False)
    assert choose({"only": missed(2, 30)}, None) == ("only", False)
