"""From a length of time to a number of steps, and what is said when that did not work out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from epass.app.budget import Budget, misjudged, too_few
from epass.engine.timing import STEADY_SECONDS, is_steady


def clock(**facts: Any) -> Any:
    return SimpleNamespace(**{"step": 9, "steps": 89, "made": 8, "spent": 6.0, "left": 50.0, "pace": 0.625, **facts})


def test_steps_of_a_machine_that_was_busy_at_first_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(120.0)
    monkeypatch.setattr(Budget, "spent", 12.0)
    assert budget.better_steps(clock()) == int(0.9 * 108 / 0.625)
    assert budget.better_steps(clock(left=100.0)) == 0
    assert budget.better_steps(clock(left=140.0, pace=1.75)) == int(0.9 * 108 / 1.75)
    assert budget.better_steps(clock(left=1000.0, pace=1000.0)) == 1


def test_a_tenth_of_the_steps_or_of_the_time_is_enough_to_judge() -> None:
    budget, long = Budget(120.0), Budget(36_000.0)
    assert budget.can_judge(clock())
    assert not budget.can_judge(clock(step=8))
    assert budget.can_judge(clock(step=8, spent=12.0))
    assert not budget.can_judge(clock(step=8, spent=12.0, made=1))
    assert not long.can_judge(clock(steps=10_000, spent=119.0))
    assert long.can_judge(clock(steps=10_000, spent=120.0))  # nobody waits longer to hear that a run starts over


def test_too_few_steps_are_told_with_what_to_do() -> None:
    assert too_few(300, 40, 64, 120.0) == ""
    assert too_few(89, 40, 64, 120.0) == (
        "Only 89 steps fit into 2 min, and less than 300 teach hardly anything: give more time (--budget 7m), smaller "
        "images (--image-size) or a smaller network (--net)."
    )
    assert "less than 313 teach" in too_few(312, 4000, 64, 120.0)  # five passes over the labels
    assert too_few(313, 4000, 64, 120.0) == ""


def test_time_that_was_not_used_is_told() -> None:
    assert misjudged(100.0, 120.0, 89) == misjudged(150.0, 120.0, 89) == ""
    assert misjudged(56.0, 120.0, 89) == (
        "Training took 56 s and not the 2 min asked for, because the machine was slower when its steps were timed: "
        "--steps 190 would fit at the pace of this run."
    )
    assert "was faster when" in misjudged(200.0, 120.0, 89)


def test_steps_are_tried_until_they_take_the_same_time() -> None:
    second = STEADY_SECONDS / 12
    assert is_steady([second] * 12)
    assert not is_steady([second] * 11)
    assert not is_steady([0.9 * second] * 12)
    assert is_steady([50 * second, *[second] * 30])  # the first one is slower than any other
    assert not is_steady([*[2 * second] * 12, *[second] * 4])  # a neighbor has just gone
    assert is_steady([*[2 * second] * 12, *[second] * 40])
