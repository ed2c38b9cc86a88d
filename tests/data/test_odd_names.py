"""Names that are no text, and folders in folders without an end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from epass.data import divide, find_images, open_dataset, split_text, survey_folder
from epass.data.read.folder import DEEPEST
from epass.data.read.listing import name_inside
from epass.files import as_text

NAMES = [b"M\xf6we/\xff.png", b"M\xf6we/\xfe.png", b"Amsel/1.png"]
SHOWN = ("Amsel/1.png", r"M\xf6we/\xfe.png", r"M\xf6we/\xff.png")


def picture(level: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (8, 8), level).save(stream, "png")
    return stream.getvalue()


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """A folder whose own name and some of those in it are Latin-1."""
    root = os.fsencode(tmp_path) + b"/V\xf6gel"
    for level, name in enumerate(NAMES):
        os.makedirs(os.path.dirname(root + b"/" + name), exist_ok=True)
        with open(root + b"/" + name, "wb") as file:
            file.write(picture(level))
    return Path(os.fsdecode(root))


def test_a_folder_of_names_that_are_no_text(birds: Path) -> None:
    made = open_dataset(str(birds), image_size=8)
    assert (made.name, made.classes, made.train_names) == (r"V\xf6gel", ("Amsel", r"M\xf6we"), SHOWN)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [2, 1, 0]
    assert open_dataset(str(birds), image_size=8, streaming=True).train_names == SHOWN
    assert [file.name for file in survey_folder(birds, 8).files] == list(SHOWN)
    assert find_images(birds).names == list(SHOWN)


def test_a_split_of_names_that_are_no_text_can_be_written_and_read(birds: Path, tmp_path: Path) -> None:
    with open(os.fsencode(birds) + b"/Amsel/\xe9.png", "wb") as file:
        file.write(picture(9))
    made = open_dataset(str(birds), image_size=8)
    positions = divide(made, seed=0, holdout=0.5).positions
    (tmp_path / "split.json").write_text(split_text(made, positions), encoding="utf-8")
    json.loads((tmp_path / "split.json").read_bytes())
    again = divide(made, seed=1, split_file=str(tmp_path / "split.json")).positions
    assert again.labeled.tolist() == positions.labeled.tolist()


def test_names_that_are_no_text_are_named_when_they_cannot_be_read(birds: Path) -> None:
    with open(os.fsencode(birds) + b"/Amsel/\xe9.png", "wb") as file:
        file.write(b"no image")
    os.symlink(b"\xe8.png", os.fsencode(birds) + b"/Amsel/\xe7.png")
    skipped = open_dataset(str(birds), image_size=8, skip_unreadable=True).skipped
    assert [name for name, _ in skipped] == [r"Amsel/\xe7.png", r"Amsel/\xe9.png"]
    json.dumps(skipped, ensure_ascii=False).encode()


def test_an_archive_of_names_that_are_no_text(birds: Path) -> None:
    path = Path(f"{birds}.tar")
    with tarfile.open(path, "w") as tar:
        tar.add(birds, "birds")
    made = open_dataset(str(path), image_size=8)
    assert (made.name, made.classes) == (r"V\xf6gel", ("Amsel", r"M\xf6we"))
    assert made.train_names == tuple(f"birds/{name}" for name in SHOWN)
    assert find_images(path).names == [f"birds/{name}" for name in SHOWN]


def test_a_table_in_a_folder_of_such_a_name(birds: Path) -> None:
    table = birds / "birds.csv"
    (birds / "2.png").write_bytes(picture())
    table.write_text("path,label\nAmsel/1.png,a\n2.png,b\n")
    assert open_dataset(str(table), image_size=8).train_names == ("Amsel/1.png", "2.png")


def deep_zip(path: Path, levels: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a", "b"):
            archive.writestr(f"photos/{name}/1.png", picture())
        archive.writestr("photos/a/" + "d/" * levels + "1.png", picture())
    return path


def test_an_archive_of_folders_without_an_end_is_refused_at_once(refused, tmp_path: Path) -> None:
    path = deep_zip(tmp_path / "deep.zip", 20_000)
    for read in (open_dataset, find_images):
        tracemalloc.start()
        started = time.process_time()
        with refused("photos/a/d/d/", f"in '{path}' lies more than {DEEPEST} folders deep"):
            read(str(path))
        assert time.process_time() - started < 5
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()


def test_folders_in_folders_are_walked_up_to_a_limit(refused, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(picture())
    deep = tmp_path / "a"
    home = os.getcwd()
    os.chdir(deep)
    try:
        for _ in range(1_500):  # deeper than Python calls functions, and than the system takes a path
            os.mkdir("d")
            os.chdir("d")
        Path("1.png").write_bytes(picture())
    finally:
        os.chdir(home)
    try:
        with refused(f"lies more than {DEEPEST} folders deep", "--skip-unreadable"):
            open_dataset(str(tmp_path))
        made = open_dataset(str(tmp_path), skip_unreadable=True)
        assert (made.train_names, len(made.skipped)) == (("a/1.png", "b/1.png"), 1)
        (chunk,) = find_images(tmp_path).chunks(8, 3)
        assert (chunk.positions, len(chunk.unreadable)) == ([0, 1], 1)
    finally:  # Python's own functions call themselves for every level
        subprocess.run(["rm", "-rf", str(deep)], check=True)


def test_what_people_have_is_not_too_deep(tmp_path: Path) -> None:
    made = open_dataset(str(deep_zip(tmp_path / "deep.zip", DEEPEST - 4)))
    assert len(made.train) == 3


@pytest.mark.parametrize("root", ["/", ".", "a", "a/..", "/a", "/a b", "//a", "a/t.csv"])
@pytest.mark.parametrize("name", ["x.png", "a/x.png", "../x.png", "ab/x.png", "\udcff/x.png"])
def test_a_name_is_the_way_from_the_folder(
    root: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    place = Path(root)
    folder = place if place.is_dir() or place.suffix else place.parent
    base = folder.parent if place.suffix else folder
    assert name_inside(base / name, place) == as_text((base / name).relative_to(base).as_posix())


def test_a_file_that_does_not_lie_in_the_folder_has_no_name_there(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    with pytest.raises(ValueError, match="not in the subpath"):
        name_inside(tmp_path / "abc" / "x.png", tmp_path / "ab")
