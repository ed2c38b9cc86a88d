from pathlib import Path

import numpy as np
import pytest
from originals import stl10 as write

from epass.data.read.formats import stl10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def test_images_labels_and_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stl10, "_BLOCK", 3)
    images = write(tmp_path, train=4, test=3, unlabeled=5)
    made = stl10.read(tmp_path)
    assert made.name == "stl10"
    assert made.classes == ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
    assert np.array_equal(made.train.pixels.numpy(), np.concatenate([images["train"], images["unlabeled"]]))
    assert made.train.labels.tolist() == [9, 0, 1, 2, -1, -1, -1, -1, -1]
    assert made.test is not None
    assert np.array_equal(made.test.pixels.numpy(), images["test"])
    assert made.test.labels.tolist() == [9, 0, 1]
    assert [round(255 * value, 1) for value in made.mean] == [112.4, 109.1, 98.6]
    assert [round(255 * value, 1) for value in made.std] == [68.4, 66.6, 68.5]
    assert made.augment == {"padding": 12, "horizontal_flip": True}


def test_what_is_missing(folder: Path, refused) -> None:
    assert stl10.missing(folder) == []
    assert len(stl10.missing(folder / "nowhere")) == 6
    (folder / "unlabeled_X.bin").unlink()
    assert stl10.missing(folder) == ["unlabeled_X.bin"]
    with refused("not a complete stl10", "lacks unlabeled_X.bin"):
        stl10.read(folder)


def test_the_official_folds_are_positions_in_the_training_set(folder: Path, refused) -> None:
    assert stl10.read_folds(folder) == [[0, 2], [3, 1]]
    path = folder / "fold_indices.txt"
    for text, parts in {
        "0 4\n": ("Line 1", "'4'", "0 to 3"),
        "0 1\n2 -1": ("Line 2", "'-1'", "0 to 3"),
        "0 1.5": ("'1.5'",),
        "0 1\n2": ("Line 2", "1 different images in 1 words", "expected 2 different ones"),
        "1 1": ("Line 1", "1 different images in 2 words"),
        "\n\n": ("is empty",),
        "\n0 1": ("Line 1", "0 different images"),
    }.items():
        path.write_text(text, encoding="utf-8")
        with refused(str(path), *parts):
            stl10.read_folds(folder)
    path.unlink()
    with refused("fold_indices.txt", "cannot be read"):
        stl10.read_folds(folder)


def test_wrong_sizes_and_labels(folder: Path, refused) -> None:
    def change(name: str, data: bytes, *parts: str) -> None:
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(data)
        with refused(str(folder / name), *parts):
            stl10.read(folder)
        (folder / name).write_bytes(before)

    image = b"x" * 27648
    change("train_X.bin", image[:-1], "27,647 bytes", "multiple of 27,648")
    change("train_X.bin", image * 3, "82,944 bytes", "expected 110,592")
    change("test_X.bin", image * 4, "110,592 bytes", "expected 82,944")
    change("unlabeled_X.bin", b"", "0 bytes", "multiple of 27,648")
    change("unlabeled_X.bin", image + b"x", "27,649 bytes")
    change("train_y.bin", b"\1\2\3\0", "label 0", "1 to 10")
    change("test_y.bin", b"\1\2\x0b", "label 11", "1 to 10")
    change("test_y.bin", b"", "0 bytes")
    change("class_names.txt", b"cat\n" * 10, "1 different lines", "expected 10")
    change("class_names.txt", b"\xff\xfe", "text file")
    stl10.read(folder)
