"""A process that is killed loses nothing that it acknowledged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=os.environ, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_hundred_kills_lose_no_acknowledged_answer() -> None:
    counts = json.loads(run(str(ROOT / "benchmarks" / "labeling_kills.py"), "--kills", "100"))
    assert counts["kills"] == 100
    assert counts["lost"] == 0
    assert counts["answers"] > 100


@pytest.mark.slow
def test_five_kills_of_the_studio_lose_no_acknowledged_answer() -> None:
    pytest.importorskip("uvicorn")
    counts = json.loads(run(str(ROOT / "benchmarks" / "labeling_kills.py"), "--server", "--kills", "5", "--seed", "3"))
    assert counts["kills"] == 5
    assert counts["lost"] == 0
    assert counts["answers"] > 0


def test_labeling_needs_no_torch(tmp_path: Path) -> None:
    script = """
import sys, pathlib
sys.modules["torch"] = None
from photo_folder import make, opened, say
from epass.labeling.thumbnails import picture, thumbnail
project = opened(make(pathlib.Path("photos")))
say(project, 0, 1)
thumbnail(project, 0, 160), picture(project, 0)
for kind in ("csv", "json", "folders"):
    name, pieces = project.hand_out(kind)
    project.take_in(name, b"".join(pieces), True)
project.close()
opened(pathlib.Path("photos")).close()
assert pathlib.Path("photos/labels.csv").exists()
"""
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "labeling")]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
