from pathlib import Path

import numpy as np
import torch
from originals import mat, numbers, random_pixels, svhn_file

from epass.data.read.formats import svhn


def test_images_labels_and_facts(tmp_path: Path) -> None:
    train = svhn_file(tmp_path / "train_32x32.mat", [1, 9, 10, 2, 10], packed=True)
    test = svhn_file(tmp_path / "test_32x32.mat", [10, 3], seed=1)
    made = svhn.read(tmp_path)
    assert made.name == "svhn"
    assert made.classes == tuple("0123456789")
    assert np.array_equal(made.train.pixels.numpy(), train)
    assert made.train.labels.tolist() == [1, 9, 0, 2, 0]
    assert made.train.labels.dtype == torch.int64
    assert made.test is not None
    assert np.array_equal(made.test.pixels.numpy(), test)
    assert made.test.labels.tolist() == [0, 3]
    assert made.mean == (0.4380, 0.4440, 0.4730)
    assert made.std == (0.1751, 0.1771, 0.1744)
    assert made.augment == {"padding": 4, "horizontal_flip": True}


def test_extra_images_follow_where_they_are_and_are_wanted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(svhn, "_BLOCK", 2)
    train = svhn_file(tmp_path / "train_32x32.mat", [1, 9, 10])
    extra = svhn_file(tmp_path / "extra_32x32.mat", [4, 5, 6, 10, 7], seed=2, packed=True)
    svhn_file(tmp_path / "test_32x32.mat", [10, 3])
    made = svhn.read(tmp_path).train
    assert np.array_equal(made.pixels.numpy(), np.concatenate([train, extra]))
    assert made.labels.tolist() == [1, 9, 0, 4, 5, 6, 0, 7]
    assert svhn.read(tmp_path, extra=False).train.labels.tolist() == [1, 9, 0]


def test_what_is_missing(tmp_path: Path, refused) -> None:
    assert svhn.missing(tmp_path / "nowhere") == ["train_32x32.mat", "test_32x32.mat"]
    svhn_file(tmp_path / "test_32x32.mat", [1])
    assert svhn.missing(tmp_path) == ["train_32x32.mat"]
    with refused("not a complete svhn", "lacks train_32x32.mat"):
        svhn.read(tmp_path)
    svhn_file(tmp_path / "train_32x32.mat", [1])
    assert svhn.missing(tmp_path) == []


def test_a_single_image_has_three_dimensions(tmp_path: Path) -> None:
    pixels = random_pixels(32, 32, 3)
    svhn_file(tmp_path / "train_32x32.mat", [1, 2])
    mat(tmp_path / "test_32x32.mat", numbers("X", pixels), numbers("y", np.array([[10.0]])))
    test = svhn.read(tmp_path).test
    assert test is not None
    assert np.array_equal(test.pixels[0].numpy(), pixels.transpose(2, 0, 1))
    assert test.labels.tolist() == [0]


def test_wrong_content(tmp_path: Path, refused) -> None:
    svhn_file(tmp_path / "train_32x32.mat", [1, 2])
    good_x, good_y = random_pixels(32, 32, 3, 2), np.array([[1], [2]], np.uint8)
    for variables, parts in [
        ([], ("no variable 'X'", "it holds nothing")),
        ([numbers("X", good_x)], ("no variable 'y'", "it holds X")),
        (
            [numbers("X", good_x[:, :, :, None]), numbers("y", good_y)],
            ("(32, 32, 3, 1, 2)", "expected (32, 32, 3, images)"),
        ),
        ([numbers("X", good_x[:, :, 0, 0]), numbers("y", good_y)], ("(32, 32)", "expected (32, 32, 3, images)")),
        ([numbers("X", good_x[:, :31]), numbers("y", good_y)], ("(32, 31, 3, 2)", "expected (32, 32, 3, images)")),
        ([numbers("X", good_x[..., :0]), numbers("y", good_y)], ("(32, 32, 3, 0)",)),
        ([numbers("X", good_x), numbers("y", good_y[:1])], ("'y'", "(1, 1)", "expected (2, 1)")),
        ([numbers("X", good_x), numbers("y", good_y - 1)], ("holds 0", "expected 1 to 9, and 10")),
        ([numbers("X", good_x), numbers("y", good_y + 9)], ("holds 11",)),
        ([numbers("X", good_x), numbers("y", good_y + np.nan)], ("holds nan",)),
        ([numbers("X", good_x.astype("int16")), numbers("y", good_y)], ("'X'", "int16", "expected uint8")),
    ]:
        path = mat(tmp_path / "test_32x32.mat", *variables)
        with refused(str(path), *parts):
            svhn.read(tmp_path)
