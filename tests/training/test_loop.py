from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch

from epass.method import Batch, Outcome
from epass.testing.checks import _NoHostSync
from epass.training.loop import Report, train
from epass.training.schedule import Plan
from epass.training.window import NotFiniteError, Window


def feed(step: int) -> Batch:
    nothing = torch.empty(0)
    return Batch((), nothing, (), nothing, nothing, nothing, torch.tensor(step), torch.tensor(0))


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=99.0)


def reports(*given: Any, **named: Any) -> Iterator[Report]:
    return filter(None, train(*given, **named))


def two_parts(batch: Batch) -> Outcome:
    step = batch.step.float()
    return Outcome({"a": step, "b": 10 * step}, {"size": step**2})


def test_a_report_averages_the_steps_since_the_last_one() -> None:
    plan = Plan(steps=5, report_every=2, evaluate_every=100)
    found = list(reports(two_parts, feed, optimizer(), plan))
    assert [report.step for report in found] == [2, 4, 5]
    for report, steps in zip(found, ([0, 1], [2, 3], [4]), strict=True):
        mean = sum(steps) / len(steps)
        assert report.values["loss_a"] == pytest.approx(mean)
        assert report.values["loss_b"] == pytest.approx(10 * mean)
        assert report.values["loss"] == pytest.approx(11 * mean)
        assert report.values["size"] == pytest.approx(sum(step**2 for step in steps) / len(steps))
        assert report.values["lr"] == plan.lr * plan.lr_factor(steps[-1])


def test_reports_come_at_both_intervals_and_at_the_end() -> None:
    plan = Plan(steps=11, report_every=4, evaluate_every=6)
    assert [report.step for report in reports(two_parts, feed, optimizer(), plan)] == [4, 6, 8, 11]


def test_training_goes_on_from_where_it_started() -> None:
    plan = Plan(steps=9, report_every=4, evaluate_every=100)
    seen = []
    whole = list(reports(lambda batch: (seen.append(int(batch.step)), two_parts(batch))[1], feed, optimizer(), plan))
    assert seen == list(range(9))
    seen.clear()
    late = list(reports(lambda b: (seen.append(int(b.step)), two_parts(b))[1], feed, optimizer(), plan, start=4))
    assert seen == list(range(4, 9))
    assert late == whole[1:]
    assert list(reports(two_parts, feed, optimizer(), plan, start=9)) == []


def test_every_step_has_the_rate_of_the_schedule() -> None:
    plan = Plan(steps=7, lr=0.5, warmup_steps=3, report_every=100)
    chosen, seen = optimizer(), []

    def step(batch: Batch) -> Outcome:
        seen.append(chosen.param_groups[0]["lr"])
        return two_parts(batch)

    list(reports(step, feed, chosen, plan))
    assert seen == [0.5 * plan.lr_factor(step) for step in range(7)]


def test_it_yields_after_every_step_and_is_lazy() -> None:
    done = []
    steps = train(
        lambda batch: (done.append(int(batch.step)), two_parts(batch))[1],
        feed,
        optimizer(),
        Plan(steps=6, report_every=2),
    )
    assert done == []
    assert next(steps) is None
    assert done == [0]
    report = next(steps)
    assert report is not None
    assert report.step == 2
    assert done == [0, 1]  # whoever stops consuming stops the training
    assert [step and step.step for step in steps] == [None, 4, None, 6]


@pytest.mark.parametrize(("failing", "whole"), [("feed", True), ("step", False), ("report", False), (None, True)])
def test_the_window_knows_whether_the_last_step_is_whole(failing: str | None, whole: bool) -> None:
    """A feed that fails leaves the state of whole steps; a step, or losses that are no numbers, do not."""

    def give(step: int) -> Batch:
        if failing == "feed" and step == 3:
            raise OSError
        return feed(step)

    def step(batch: Batch) -> Outcome:
        if failing == "step" and batch.step == 3:
            raise OSError
        return Outcome({"a": batch.step * (math.nan if failing == "report" else 1.0)})

    window = Window(0)
    steps = train(step, give, optimizer(), Plan(steps=8, report_every=4), window=window)
    for _ in range(3):
        next(steps)
        assert window.whole
    with suppress(OSError, NotFiniteError):
        next(steps)
    assert window.whole is whole
    assert window.count == (0 if failing is None else 4 if failing == "report" else 3)


def test_a_batch_is_let_go_before_the_next_one_is_made() -> None:
    last: list[weakref.ref[torch.Tensor]] = []

    def give(step: int) -> Batch:
        assert all(batch() is None for batch in last)
        made = torch.tensor(step)
        last[:] = [weakref.ref(made)]
        return feed(step)._replace(step=made)

    plan = Plan(steps=3)
    assert len(list(train(lambda batch: Outcome({"a": torch.ones(())}), give, optimizer(), plan))) == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("start", [0, 5])
def test_a_loss_that_is_no_number_is_named_with_its_step(bad: float, start: int) -> None:
    def step(batch: Batch) -> Outcome:
        # It is a number again afterwards, and the other part is never a problem.
        return Outcome({"fine": torch.tensor(1.0), "odd": torch.tensor(bad if batch.step == 7 else 1.0)})

    found = reports(step, feed, optimizer(), Plan(steps=20, report_every=5), start=start)
    assert [next(found).step for _ in range(1 - start // 5)] == [5] * (1 - start // 5)
    with pytest.raises(NotFiniteError, match=r"loss 'odd' was no longer finite at step 7\."):
        next(found)


@pytest.mark.parametrize("where", [5, 9])
def test_the_first_and_the_last_step_of_a_window_are_looked_at(where: int) -> None:
    def step(batch: Batch) -> Outcome:
        return Outcome({"odd": torch.where(batch.step == where, math.nan, 1.0)})

    with pytest.raises(NotFiniteError, match=rf"'odd' .* at step {where}\."):
        list(reports(step, feed, optimizer(), Plan(steps=20, report_every=5)))


def test_the_first_bad_step_counts_when_it_stays_bad() -> None:
    def step(batch: Batch) -> Outcome:
        return Outcome({"odd": torch.where(batch.step >= 3, math.inf, 1.0)})

    with pytest.raises(NotFiniteError, match=r"at step 3\."):
        list(reports(step, feed, optimizer(), Plan(steps=20, report_every=10)))


def test_a_metric_may_be_no_number() -> None:
    (report,) = reports(
        lambda _: Outcome({"a": torch.tensor(1.0)}, {"odd": torch.tensor(math.nan)}), feed, optimizer(), Plan(steps=2)
    )
    assert math.isnan(report.values["odd"])
    assert report.values["loss"] == 1.0


def counted(known: float, right: float) -> Outcome:
    metrics = {"coverage": torch.tensor(0.5), "used_known": torch.tensor(known), "used_right": torch.tensor(right)}
    return Outcome({"a": torch.tensor(0.0)}, metrics)


def test_quality_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    outcomes = [counted(0.5, 0.5), counted(0.25, 0.0), counted(0.0, 0.0)]
    (report,) = reports(lambda batch: outcomes[int(batch.step)], feed, optimizer(), Plan(steps=3))
    assert report.values["quality"] == pytest.approx(0.5 / 0.75)
    assert set(report.values) == {"loss", "loss_a", "coverage", "quality", "lr"}


def test_there_is_no_quality_where_no_truth_is_known() -> None:
    (report,) = reports(lambda _: counted(0.0, 0.0), feed, optimizer(), Plan(steps=3))
    assert set(report.values) == {"loss", "loss_a", "coverage", "lr"}


def by_class(batch: Batch) -> Outcome:
    step = batch.step.float()
    metrics = {"before": step, "used_by_class": torch.stack([step, 2 * step, step * 0]), "after": -step}
    return Outcome({"a": step + 1}, metrics)


def test_what_is_counted_by_class_is_a_list_of_its_own() -> None:
    plan = Plan(steps=4, report_every=2, evaluate_every=100)
    first, second = reports(by_class, feed, optimizer(), plan)
    assert first.by_class == {"used_by_class": [0.5, 1.0, 0.0]}
    assert second.by_class == {"used_by_class": [2.5, 5.0, 0.0]}
    assert second.values == {"loss": 3.5, "loss_a": 3.5, "before": 2.5, "after": -2.5, "lr": second.values["lr"]}


def test_the_host_does_not_wait_between_reports() -> None:
    window, outcomes = Window(0), [two_parts(feed(step)) for step in range(3)]
    classes, counted = Window(0), [by_class(feed(step)) for step in range(3)]
    with _NoHostSync():
        for outcome in outcomes:
            window.add(outcome)
        for outcome in counted:
            classes.add(outcome)
    assert classes.by_class() == {"used_by_class": [1.0, 2.0, 0.0]}
    assert window.means()["loss_b"] == pytest.approx(10.0)


def test_windows_add_up_in_float32_whatever_the_step_returns() -> None:
    half = Outcome({"a": torch.tensor(1.0, dtype=torch.bfloat16)})
    (report,) = reports(lambda _: half, feed, optimizer(), Plan(steps=300, report_every=300))
    assert report == Report(300, {"loss": 1.0, "loss_a": 1.0, "lr": report.values["lr"]})
