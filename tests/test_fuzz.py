"""Damaged run folders, images and archives: a few of them, and that the script would notice a fault.

`benchmarks/fuzz.py` alone makes eight hundred.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@pytest.mark.slow
def test_damaged_files_end_no_command_in_a_traceback(tmp_path: Path) -> None:
    out = tmp_path / "fuzz.json"
    counts = ["--runs", "16", "--images", "16", "--archives", "12"]
    done = subprocess.run([sys.executable, SCRIPT, *counts, "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert figures["findings"] == []
    assert [figures[kind]["cases"] for kind in ("runs", "images", "archives")] == [16, 16, 12]
    assert figures["runs"]["commands"] >= 16
    assert figures["runs"]["refused"] >= 4


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the script sets it, and this takes it back
    return import_module("fuzz")


@pytest.mark.parametrize(
    ("code", "said", "seconds", "memory", "words"),
    [
        (0, "", 1, 0, None),
        (1, "Left out: 'x' is damaged.", 1, 0, None),
        (2, "Error: 'x' is damaged.", 1, 0, None),
        (2, "", 1, 0, "without a sentence"),
        (1, "Traceback (most recent call last)", 1, 0, "Traceback"),
        (99, "", 1, 0, "code 99"),
        (None, "", 1, 0, "did not end"),
        (0, "", 6, 0, "6.0 s"),
        (0, "", 1, 2**31, "bytes"),
    ],
)
def test_what_counts_as_a_fault(
    script: ModuleType, code: int | None, said: str, seconds: float, memory: int, words: str | None
) -> None:
    found = script.judge(script.Outcome(code, said, seconds, memory))
    assert found is None if words is None else words in found


def test_a_case_is_a_function_of_its_number(script: ModuleType, tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        script.image_case(tmp_path / name, random.Random("0 images 3"))
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).rglob("bad*")})
    assert made[0] == made[1]
    assert len(made[0]) == 2
