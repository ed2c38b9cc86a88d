"""A run that leads nowhere says so while it trains; one that learns does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from epass.app.events import Caution, Progress
from epass.app.train import train
from epass.runs import load_run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds


def told(steps: int, *settings: str) -> list[tuple[int, str]]:
    """Every caution of a run of FixMatch on the digits, and the step at which it came."""
    step, found = 0, []
    for event in train("digits", labels=40, steps=steps, device="cpu", method="fixmatch", settings=settings, out="run"):
        step = event.step if isinstance(event, Progress) else step
        found += [(step, event.sentence)] if isinstance(event, Caution) else []
    return found


def test_a_run_that_stalls_says_so_once_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.engine.run.EARLIEST", 4)
    found = told(
        10, "net.width=4", "plan.lr=1e-9", "method.threshold=0.0", "plan.evaluate_every=2", "plan.labeled_batch=8"
    )
    during = [sentence for step, sentence in found if step == 4]
    assert {step for step, _ in found} == {4, 10}  # neither before nor again, until the end
    assert during[0].startswith("The result of FixMatch after 4 steps is hardly better than guessing: ")
    assert during[1].startswith("The pseudo-labels of FixMatch after 4 steps are no better than chance: ")
    results = load_run("run").results
    assert results is not None
    assert [sentence.partition(" this model ")[0] for sentence in results["alarms"]] == [
        "The result of",
        "The pseudo-labels of",
    ]


def test_a_run_that_learns_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.engine.run.EARLIEST", 20)
    assert told(120, "net.width=8", "plan.evaluate_every=40", "plan.labeled_batch=16") == []
