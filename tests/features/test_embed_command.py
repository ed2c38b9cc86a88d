"""`epass embed` in several processes: each photo is embedded once, and what is in the store is not embedded again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass.features.store import _CHECKSUM_BYTES
from training_processes import PATIENCE

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

PHOTOS = 24


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for number in range(PHOTOS):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def embed(*flags: str) -> tuple[int, str, str]:
    command = (sys.executable, "-m", "epass", "embed", "photos", "--image-size", "32", "--device", "cpu", *flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def segments() -> dict[Path, np.ndarray]:
    """The features of the store, by their file."""
    found = {}
    for path in Path("cache").glob("features-*/*.npy"):
        with path.open("rb") as file:
            rows = np.load(file, allow_pickle=False)
            assert len(file.read()) == _CHECKSUM_BYTES
        found[path] = rows
    return found


def test_photos_are_shared_and_what_is_kept_is_not_embedded_again(photos: Path) -> None:
    code, printed, error = embed("--devices", "2")
    assert (code, error) == (0, "")
    assert printed.count(f"Features of {PHOTOS} photos of photos\n") == 1, "one process speaks"
    first = segments()
    assert len(first) == 2, "each process has written its share"
    keys = [row["key"].tobytes() for rows in first.values() for row in rows]
    assert (len(keys), len({*keys})) == (PHOTOS, PHOTOS), "each photo is embedded once"

    # As if one of them had been killed before it wrote anything: the other number of processes does its share alone.
    lost = min(first)
    lost.unlink()
    code, said, error = embed()
    assert (code, said.lstrip(), error) == (0, printed.lstrip(), "")  # a line is free where something took its time
    (again,) = segments().keys() - first.keys()
    assert {row["key"].tobytes() for row in segments()[again]} == {row["key"].tobytes() for row in first[lost]}


def test_a_photo_that_cannot_be_read_is_said_once(photos: Path) -> None:
    (photos / "a" / "00.png").write_text("nothing")
    code, printed, error = embed("--devices", "2")
    assert (code, printed) == (2, "")
    assert error.startswith("Error: ")
    assert "00.png" in error
    assert error.count("Error: ") == 1
