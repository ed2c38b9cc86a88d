from __future__ import annotations

import math
from typing import Any

import pytest

from epass.errors import InputError
from epass.training.schedule import Plan


def test_warm_up_is_linear_from_zero_to_the_full_rate() -> None:
    plan = Plan(steps=100, warmup_steps=4)
    assert [plan.lr_factor(step) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert Plan(steps=100).lr_factor(0) == 1.0


def test_cosine_spans_seven_sixteenths_of_pi_after_the_warm_up() -> None:
    plan = Plan(steps=110, warmup_steps=10)
    assert plan.lr_factor(60) == pytest.approx(math.cos(7 * math.pi / 32))
    assert plan.lr_factor(110) == pytest.approx(0.195090, abs=1e-6)
    factors = [plan.lr_factor(step) for step in range(10, 111)]
    assert factors == sorted(factors, reverse=True)


def test_half_cosine_ends_at_zero() -> None:
    plan = Plan(steps=110, warmup_steps=10, schedule="half-cosine")
    assert plan.lr_factor(5) == 0.5
    assert plan.lr_factor(10) == 1.0
    assert plan.lr_factor(35) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert plan.lr_factor(60) == pytest.approx(0.5)
    assert plan.lr_factor(110) == plan.lr_factor(200) == pytest.approx(0.0, abs=1e-12)


def test_drops_divide_by_ten_after_shares_of_the_whole_run() -> None:
    plan = Plan(steps=100, warmup_steps=10, schedule="drops", drops=[0.5, 0.75])
    factors = {step: plan.lr_factor(step) for step in (5, 10, 49, 50, 74, 75, 99)}
    wanted = {5: 0.5, 10: 1.0, 49: 1.0, 50: 0.1, 74: 0.1, 75: 0.01, 99: 0.01}
    assert factors == pytest.approx(wanted)


@pytest.mark.parametrize("share", [0.0, 1.0, 60])
def test_drops_lie_within_the_run(share: float) -> None:
    with pytest.raises(InputError, match=r"plan.drops are shares of the run between 0 and 1"):
        Plan(steps=100, schedule="drops", drops=[0.5, share])


@pytest.mark.parametrize("settings", [{"schedule": "drops"}, {"schedule": "drops", "drops": []}, {"drops": [0.5]}])
def test_drops_belong_to_their_schedule(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="need each other"):
        Plan(steps=100, **settings)


def test_a_constant_rate_stays() -> None:
    plan = Plan(steps=100, warmup_steps=10, schedule="constant")
    assert [plan.lr_factor(step) for step in (0, 5, 10, 60, 99)] == [0.0, 0.5, 1.0, 1.0, 1.0]


def test_rate_never_goes_below_zero() -> None:
    assert Plan(steps=10).lr_factor(1000) >= 0.0
    assert Plan(steps=10).lr_factor(13) == 0.0  # where the cosine itself is negative
    assert math.cos(7 * math.pi / 16 * 1.3) < 0


def test_a_plan_of_warm_up_only_is_refused() -> None:
    with pytest.raises(InputError, match=r"plan\.warmup_steps lies between 0 and the 4 steps of the run"):
        Plan(steps=4, warmup_steps=4)


def test_reports_and_evaluations_fall_where_the_plan_says() -> None:
    plan = Plan(steps=25, report_every=4, evaluate_every=10)
    assert [step for step in range(1, 26) if plan.reports_after(step)] == [4, 8, 10, 12, 16, 20, 24, 25]
    assert [step for step in range(1, 26) if plan.evaluates_after(step)] == [10, 20, 25]


def test_unlabeled_batch_follows_the_ratio() -> None:
    assert Plan(steps=1, labeled_batch=3, unlabeled_ratio=5).unlabeled_batch == 15


@pytest.mark.parametrize("name", ["steps", "labeled_batch", "unlabeled_ratio", "report_every", "evaluate_every"])
def test_counts_start_at_one(name: str) -> None:
    with pytest.raises(InputError, match=rf"plan\.{name} must be at least 1, not 0"):
        Plan(**{"steps": 5, name: 0})
    Plan(**{"steps": 5, name: 1})


@pytest.mark.parametrize(("name", "value"), [("lr", 0.0), ("lr", -1.0), ("weight_decay", -1e-9), ("warmup_steps", -1)])
def test_rates_have_the_right_sign(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"plan\.{name}"):
        Plan(**{"steps": 5, name: value})


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("sizes", [{"lr": 3e38}, {"lr": 1e20, "weight_decay": 1e20}])
def test_rates_that_overflow_in_adam_are_refused(optimizer: str, sizes: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"^plan\.lr=.* are too large for {optimizer}: use numbers below 1\.$"):
        Plan(**{"steps": 5, "optimizer": optimizer, **sizes})
    Plan(**{"steps": 5, **sizes})
    Plan(**{"steps": 5, "optimizer": optimizer, "lr": 1e18, "weight_decay": 1e18})


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.nan])
def test_checkpoints_take_some_time(minutes: float) -> None:
    with pytest.raises(InputError, match=r"plan\.checkpoint_minutes must be above 0, not"):
        Plan(steps=5, checkpoint_minutes=minutes)
    assert Plan(steps=5).checkpoint_minutes == 10


@pytest.mark.parametrize("name", ["momentum", "average_momentum"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_momenta_lie_between_zero_and_one(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"plan\.{name} lies in"):
        Plan(**{"steps": 5, name: value})
    Plan(**{"steps": 5, name: 0.0})


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.01])
def test_layer_decay_never_makes_early_layers_faster(decay: float) -> None:
    with pytest.raises(InputError, match=rf"plan\.layer_decay lies above 0 and not above 1, not at {decay}"):
        Plan(steps=4, layer_decay=decay)
