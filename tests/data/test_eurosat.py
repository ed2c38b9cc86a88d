from pathlib import Path

import pytest
from originals import EUROSAT, photo
from originals import eurosat as write

from epass.data.read.formats import eurosat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def test_the_last_fifth_of_every_class_is_the_test_set(folder: Path) -> None:
    for number in (10, 6, 7):
        photo(folder / "Forest" / f"Forest_{number}.jpg", 240 + number, (64, 64))
    made = eurosat.read(folder)
    assert made.name == "eurosat"
    assert made.classes == tuple(EUROSAT)
    assert made.train.pixels.shape == (43, 3, 32, 32)
    assert made.train.labels.tolist() == sorted([*range(10)] * 4 + [1, 1, 1])
    assert made.test is not None
    assert made.test.labels.tolist() == list(range(10))
    # Names are in the order of their characters: Forest_1, Forest_10, Forest_2 to Forest_7; a fifth of 8 is 1.
    assert made.train.pixels[4:11, 0, 0, 0].tolist() == [11, 250, 12, 13, 14, 15, 246]
    assert made.test.pixels[:, 0, 0, 0].tolist() == [5, 247, 25, 35, 45, 55, 65, 75, 85, 95]
    assert made.mean == made.std == (0.5, 0.5, 0.5)
    assert made.augment == {"padding": 4, "horizontal_flip": True, "vertical_flip": True}


def test_another_size(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = eurosat.read(folder, image_size=64, progress=lambda done, total: seen.append((done, total)))
    assert made.train.pixels.shape == (40, 3, 64, 64)
    assert made.augment["padding"] == 8
    assert seen[-1] == (50, 50)


def test_what_is_missing(folder: Path, refused) -> None:
    assert eurosat.missing(folder) == []
    assert len(eurosat.missing(folder / "nowhere")) == 10
    for path in (folder / "River").iterdir():  # as in the version with 13 bands
        path.rename(path.with_suffix(".tif"))
    assert eurosat.missing(folder) == ["River/*.jpg"]
    with refused("not a complete eurosat", "lacks River/*.jpg"):
        eurosat.read(folder)


def test_wrong_content(folder: Path, refused) -> None:
    photo(folder / "Rivers" / "1.jpg")
    with refused("Unknown EuroSAT class 'Rivers'", "did you mean 'River'?"):
        eurosat.read(folder)
    (folder / "Rivers" / "1.jpg").unlink()
    (folder / "Rivers").rmdir()
    (folder / "River" / "River_3.jpg").unlink()
    with refused("River' holds 4 images", "expected 5 or more"):
        eurosat.read(folder)
    (folder / "River" / "River_3.jpg").write_bytes((folder / "River" / "River_1.jpg").read_bytes()[:-40])
    with refused("River_3.jpg", "cannot be read"):
        eurosat.read(folder)
