from __future__ import annotations

import csv
from pathlib import Path

import guard
import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The result of .* is hardly better than guessing")  # of four steps
def test_each_run_is_a_line(tmp_path: Path) -> None:
    random, labels, out = np.random.default_rng(0), np.arange(60) % 2, tmp_path / "guard.csv"
    vectors = (random.normal(size=(60, 4)) + labels[:, None]).astype(np.float32)
    np.savez(tmp_path / "made.npz", vectors=vectors, labels=labels)
    short = ["--set", "plan.steps=4", "--set", "plan.labeled_batch=4", "--set", "net.hidden=4"]
    guard.main([str(tmp_path / "made.npz"), "--labels", "6", "--seeds", "2", *short, "--csv", str(out)])
    with out.open(newline="") as file:
        heads, *rows = csv.reader(file)
    assert tuple(heads) == guard.HEADS
    assert [row[:3] for row in rows] == [["made", "6", "0"], ["made", "6", "1"]]
    assert all(len(row) == len(heads) and all(row) for row in rows)
