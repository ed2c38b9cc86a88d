"""From a length of time to a number of steps, and what is said when that did not work out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from epass.app.budget import Budget, budget_facts, limited, misjudged, too_few
from epass.app.train import Clock
from epass.engine.timing import STEADY_SECONDS, is_steady


def clock(**facts: Any) -> Any:
    known = {"step": 9, "steps": 89, "made": 8, "spent": 6.0, "pace": 0.625, "recent_pace": 0.625}
    return SimpleNamespace(**{**known, **facts})


def test_steps_of_a_machine_that_was_busy_at_first_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(120.0)
    monkeypatch.setattr(Budget, "spent", 12.0)
    assert budget.better_steps(clock()) == int(0.9 * 108 / 0.625)
    slow = {"pace": 1.25, "recent_pace": 1.25}
    assert budget.better_steps(clock(**slow)) == 0  # 12 s and 80 steps are 112 s
    assert budget.better_steps(clock(**slow | {"recent_pace": 0.5})) == int(0.9 * 108 / 0.5)  # a neighbor has gone
    assert budget.better_steps(clock(**slow | {"recent_pace": 0.9})) == 0  # 108 steps are hardly more than 89
    assert budget.better_steps(clock(pace=2.2, recent_pace=2.5)) == int(0.9 * 108 / 2.2)
    assert budget.better_steps(clock(pace=2.2, recent_pace=2.0)) == 0  # half as long again is acceptable
    assert budget.better_steps(clock(pace=1000.0, recent_pace=1000.0)) == 1


def test_the_first_part_of_a_run_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, long = Budget(120.0), Budget(36_000.0)
    monkeypatch.setattr(Budget, "spent", 12.0)
    assert budget.better_steps(clock(step=8)) == 0  # less than a tenth of the steps, and of the time
    assert budget.better_steps(clock(step=8, spent=12.0)) > 0
    assert budget.better_steps(clock(step=8, spent=12.0, made=1)) == 0
    for spent, settled in ((39.0, [False, False]), (40.0, [True, False]), (300.0, [True, True])):
        monkeypatch.setattr(Budget, "spent", spent)
        assert [budget.settled, long.settled] == settled


def test_the_present_pace_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("epass.app.train.time.perf_counter", lambda: now[0])
    watched = Clock(0, 100, exact=True)
    for seconds in [2.0] * 5 + [0.5] * 10:
        now[0] += seconds
        assert len(list(watched.tick(None))) < 3
    assert watched.recent_pace == 0.5
    assert watched.pace == pytest.approx((2.0 * 4 + 0.5 * 10) / 14)
    for _ in range(2):  # steps may take longer than that
        now[0] += 10.0
        list(watched.tick(None))
    assert watched.recent_pace == 10.0


def test_a_budget_is_a_limit_where_more_steps_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (limited(900, 400), limited(300, 400), limited(900, None)) == (400, 300, 900)
    assert misjudged(10.0, 120.0, 400, 400) == ""
    assert misjudged(10.0, 120.0, 300, 400) != ""
    assert misjudged(200.0, 120.0, 400, 400) != ""
    told = {"budget": "2 min at most: 400 steps take less, and on vectors more teach nothing"}
    assert [budget_facts(400, 120.0, most) for most in (400, 500, None)] == [told, {}, {}]
    assert budget_facts(400, None, 400) == {}
    monkeypatch.setattr(Budget, "spent", 12.0)
    assert Budget(120.0).better_steps(clock()) > 89
    assert Budget(120.0, 89).better_steps(clock()) == 0


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
