"""Files that cannot be read: all of them are named, or left out and named."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from epass.data import Dataset, Images, StreamedImages, open_dataset, survey_arrays, survey_folder
from epass.data.read import decode as decoding
from epass.data.read import pixels as reading
from epass.errors import InputError

BAD = ["labeled/a/3.png", "unlabeled/1.png", "test/b/2.png"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for level, (folder, count) in enumerate({"labeled/a": 4, "labeled/b": 3, "unlabeled": 2, "test/b": 3}.items()):
        (root / folder).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (8, 8), 50 * level + number).save(root / folder / f"{number}.png")
    for name in BAD:
        (root / name).write_text("no image")
    return root


def packed(photos: Path) -> str:
    with zipfile.ZipFile(photos.with_suffix(".zip"), "w") as archive:
        for path in sorted(photos.rglob("*.png")):
            archive.write(path, path.relative_to(photos))
    return str(photos.with_suffix(".zip"))


def same(made: Dataset, other: Dataset) -> bool:
    assert made.test is not None
    assert other.test is not None
    return (
        (made.train_names, made.test_names, made.mean, made.std)
        == (other.train_names, other.test_names, other.mean, other.std)
        and torch.equal(made.train.pixels, other.train.pixels)
        and torch.equal(made.test.pixels, other.test.pixels)
        and made.train.labels.tolist() == other.train.labels.tolist()
    )


@pytest.mark.parametrize("shape", ["folder", "zip", "streamed"])
def test_all_are_counted_and_named_in_one_sentence(refused, photos: Path, shape: str) -> None:
    path = packed(photos) if shape == "zip" else str(photos)
    names = [f"'{name}' cannot be read (not an image)" for name in BAD]
    advice = (
        f"replace or remove them, or leave them out with --skip-unreadable (epass check {path} lists all such files)"
    )
    with refused(f"3 images of '{path}' cannot be used", *names, advice):
        open_dataset(path, streaming=shape == "streamed")


def test_the_command_that_names_all_can_be_typed_as_it_is(refused, photos: Path) -> None:
    moved = photos.rename(photos.with_name("my photos"))
    with refused(f"(epass check '{moved}' lists all such files)"):
        open_dataset(str(moved))


def test_of_very_many_the_first_ones_are_named(refused, photos: Path) -> None:
    for number in range(200):
        (photos / f"unlabeled/{number:03}{'x' * 200}.jpg").write_text("no image")
    with pytest.raises(InputError, match=r"203 images of .*, and 198 more\): replace") as caught:
        open_dataset(str(photos))
    assert len(str(caught.value)) < 4000


@pytest.mark.parametrize("shape", ["folder", "zip", "streamed"])
def test_left_out_they_change_nothing_else(photos: Path, tmp_path: Path, shape: str) -> None:
    path, streaming = packed(photos) if shape == "zip" else str(photos), shape == "streamed"
    made = open_dataset(path, skip_unreadable=True, streaming=streaming)
    assert isinstance(made.train, StreamedImages if streaming else Images)
    reason = "cannot be read (not an image): replace or remove it"
    assert made.skipped == tuple((name, reason) for name in BAD)
    assert not {*made.train_names, *made.test_names} & {*BAD}
    for name in BAD:
        (photos / name).unlink()
    assert same(open_dataset(str(photos)), made)


@pytest.mark.parametrize("shape", ["folder", "zip", "streamed"])
def test_the_next_run_knows_them_from_the_cache(photos: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    path, streaming = packed(photos) if shape == "zip" else str(photos), shape == "streamed"
    first = open_dataset(path, skip_unreadable=True, streaming=streaming)
    seen: list[str] = []
    decode = decoding.decode

    def watch(source: Path, size: int) -> torch.Tensor:
        seen.append(Path(str(source)).name)
        return decode(source, size)

    monkeypatch.setattr(decoding, "decode", watch)
    again = open_dataset(path, skip_unreadable=True, streaming=streaming)
    assert sorted(seen) == sorted(Path(name).name for name in BAD)  # to say why
    monkeypatch.undo()
    assert again.skipped == first.skipped
    assert same(again, first)
    with pytest.raises(InputError, match="3 images"):  # the cache hides nothing from those who do not skip
        open_dataset(path, streaming=streaming)


def test_a_file_that_was_repaired_is_read(photos: Path) -> None:
    open_dataset(str(photos), skip_unreadable=True)
    shutil.copy(photos / "unlabeled/0.png", photos / "unlabeled/1.png")
    made = open_dataset(str(photos), skip_unreadable=True)
    assert [name for name, _ in made.skipped] == [BAD[0], BAD[2]]
    assert "unlabeled/1.png" in made.train_names


def test_without_the_cache_every_file_is_decoded_once(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")
    calls: list[int] = []
    decode_all = reading.decode_all
    monkeypatch.setattr(reading, "decode_all", lambda *args: calls.append(args[1]) or decode_all(*args))
    open_dataset(str(photos), skip_unreadable=True)
    assert calls == [12]


def test_links_folders_and_damaged_files_are_reported_together(photos: Path, refused) -> None:
    for name in BAD:
        (photos / name).unlink()
    (photos / "labeled/a/7.png").write_bytes(b"")
    (photos / "labeled/b/gone.png").symlink_to("nowhere.png")
    (photos / "unlabeled/8.jpg").mkdir()
    (photos / "unlabeled/film.gif").mkdir()
    Image.new("L", (8, 8)).save(photos / "unlabeled/film.gif/1.png")
    said = (
        "3 images of",
        "'labeled/a/7.png' cannot be read",
        "'labeled/b/gone.png' leads to 'nowhere.png'",
        "8.jpg' is called",
    )
    with refused(*said):
        open_dataset(str(photos))
    survey = survey_folder(photos, 8)
    assert [name for name, _ in survey.unreadable] == ["labeled/b/gone.png", "unlabeled/8.jpg", "labeled/a/7.png"]
    assert "unlabeled/film.gif/1.png" in survey.train_names
    assert len(survey.files) == len(survey.train_names) + len(survey.test_names)


def test_what_must_not_be_looked_at_is_reported(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user whom the system refuses something: a folder to list, a file to look at, a file to open."""
    for name in BAD:
        (photos / name).unlink()
    (photos / "unlabeled/closed").mkdir()

    def refuse(name: str, otherwise):
        def call(self: Path | str, *arguments):
            if Path(self).name == name:
                raise PermissionError(13, "Permission denied", str(self))
            return otherwise(self, *arguments)

        return call

    monkeypatch.setattr(Path, "iterdir", refuse("closed", Path.iterdir))
    monkeypatch.setattr("os.access", lambda *_: False)  # a folder may be listed, and nothing in it looked at
    monkeypatch.setattr(Path, "is_dir", refuse("0.png", Path.is_dir))
    monkeypatch.setattr(reading, "_mark", refuse("2.png", reading._mark))
    looked, read = "cannot be looked at (Permission denied)", "cannot be read (Permission denied): replace or remove it"
    assert dict(open_dataset(str(photos), skip_unreadable=True).skipped) == {
        **{f"{folder}/0.png": looked for folder in ("labeled/a", "labeled/b", "test/b", "unlabeled")},
        **{f"{folder}/2.png": read for folder in ("labeled/a", "labeled/b")},
        "unlabeled/closed": "cannot be opened (Permission denied)",
    }


@pytest.mark.parametrize("skip", [False, True])
def test_a_class_or_a_test_set_is_never_left_out(photos: Path, refused, skip: bool) -> None:
    for path in (photos / "labeled/b").iterdir():
        path.write_text("no image")
    with refused("None of the labeled images of class 'b'" if skip else "images of"):
        open_dataset(str(photos), skip_unreadable=skip)
    for number, path in enumerate(sorted((photos / "labeled/b").iterdir())):
        Image.new("L", (8, 8), number).save(path)
    for path in (photos / "test/b").iterdir():
        path.write_text("no image")
    with refused("None of the test images" if skip else "images of"):
        open_dataset(str(photos), skip_unreadable=skip)


def test_validation_images_that_are_left_out_are_not_counted(photos: Path) -> None:
    (photos / "labeled").rename(photos / "train")
    (photos / "val/a").mkdir(parents=True)
    for number in range(2):
        shutil.copy(photos / "train/a/0.png", photos / f"val/a/{number}.png")
    (photos / "val/a/bad.png").write_text("no image")
    made = open_dataset(str(photos), skip_unreadable=True)
    assert made.validation == 2
    assert made.train_names[-2:] == ("val/a/0.png", "val/a/1.png")


def test_a_check_of_an_open_data_set_knows_what_was_left_out(photos: Path) -> None:
    survey = survey_arrays(open_dataset(packed(photos), skip_unreadable=True))
    assert [name for name, _ in survey.unreadable] == BAD
