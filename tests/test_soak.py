"""The soak: a few of its kills, and that it would notice a loss. `benchmarks/soak.py` alone makes two hundred."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from epass.training.checkpoint import write_checkpoint

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "soak.py"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@pytest.mark.slow
def test_six_kills_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "6", "--steps", "80", "--out", out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert figures["kills"] == 6
    assert figures["resumes"] >= 1
    assert (figures["lost_checkpoints"], figures["identical"], figures["complaints"]) == (0, True, [])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the script sets it, and this takes it back
    return import_module("soak")


def test_it_notices_what_is_lost(script: ModuleType, tmp_path: Path) -> None:
    run = script.Run(tmp_path / "run", tmp_path / "recipe.toml")
    run.starts.write_text("")
    folder = run.folder / "checkpoints"
    for step in (3, 6, 9):
        write_checkpoint(folder, step, {"a": torch.ones(3)})
    assert run.lost() == []
    run.starts.write_text("9")
    assert run.lost() == []
    run.starts.write_text("6")
    assert run.lost() == ["resumed from step 6 although step 9 was complete"]
    run.starts.write_text("")
    newest = folder / "step-00000009.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    [complaint] = run.lost()
    assert complaint.startswith("step-00000009.safetensors cannot be read: ")
    newest.unlink()
    assert run.lost() == ["the checkpoint of step 9 has vanished"]


def test_it_notices_what_differs(script: ModuleType, tmp_path: Path) -> None:
    for name in script.BYTES:
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(name.encode())
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.5, "loss": 2.0}\n')
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    a, b = (script.Run(tmp_path / name, tmp_path / "recipe.toml") for name in ("a", "b"))
    (tmp_path / "b" / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.7, "loss": 2.0}\n')
    assert a.equals(b), "how long it took is no difference"
    (tmp_path / "b" / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.7, "loss": 2.1}\n')
    assert not a.equals(b)
    shutil.copy(tmp_path / "a" / "metrics.jsonl", tmp_path / "b" / "metrics.jsonl")
    (tmp_path / "b" / "model.safetensors").write_bytes(b"other")
    assert not a.equals(b)
