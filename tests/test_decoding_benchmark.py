from __future__ import annotations

import json
from pathlib import Path

import decoding
import pytest
from PIL import Image

from epass.data.read.image_limits import LEFT_TO_SCALE

SMALL = ["--megapixels", "0.2", "--image-size", "32", "--photos", "2", "--seconds", "0.01", "--rounds", "1"]


@pytest.mark.slow
def test_every_stage_has_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")  # the script sets it, too, for good
    out = tmp_path / "figures.json"
    assert decoding.main([*SMALL, "--embedded", "4", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())["figures"]["0.2 megapixels to 32 pixels"]
    assert min(figures["parts"].values()) >= 0
    assert len(figures["a second"]) >= 2
    coarse = figures["coarse"]
    assert coarse["4 x"]["mean"] < coarse["2 x"]["mean"] < coarse["1 x"]["mean"] < 3
    assert coarse["1 x"]["cosine"] < coarse["4 x"]["cosine"] < 1.0001
    assert decoding.image_limits.LEFT_TO_SCALE == LEFT_TO_SCALE == 2
    assert figures["embedded"][0] > 0
    said = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert said == {"machine", "photos", *decoding.STAGES}


def test_photos_are_mosaics_of_other_images(tmp_path: Path) -> None:
    Image.new("RGB", (20, 20), (200, 100, 50)).save(tmp_path / "a.png")
    (path,) = decoding.make_photos(tmp_path / "photos", (300, 200), 1, [tmp_path / "a.png"])
    with Image.open(path) as photo:
        assert (photo.size, photo.getexif()[0x0112]) == ((300, 200), 6)
        assert all(high - low < 8 for low, high in photo.getextrema())
