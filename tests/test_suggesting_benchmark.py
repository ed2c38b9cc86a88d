from __future__ import annotations

from pathlib import Path

import pytest
import suggesting


@pytest.mark.slow
def test_suggested_labels_are_measured_against_random_ones_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "suggest.csv"
    asked = ["--data", "digits", "--classifiers", "logistic regression", "--seeds", "1", "--out", str(table)]
    suggesting.main([*asked, "--figure", str(tmp_path / "curves.svg")])
    rows = suggesting.read(table)
    errors = {(row["labeled"], row["labels"]): float(row["error"]) for row in rows}
    assert len(errors) == 9
    for labels in ("12", "24", "36"):
        assert errors["suggested", labels] < errors["random", labels]
    assert (tmp_path / "curves.svg").stat().st_size > 1000
    capsys.readouterr()
    suggesting.main(asked)
    assert capsys.readouterr().out == ""  # nothing is run again
    assert suggesting.read(table) == rows
    suggesting.main(["--data", "digits", "--seeds", "1", "--label-errors"])
    assert capsys.readouterr().out.count("of the wrong ones found") == 3
