"""The benchmark of growth: a few cells of it, and what it makes of them."""

from __future__ import annotations

import time
from pathlib import Path

import growth
import pytest

from epass.report import group_runs
from epass.runs import load_run


def rows(*cells: tuple[int, str]) -> list[dict[str, str]]:
    return [{"images": str(images), "seconds": seconds} for images, seconds in cells]


def test_the_exponent_is_that_of_the_last_two_sizes() -> None:
    assert growth.exponent(rows((10, "9"), (1000, "1"), (10_000, "100")), "images", "seconds") == pytest.approx(2)
    assert growth.exponent(rows((1000, "1"), (10_000, "10"), (100_000, "")), "images", "seconds") == pytest.approx(1)
    assert growth.exponent(rows((1000, "0.001"), (10_000, "0.009")), "images", "seconds") is None, "too little"
    assert growth.exponent(rows((1000, "1")), "images", "seconds") is None


def test_a_cell_that_takes_too_long_is_stopped_and_the_next_left_out(tmp_path: Path) -> None:
    slow = growth.Part("slow", growth.nothing, lambda folder, size: lambda: time.sleep(size.images / 1000))
    found = list(growth.measure(slow, "images", (10, 100, 100_000), 0.5))
    assert [bool(row.get("seconds")) for row in found] == [True, True, False]
    assert 50 < int(found[2]["note"].removeprefix("left out: ").removesuffix(" s expected")) < 200
    late = list(growth.measure(slow, "images", (100_000, 1_000_000), 0.2))
    assert [row["note"] for row in late] == ["stopped after 0 s", "left out: 2 s expected"]


def test_what_goes_wrong_in_a_cell_is_told() -> None:
    def fail(folder: Path, size: growth.Size) -> None:
        raise ValueError("no room")

    (row,) = growth.measure(growth.Part("bad", fail, growth.splits), "images", (1000,), 5.0)
    assert row["note"] == "ValueError: no room"


def test_parts_are_measured_and_those_of_before_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(growth.IMAGES, "classes", 60)
    out = tmp_path / "growth.csv"
    few = ["--most", "2", "--axes", "classes", "--seconds", "60", "--out", str(out), "--parts"]
    growth.main([*few, "table", "step on vectors"])
    growth.main([*few, "archive"])
    found = growth.read(out)
    assert [row["part"] for row in found] == ["archive", "table", "step on vectors"]
    assert [(row["images"], row["classes"], row["note"]) for row in found] == [("60", "2", "")] * 3
    assert all(float(row["seconds"]) > 0 and row["machine"] for row in found)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_takes_its_time_whatever_the_size_is_does_not_count_as_growth() -> None:
    assert growth.expected([(10, 3.0), (100, 3.9)], 1000) == pytest.approx(12.9)
    assert growth.expected([(10, 4.0), (100, 3.9)], 1000) == pytest.approx(3.9), "noise"
    steady = growth.Part("steady", growth.nothing, lambda folder, size: lambda: time.sleep(0.2))
    assert all(row.get("seconds") for row in growth.measure(steady, "images", (10, 100, 1000), 1.5))


def test_a_cell_that_is_left_out_says_how_long_the_work_takes_without_its_files() -> None:
    def make(folder: Path, size: growth.Size) -> None:
        time.sleep(size.images / 1000)

    part = growth.Part("files", make, lambda folder, size: lambda: None)
    *_, row = growth.measure(part, "images", (10, 100, 100_000), 5.0)
    assert row["note"] == "left out: 0 s expected"


@pytest.mark.slow
def test_runs_and_reports_are_as_many_as_asked_for(tmp_path: Path) -> None:
    growth.make_ways(tmp_path / "ways", growth.Size(60, runs=3))
    growth.make_seeds(tmp_path / "seeds", growth.Size(60, runs=2))
    growth.make_reports(tmp_path / "reports", growth.Size(60, reports=30))
    ways, seeds = (
        [load_run(path) for path in sorted((tmp_path / kind / "runs").iterdir())] for kind in ("ways", "seeds")
    )
    assert [run.recipe["method"]["threshold"] for run in ways] == [0.5, 0.5001, 0.5002]
    assert [len(group_runs(runs)) for runs in (ways, seeds)] == [3, 1]
    assert group_runs(seeds)[0].seeds == (0, 1)
    rows = load_run(tmp_path / "reports" / "run").metrics
    assert (len(rows), sum("test_error" in row for row in rows)) == (30, 3)
    growth.resumes(tmp_path / "reports", growth.Size(60, reports=30))()
    assert load_run(tmp_path / "reports" / "run").metrics == rows


def test_a_machine_that_was_busy_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth.os, "cpu_count", lambda: 2)
    assert growth.busy(0.4) == growth.busy(2.0) == ""
    assert growth.busy(6.6) == ", busy with other work (load 7)"
