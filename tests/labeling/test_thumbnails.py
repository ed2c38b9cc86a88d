"""Small pictures are upright, made once, and hold nothing but pixels."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epass.errors import InputError
from epass.labeling import thumbnails
from epass.labeling.project import Project
from epass.labeling.thumbnails import picture, thumbnail


def project_of(folder: Path, **images: Any) -> Project:
    folder.mkdir()
    for name, image in images.items():
        image.save(folder / f"{name}.jpg", exif=image.getexif(), quality=95, comment=b"SECRET")
    return Project(folder, pytest.fail)


def test_a_turned_photo_is_upright_and_says_nothing_of_where_it_was_taken(tmp_path: Path) -> None:
    image = Image.new("RGB", (800, 400), "blue")
    image.paste("red", (0, 0, 400, 400))
    exif = image.getexif()
    exif[0x0112], exif[0x010E] = 6, "SECRET"  # to be turned to the right
    project = project_of(tmp_path / "photos", a=image)
    for content in (thumbnail(project, 0, 160), picture(project, 0)[0]):
        seen = Image.open(io.BytesIO(content))
        assert seen.width < seen.height
        assert seen.getpixel((seen.width // 2, 5))[0] > 200
        assert b"SECRET" not in content
        assert not seen.getexif()
    project.close()


def test_sizes(tmp_path: Path) -> None:
    images = {
        name: Image.new("RGB", size) for name, size in {"a": (4000, 3000), "b": (4000, 200), "c": (40, 30)}.items()
    }
    project = project_of(tmp_path / "photos", **images)
    sizes = [[Image.open(io.BytesIO(thumbnail(project, id, side))).size for id in range(3)] for side in (160, 320)]
    assert sizes == [[(213, 160), (320, 16), (40, 30)], [(427, 320), (640, 32), (40, 30)]]
    assert [picture(project, id)[1] for id in range(3)] == ["image/jpeg", "image/jpeg", "image/png"]
    assert [Image.open(io.BytesIO(picture(project, id)[0])).size for id in range(3)] == [
        (1600, 1200),
        (1600, 80),
        (40, 30),
    ]
    project.close()


def test_a_thumbnail_is_made_once_whoever_asks_and_again_when_the_photo_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    real = thumbnails.decode_whole
    monkeypatch.setattr(thumbnails, "decode_whole", lambda path, side: made.append(path) or real(path, side))
    project = project_of(tmp_path / "photos", a=Image.new("RGB", (500, 500), "red"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: thumbnail(project, 0, 160), range(32)))
    assert len({*answers}) == len(made) == 1
    (kept,) = (path for path in project.home.rglob("thumbs/*/*"))
    kept.write_bytes(answers[0][:-10])  # a power cut
    assert thumbnail(project, 0, 160) == answers[0]
    assert len(made) == 2
    Image.new("RGB", (500, 400), "blue").save(tmp_path / "photos" / "a.jpg")
    assert thumbnail(project, 0, 160) != answers[0]
    project.close()


def test_a_full_disk_keeps_nobody_from_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(thumbnails, "_write", full)
    project = project_of(tmp_path / "photos", a=Image.new("RGB", (50, 50)))
    assert thumbnail(project, 0, 160)
    project.close()


def test_what_is_no_image_or_too_large_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "photos"
    project = project_of(folder, a=Image.new("RGB", (50, 50)), b=Image.new("RGB", (90, 90)))
    (folder / "a.jpg").write_bytes(b"<svg onload='alert(1)'>")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    for id in (0, 1):
        with pytest.raises(InputError, match="cannot be read"):
            thumbnail(project, id, 160)
        with pytest.raises(InputError, match="cannot be read"):
            picture(project, id)
    project.close()


def test_gray_and_transparent_photos_are_shown_in_color(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(np.full((300, 300), 40000, np.uint16)).save(folder / "a.png")
    Image.new("RGBA", (300, 300), (0, 0, 0, 0)).save(folder / "b.png")
    project = Project(folder, pytest.fail)
    levels = [np.asarray(Image.open(io.BytesIO(thumbnail(project, id, 160)))).mean() for id in range(2)]
    assert levels == pytest.approx([155, 255], abs=2)
    project.close()
