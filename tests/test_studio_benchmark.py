"""The benchmark of the studio asks it as a browser does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import studio_load

STUDIO = Path(__file__).parent / "studio"


@pytest.mark.slow
def test_opening_scrolling_and_answering_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(STUDIO)!r})
from epass.studio import command
from stand_ins import open_with_stand_ins
command.open_desk = open_with_stand_ins
sys.argv[0] = "epass"
from epass.cli import main
main()
"""
    monkeypatch.setattr(studio_load, "COMMAND", [sys.executable, "-u", "-c", program])
    studio_load.make_photos(tmp_path / "tiny", 12)
    found = studio_load.load(tmp_path / "tiny", 12, scrolled=5, answers=3)
    assert found["scrolled"] == 5
    assert found["idle_ms"]["answer"].keys() == {"p50", "p95", "p100"}
    assert found["memory_mb"]["after"]["VmHWM"] > 10
    assert any("listening_s" in line for line in studio_load.table(found))
    table = (tmp_path / "tiny" / "labels.csv").read_text()
    assert table.count(",one") == 3
