"""A folder of photos that a run can begin with in a moment, and that can change afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tiny_recipe import tiny_recipe


def save(names: list[str], seed: int) -> None:
    """Noise, brighter in class b, so that a change of the data changes its mean."""
    random = np.random.default_rng(seed)
    for name in names:
        path = Path("photos", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 120, (8, 8), dtype=np.uint8) + 100 * np.uint8("b/" in name)
        Image.fromarray(pixels).save(path)


def make_photos(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty photos of each of two classes in `home`, where the test is now, and a recipe for them, `tiny.toml`."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)  # a few steps teach nothing
    Path("tiny.toml").write_text(tiny_recipe())
    save([f"{label}/{number:02d}.png" for label in "ab" for number in range(20, 40)], seed=0)
