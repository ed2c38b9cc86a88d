from __future__ import annotations

import json
from pathlib import Path

import projectors
import pytest


@pytest.mark.slow
def test_every_number_of_projectors_is_timed_in_every_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "times.json"
    projectors.main(
        [
            "--projectors",
            "1",
            "2",
            "--net",
            "small",
            "--turns",
            "2",
            "--steps",
            "1",
            "--device",
            "cpu",
            "--out",
            str(out),
        ]
    )
    times = json.loads(out.read_text())["turns_ms"]
    assert set(times) == {"1 projectors", "2 projectors"}
    assert all(len(turns) == 2 and min(turns) > 0 for turns in times.values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("1 projectors")
    assert lines[1].endswith("+0.0 %")
    assert lines[2].startswith("2 projectors")
