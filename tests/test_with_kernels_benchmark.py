from __future__ import annotations

import json
from pathlib import Path

import pytest
import turns
import with_kernels

from epass.engine.timing import noise
from epass.networks import passes


@pytest.mark.slow
def test_one_of_two_is_built_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[bool] = []
    build, can = turns.build, passes.can_be_compiled
    monkeypatch.setattr(turns, "build", lambda *args: built.append(passes.can_be_compiled is can) or build(*args))
    monkeypatch.setattr(with_kernels, "images_for", lambda device: noise(images=200, classes=10, image_size=8))
    out = tmp_path / "times.json"
    with_kernels.main([*["--net", "small", "--turns", "2", "--steps", "1", "--device", "cpu", "--out"], str(out)])
    assert built == [False, True]
    times = json.loads(out.read_text())["turns_ms"]
    assert list(times) == ["without", "with"]
    assert all(len(each) == 2 and min(each) > 0 for each in times.values())
    assert passes.can_be_compiled is can
