from __future__ import annotations

import io

from rich.console import Console

from epass.cli.plan import per_class
from epass.cli.progress import Clock, reading, watching
from epass.cli.screen import duration
from epass.train.loop import Report


def test_a_terminal_shows_a_bar_and_keeps_the_last_test_error() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    values = {"loss": 1.5, "loss_labeled": 1.0, "loss_unlabeled": 0.5, "coverage": 0.45, "lr": 0.03}

    with watching(console, 400, 0.1) as watch:
        watch(Report(100, {**values, "test_error": 0.123, "test_ece": 0.1}))
        watch(Report(200, values))

    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rpartition("200/400")[2]
    assert "━" in last
    assert "ETA" in last
    assert "loss 1.500 (labeled 1.000, unlabeled 0.500)  coverage 45 %  test error 12.3 %" in last


def test_reading_shows_a_bar_on_a_terminal_only() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with reading(console) as progress:
        assert progress is not None
        progress(3, 12)
    assert isinstance(console.file, io.StringIO)
    assert "3/12" in console.file.getvalue()

    with reading(Console(file=io.StringIO(), force_terminal=False)) as progress:
        assert progress is None


def test_the_time_left_starts_from_the_estimate_and_does_not_count_steps_of_an_earlier_session() -> None:
    clock = Clock(1000, 9.0)

    assert clock.time_left(0) == "2:30:00"
    assert clock.time_left(900) == "15:00"
    assert clock.time_left(999) == "0:00"  # 99 steps took no time at all


def test_lengths_of_time() -> None:
    assert [duration(seconds) for seconds in (1, 89, 600, 5400)] == ["1 s", "89 s", "10 min", "1.5 h"]


def test_labels_per_class() -> None:
    assert per_class([4, 4, 4], ["a", "b", "c"]) == "4 per class"
    assert per_class([4, 1000], ["cat", "dog"]) == "cat 4, dog 1,000"
    assert per_class([*range(1, 14)], [str(n) for n in range(13)]) == "1 to 13 per class"
