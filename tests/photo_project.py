"""What jobs and runs know of a project, with the smallest photos and runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epass.app.train import train
from noise_photos import save

SMALL = {
    "labels": 8,
    "steps": 6,
    "device": "cpu",
    "guard": "no",
    "features": "none",
    "net": "small",
    "settings": ["net.width=4", "plan.labeled_batch=4", "plan.unlabeled_ratio=1", "plan.report_every=1"],
}


@dataclass
class Folder:
    """A stand-in for a project: twenty photos of each of two classes."""

    folder: Path
    home: Path
    names: list[str]
    marks: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(40, dtype=np.uint8))


def make_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The photos in `place`, where the test is now."""
    monkeypatch.chdir(place)
    names = [f"{label}/{number:02d}.png" for label in "ab" for number in range(20, 40)]
    save(names, seed=0)
    home = place / "photos" / ".epass-studio"
    home.mkdir()
    return Folder(place / "photos", home, names)


def train_small(out: Path, data: Path | str, **changes: Any) -> None:
    """A run as `epass train` makes it."""
    said = {**SMALL, "guard": False, **changes}
    train(data, out=out, **said).result()
