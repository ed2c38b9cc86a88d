"""Image files of kinds that are not read are counted, and said to be there."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass.data import find_images, open_dataset
from epass.data.read.decode import FORMATS, decode
from epass.data.read.kinds import EXTENSIONS, NOT_READ, passed_over
from epass.errors import InputError
from epass.labeling.project import Project


@pytest.fixture
def phone(tmp_path: Path) -> Path:
    """Two classes as a telephone and a browser leave them behind."""
    folder = tmp_path / "phone"
    for number, label in enumerate(("cat", "dog")):
        (folder / label).mkdir(parents=True)
        for name in ("1.jpg", "2.jfif", "3.png"):
            save(folder / label / name, 90 * number + 50)
        for name in ("1.CR2", "4.HEIC", "5.heic", "6.avif", ".7.heic", "notes.txt", "Thumbs.db", "4.json"):
            (folder / label / name).write_bytes(b"any")
    return folder


def save(path: Path, level: int) -> None:
    Image.fromarray(np.full((12, 12, 3), level, np.uint8)).save(path)


def test_files_of_other_kinds_are_counted_by_ending(phone: Path) -> None:
    # The raw files lie beside photos of the same name: nothing is missing.
    counts = {".heic": 4, ".avif": 2}
    made = open_dataset(str(phone), image_size=8)
    assert (len(made.train), made.passed_over) == (6, counts)
    found = find_images(phone)
    assert (len(found), found.passed_over) == (6, counts)
    with zipfile.ZipFile(phone.parent / "phone.zip", "w") as packed:
        for file in sorted(phone.rglob("*.*")):
            packed.write(file, file.relative_to(phone))
    assert open_dataset(str(phone.parent / "phone.zip"), image_size=8).passed_over == counts
    assert find_images(phone.parent / "phone.zip").passed_over == counts


def test_what_is_counted_in_parts_is_counted_once(phone: Path) -> None:
    for name in ("cat", "dog"):
        (phone / "labeled").mkdir(exist_ok=True)
        shutil.move(phone / name, phone / "labeled" / name)
    shutil.copytree(phone / "labeled" / "cat", phone / "unlabeled")
    assert open_dataset(str(phone), image_size=8).passed_over == {".heic": 6, ".avif": 3}


def test_the_sentence() -> None:
    both = passed_over({".avif": 1, ".heic": 1200})
    assert both == "Passed over 1,201 files of kinds that are not read (.heic 1,200, .avif 1): convert them to JPEG."
    assert passed_over({".psd": 1}) == "Passed over 1 file of a kind that is not read (.psd 1): convert it to JPEG."
    assert passed_over({}) == ""


def test_a_jfif_file_is_a_jpeg_file(phone: Path) -> None:
    (phone / "same.jpg").write_bytes((phone / "cat" / "2.jfif").read_bytes())
    assert np.array_equal(decode(phone / "cat" / "2.jfif", 8), decode(phone / "same.jpg", 8))


def test_every_ending_that_is_read_is_one_of_the_kinds_that_are_decoded() -> None:
    Image.init()
    assert {Image.registered_extensions()[ending] for ending in EXTENSIONS} == {*FORMATS}
    assert not EXTENSIONS & NOT_READ


def test_nothing_but_other_kinds_is_the_reason_that_is_given(tmp_path: Path) -> None:
    loose, sorted_ones = tmp_path / "loose", tmp_path / "sorted"
    for folder in (loose, sorted_ones / "cat"):
        folder.mkdir(parents=True)
        (folder / "1.heic").write_bytes(b"any")
        (folder / "2.HEIC").write_bytes(b"any")
    (sorted_ones / "dog").mkdir()
    save(sorted_ones / "dog" / "1.png", 9)
    words = r"holds no image that can be read, only files of other kinds \(.heic 2\): convert them to JPEG\."
    for needed in (True, False):
        with pytest.raises(InputError, match=f"^The folder '{loose}' {words}$"):
            open_dataset(str(loose), labels_needed=needed)
    with pytest.raises(InputError, match=f"^The class folder '{sorted_ones / 'cat'}' {words}$"):
        open_dataset(str(sorted_ones))
    with pytest.raises(InputError, match=f"^'{loose}' {words}$"):
        find_images(loose)
    with pytest.raises(InputError, match=f"^'{loose}' {words}$"):
        Project(loose, print)
    (loose / "2.HEIC").unlink()
    with pytest.raises(InputError, match=r"only a file of another kind \(.heic 1\): convert it to JPEG\.$"):
        find_images(loose)


def test_a_file_that_is_named_is_said_to_be_of_another_kind(phone: Path) -> None:
    with pytest.raises(InputError, match=r"4.HEIC' is an image of a kind that is not read: convert it to JPEG\.$"):
        find_images(phone / "cat" / "4.HEIC")
    (phone / "table.csv").write_text("path,label\ncat/1.jpg,cat\ndog/1.jpg,dog\ndog/4.HEIC,dog\n")
    with pytest.raises(InputError, match=r"cannot be read \(of a kind that is not read, convert it to JPEG\)"):
        open_dataset(str(phone / "table.csv"), image_size=8)


def test_the_studio_says_so(phone: Path) -> None:
    said: list[str] = []
    project = Project(phone, said.append)
    project.close()
    assert said == [passed_over({".heic": 4, ".avif": 2})]
