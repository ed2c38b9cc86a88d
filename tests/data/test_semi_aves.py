from pathlib import Path

import pytest
from originals import photo
from originals import semi_aves as write

from epass.data.read.formats import semi_aves


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "aves")
    return tmp_path / "aves"


def test_images_labels_and_facts(folder: Path) -> None:
    made = semi_aves.read(folder, image_size=16)
    assert made.name == "semi_aves"
    assert made.classes == ("0", "1")
    assert made.train.pixels.shape == (5, 3, 16, 16)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [10, 20, 30, 40, 50]
    assert made.train.labels.tolist() == [0, 1, 0, -1, -1]
    assert made.test is not None
    assert made.test.pixels[:, 0, 0, 0].tolist() == [70, 80]
    assert made.test.labels.tolist() == [1, 0]
    assert made.mean == (0.485, 0.456, 0.406)
    assert made.std == (0.229, 0.224, 0.225)
    assert made.augment == {"padding": 1, "horizontal_flip": True}


def test_the_size_of_the_published_runs(folder: Path) -> None:
    made = semi_aves.read(folder)
    assert made.train.pixels.shape == (5, 3, 224, 224)
    assert made.augment["padding"] == 16


def test_other_species_only_when_wanted(folder: Path, refused) -> None:
    train = semi_aves.read(folder, other_species=True, image_size=16).train
    assert train.pixels[:, 0, 0, 0].tolist() == [10, 20, 30, 40, 50, 60]
    assert train.labels.tolist() == [0, 1, 0, -1, -1, -1]
    (folder / "u_train_out.txt").unlink()
    assert len(semi_aves.read(folder, image_size=16).train) == 5
    with refused("u_train_out.txt", "cannot be read"):
        semi_aves.read(folder, other_species=True, image_size=16)


def test_known_classes_of_unlabeled_images_stay_unknown(folder: Path) -> None:
    (folder / "u_train_in.txt").write_text("u_train_in/0.jpg 1\nu_train_in/1.jpg 700\n", encoding="utf-8")
    assert semi_aves.read(folder, image_size=16).train.labels.tolist() == [0, 1, 0, -1, -1]


def test_columns_may_be_apart_and_names_may_have_spaces(folder: Path) -> None:
    photo(folder / "a bird.jpg", 99)
    (folder / "val.txt").write_text("a bird.jpg \t 1\r\n", encoding="utf-8")
    train = semi_aves.read(folder, image_size=16).train
    assert train.labels.tolist() == [0, 1, 1, -1, -1]
    assert train.pixels[2, 0, 0, 0] == 99


def test_what_is_missing(folder: Path, refused) -> None:
    assert semi_aves.missing(folder) == []
    assert semi_aves.missing(folder / "nowhere") == ["l_train.txt", "val.txt", "u_train_in.txt", "test.txt"]
    (folder / "val.txt").unlink()
    assert semi_aves.missing(folder) == ["val.txt"]
    with refused("not a complete semi_aves", "lacks val.txt"):
        semi_aves.read(folder)


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("l_train.txt", "", ("is empty", "a path and a label")),
        ("l_train.txt", "trainval_images/0/0.jpg\n", ("Line 1", "expected the path of an image")),
        ("l_train.txt", "trainval_images/0/0.jpg 0\n\nx 1", ("Line 2",)),
        ("l_train.txt", "trainval_images/0/7.jpg 0", ("Line 1", "'trainval_images/0/7.jpg 0'")),
        ("l_train.txt", "../outside.jpg 0", ("'../outside.jpg 0'", "expected the path of an image in")),
        ("l_train.txt", "link.jpg 0", ("'link.jpg 0'",)),
        ("l_train.txt", f"{'x' * 5000}.jpg 0", ("Line 1",)),
        ("l_train.txt", "a\x1b[2J.jpg 0", ("Line 1", "not text")),
        ("l_train.txt", "trainval_images/0/0.jpg -1", ("'-1'", "0 to 199")),
        ("l_train.txt", "trainval_images/0/0.jpg 200", ("'200'", "0 to 199")),
        ("l_train.txt", "trainval_images/0/0.jpg 2", ("l_train.txt", "has label 1,", "some have label 2")),
        ("l_train.txt", "trainval_images/0/0.jpg 0", ("have label 0", "two classes")),
        ("u_train_in.txt", "u_train_in/0.jpg -2", ("'-2'", "-1 to 999")),
        ("test.txt", "test/3.jpg 2", ("test.txt", "'2'", "0 to 1")),
        ("test.txt", "test/3.jpg -1", ("'-1'", "0 to 1")),
    ],
)
def test_wrong_lists(folder: Path, refused, name: str, text: str, parts: tuple[str, ...]) -> None:
    outside = photo(folder.parent / "outside.jpg")
    (folder / "link.jpg").symlink_to(outside)
    (folder / name).write_text(text, encoding="utf-8")
    with refused(*parts):
        semi_aves.read(folder, image_size=16)
