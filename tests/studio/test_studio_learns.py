"""The whole studio as a person starts it: labels go in, a model comes out, and the server never needs torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from visiting import Visitor

PROGRAM = """
import sys
sys.modules["torch"] = None
sys.argv = ["epass", "studio", *sys.argv[1:]]
from epass.cli import main
main()
"""
PATIENCE = 600  # seconds; a machine may be busy


def workers_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(number) for number in found]


@pytest.mark.slow
def test_a_model_appears_after_labels_of_two_classes_and_is_there_again(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels = random.integers(0, 90, (70, 70, 3)) + 150 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{number:02d}.jpg")
    command = [sys.executable, "-u", "-c", PROGRAM, "photos", "--port", "0", "--no-browser", "--device", "cpu"]
    settings = {**os.environ, "EPASS_CACHE": str(tmp_path / "cache")}
    for again in (False, True):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=settings
        ) as process:
            assert process.stdout is not None
            try:
                found = next(match for line in process.stdout if (match := re.search(r":(\d+)/\?token=(\S+)", line)))
                visitor = Visitor(int(found[1]))
                visitor.cookie = f"epass-{found[1]}={found[2]}"
                if not again:
                    label_six(visitor)
                model = wait_for_model(visitor)
                assert model["labels"] == 6
                assert [row["label"] for row in visitor.post("/api/rows", {"ids": [0, 1, 6]}).said["rows"]] == [
                    0,
                    1,
                    None,
                ]
                for path in ("ids?view=suggested", "ids?view=guessed&class=0", "look/confusion", "look/calibration"):
                    assert visitor.get(f"/api/{path}").status == 200
                for path in ("look/map", "forms", "jobs", "runs"):
                    assert visitor.get(f"/api/{path}").status == 200
                children = workers_of(process.pid)
                assert children
            finally:
                process.send_signal(signal.SIGINT)
                rest = process.stdout.read()
        assert process.returncode == 0, rest
        assert "6 of 12 images" in rest
        assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def label_six(visitor: Visitor) -> None:
    for name in ("dark", "light"):
        visitor.post("/api/classes", {"do": "add", "name": name, "tab": "a"})
    for number in range(6):
        change = {"id": number, "label": number % 2, "mark": None, "seen": {"label": None, "mark": None}}
        assert visitor.post("/api/answers", {"tab": "a", "changes": [change]}).status == 200


def wait_for_model(visitor: Visitor) -> dict[str, object]:
    """The model that has learned from all labels."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        model = visitor.get("/api/model").said
        if model is not None and model["behind"] == 0:
            return dict(model)
        time.sleep(0.3)
    raise AssertionError(json.dumps(visitor.get("/api/state").said))
