"""The benchmark of growth: a few cells of it, and what it makes of them."""

from __future__ import annotations

import time
from pathlib import Path

import growth
import pytest


def rows(*cells: tuple[int, str]) -> list[dict[str, str]]:
    return [{"images": str(images), "seconds": seconds} for images, seconds in cells]


def test_the_exponent_is_that_of_the_last_two_sizes() -> None:
    assert growth.exponent(rows((10, "9"), (1000, "1"), (10_000, "100")), "images", "seconds") == pytest.approx(2)
    assert growth.exponent(rows((1000, "1"), (10_000, "10"), (100_000, "")), "images", "seconds") == pytest.approx(1)
    assert growth.exponent(rows((1000, "0.001"), (10_000, "0.009")), "images", "seconds") is None, "too little"
    assert growth.exponent(rows((1000, "1")), "images", "seconds") is None


def test_a_cell_that_takes_too_long_is_stopped_and_the_next_left_out(tmp_path: Path) -> None:
    slow = growth.Part("slow", growth.nothing, lambda folder, images, classes: lambda: time.sleep(images / 1000))
    found = list(growth.measure(slow, "images", (10, 100, 100_000), 0.5))
    assert [bool(row.get("seconds")) for row in found] == [True, True, False]
    assert found[2]["note"].startswith("left out: 1")
    late = list(growth.measure(slow, "images", (100_000, 1_000_000), 0.2))
    assert [row["note"] for row in late] == ["stopped after 0 s", "left out: 2 s expected"]


def test_what_goes_wrong_in_a_cell_is_told() -> None:
    def fail(folder: Path, images: int, classes: int) -> None:
        raise ValueError("no room")

    (row,) = growth.measure(growth.Part("bad", fail, growth.splits), "images", (1000,), 5.0)
    assert row["note"] == "ValueError: no room"


def test_parts_are_measured_and_those_of_before_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(growth.OTHER, "classes", 60)
    out = tmp_path / "growth.csv"
    few = ["--most", "2", "--axes", "classes", "--seconds", "60", "--out", str(out), "--parts"]
    growth.main([*few, "table", "step on vectors"])
    growth.main([*few, "archive"])
    found = growth.read(out)
    assert [row["part"] for row in found] == ["archive", "table", "step on vectors"]
    assert [(row["images"], row["classes"], row["note"]) for row in found] == [("60", "2", "")] * 3
    assert all(float(row["seconds"]) > 0 and row["machine"] for row in found)
    assert len(capsys.readouterr().out.splitlines()) == 3
