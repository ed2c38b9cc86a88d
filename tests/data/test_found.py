from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass.data import FoundImages, find_images
from epass.data.read.decode import decode
from epass.errors import InputError

NAMES = ["a.png", "deep/c.JPG", "deep/down/b.png", "z.png"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four images at several depths, beside what is no image."""
    random = np.random.default_rng(0)
    for name in NAMES:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).save(path)
    (tmp_path / "photos" / "notes.txt").write_text("none")
    (tmp_path / "photos" / ".hidden.png").write_text("none")
    return tmp_path / "photos"


def pixels_of(found: FoundImages, rows: int = 512) -> dict[str, np.ndarray]:
    return {
        found.names[position]: pixels
        for chunk in found.chunks(8, 3, rows)
        for position, pixels in zip(chunk.positions, chunk.images, strict=True)
    }


def pack(photos: Path, archive: Path) -> Path:
    """In another order than that of the names."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for name in reversed(NAMES):
                zipped.write(photos / name, name)
    else:
        with tarfile.open(archive, "w:gz") as tape:
            for name in reversed(NAMES):
                tape.add(photos / name, name)
    return archive


@pytest.mark.parametrize("kind", ["folder", "p.zip", "p.tar.gz", "table"])
@pytest.mark.parametrize("rows", [1, 3, 512])
def test_every_shape_gives_the_pixels_of_training(photos: Path, kind: str, rows: int) -> None:
    place = photos
    if kind == "table":
        place = photos / "list.csv"
        place.write_text("label,file\n" + "".join(f"any,{name}\n" for name in NAMES))
    elif kind != "folder":
        place = pack(photos, photos.parent / kind)

    found = find_images(place)

    assert found.names == NAMES
    pixels = pixels_of(found, rows)
    assert sorted(pixels) == sorted(NAMES)
    assert all(np.array_equal(pixels[name], decode(photos / name, 8)) for name in NAMES)


def test_a_single_image(photos: Path) -> None:
    found = find_images(photos / "deep" / "c.JPG")

    assert (len(found), found.names) == (1, ["c.JPG"])
    (chunk,) = found.chunks(8, 1)
    color = decode(photos / "deep" / "c.JPG", 8).transpose(1, 2, 0)
    gray = Image.fromarray(np.ascontiguousarray(color)).convert("L")
    assert np.array_equal(chunk.images, np.asarray(gray)[None, None])


def test_chunks_hold_no_more_than_asked(photos: Path) -> None:
    chunks = find_images(photos).chunks(8, 3, rows=3)

    assert [chunk.positions for chunk in chunks] == [[0, 1, 2], [3]]


@pytest.mark.parametrize("packed", [False, True])
def test_some_of_the_chunks_are_what_they_are_among_all(photos: Path, packed: bool) -> None:
    found = find_images(pack(photos, photos.parent / "p.zip") if packed else photos)
    everything = list(found.chunks(8, 3, rows=1))

    second, last = found.chunks(8, 3, rows=1, only={1, 3})

    for chunk, wanted in ((second, everything[1]), (last, everything[3])):
        assert chunk.positions == wanted.positions
        assert np.array_equal(chunk.images, wanted.images)


def test_a_chunk_of_an_archive_is_in_the_order_of_the_names(photos: Path) -> None:
    chunks = find_images(pack(photos, photos.parent / "p.zip")).chunks(8, 3, rows=3)

    assert [chunk.positions for chunk in chunks] == [[1, 2, 3], [0]]  # the archive holds the last one first


def test_a_chunk_is_decoded_when_it_is_asked_for(photos: Path) -> None:
    chunks = find_images(photos).chunks(8, 3, rows=2)
    next(chunks)
    (photos / "z.png").write_text("broken meanwhile")

    assert next(chunks).unreadable == {3: "cannot be read (not an image): replace or remove it"}


def test_what_cannot_be_read_is_told_and_the_rest_goes_on(photos: Path) -> None:
    (photos / "a.png").write_text("nothing")
    (photos / "z.png").write_text("nothing")

    first, last = find_images(photos).chunks(8, 3, rows=3)

    reason = "cannot be read (not an image): replace or remove it"
    assert (first.positions, first.unreadable) == ([1, 2], {0: reason})
    assert (last.positions, last.unreadable, last.images.shape) == ([], {3: reason}, (0, 3, 8, 8))


def test_links_and_rows_without_files_are_told_and_the_rest_goes_on(photos: Path) -> None:
    (photos / "deep" / "gone.png").symlink_to("nowhere.png")
    (photos / "out").symlink_to(photos.parent)
    found = find_images(photos)
    (chunk,) = found.chunks(8, 3)
    assert len(chunk.positions) == 4
    assert [found.names[position] for position in chunk.unreadable] == ["deep/gone.png", "out"]
    assert all("only links to files inside" in reason for reason in chunk.unreadable.values())

    table = photos / "list.csv"
    table.write_text("path\nz.png\nnone.png\n../out.png\n")
    found = find_images(table)
    (chunk,) = found.chunks(8, 3)
    assert {found.names[position]: reason for position, reason in chunk.unreadable.items()} == {
        "none.png": "in row 3 is not there (no such file)",
        "../out.png": "in row 4 lies outside of the table's folder",
    }
    table.write_text("path\nnone.png\n")
    (chunk,) = find_images(table).chunks(8, 3)
    assert (chunk.positions, list(chunk.unreadable), len(chunk.images)) == ([], [0], 0)


def test_a_table_may_name_files_twice_and_in_a_column_of_its_own(photos: Path) -> None:
    table = photos / "list.csv"
    table.write_text("where,split\nz.png,validation\na.png,odd\nz.png,\n")

    assert find_images(table, path_column="where").names == ["z.png", "a.png", "z.png"]
    with pytest.raises(InputError, match="only 'where', 'split': rename the one that holds the paths"):
        find_images(table, path_column="elsewhere")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "no file or folder ''"),
        ("none/photos", "no file or folder '{home}/none/photos': the nearest folder that exists is '{home}'"),
        ("empty", "'{home}/empty' holds no image: .* bmp, gif"),
        ("empty.zip", "'{home}/empty.zip' holds no image"),
        ("empty.csv", "'{home}/empty.csv' holds no image"),
        ("notes.txt", "'{home}/notes.txt' is neither an image nor holds any"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").write_text("path\n")
    (tmp_path / "notes.txt").write_text("none")
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()

    with pytest.raises(InputError, match=words.format(home=tmp_path)):
        find_images(tmp_path / name if name else "")
