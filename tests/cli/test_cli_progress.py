from __future__ import annotations

import io

import pytest
from rich.console import Console

from epass.app import train
from epass.app.events import Progress
from epass.app.plan import per_class
from epass.app.words import duration
from epass.cli.progress import Watch, clock, reading
from epass.training.loop import Report


def test_a_terminal_shows_a_bar_and_keeps_the_last_test_error() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    values = {"loss": 1.5, "loss_labeled": 1.0, "loss_unlabeled": 0.5, "coverage": 0.45, "lr": 0.03}

    watch = Watch(console)
    watch.show(Progress(100, 400, {**values, "test_error": 0.123, "test_ece": 0.1}, 30.0))
    watch.show(Progress(200, 400, values, 20.0))
    watch.stop()

    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rpartition("200/400")[2]
    assert "━" in last
    assert "ETA 0:20" in last
    assert "loss 1.500 (labeled 1.000, unlabeled 0.500)  coverage 45 %  test error 12.3 %" in last


def test_reading_shows_a_bar_on_a_terminal_only() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with reading(console) as progress:
        assert progress is not None
        progress(3, 12)
        progress(12, 12)
        Watch(console).show(Progress(1, 2))  # two bars at a time would be refused
    assert isinstance(console.file, io.StringIO)
    assert "3/12" in console.file.getvalue()

    with reading(Console(file=io.StringIO(), force_terminal=False)) as progress:
        assert progress is None


def test_the_time_left_is_that_of_steps_of_this_process_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 109.0, 110.0, 113.0, 113.0])
    monkeypatch.setattr(train.time, "perf_counter", lambda: next(times))
    watch = train.Clock(900, 1000, exact=False)

    def left(report: Report | None) -> float:
        list(watch.tick(report))
        return watch.left

    assert left(None) == 99 * 9.0  # better than nothing
    assert left(None) == 98 * 1.0
    assert left(Report(950, {})) == 50 * 2.0  # a damaged checkpoint made it start elsewhere


def test_a_clock() -> None:
    assert [clock(seconds) for seconds in (9000, 900, 0.4, None)] == ["2:30:00", "15:00", "0:00", "unknown"]


def test_lengths_of_time() -> None:
    assert [duration(seconds) for seconds in (1, 89, 600, 5400)] == ["1 s", "89 s", "10 min", "1.5 h"]


def test_labels_per_class() -> None:
    assert per_class([4, 4, 4], ["a", "b", "c"]) == "4 per class"
    assert per_class([4, 1000], ["cat", "dog"]) == "cat 4, dog 1,000"
    assert per_class([*range(1, 14)], [str(n) for n in range(13)]) == "1 to 13 per class"
