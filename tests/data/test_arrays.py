from pathlib import Path

import numpy as np
import pytest
import torch

from epass.data import from_arrays, open_dataset


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


LABELS = np.array([0, 1, 2, -1, 1, 0])


@pytest.mark.parametrize("shape", [(6, 8, 8), (6, 8, 8, 1), (6, 1, 8, 8), (6, 8, 8, 3), (6, 3, 8, 8)])
def test_every_layout_becomes_channels_first(shape: tuple[int, ...]) -> None:
    images = pixels(*shape)
    train = from_arrays(images, LABELS).train
    channels = 3 if 3 in shape else 1
    assert train.pixels.shape == (6, channels, 8, 8)
    assert train.pixels.dtype == torch.uint8
    assert train.pixels.is_contiguous()
    last = images if shape[-1] in (1, 3) and len(shape) == 4 else None
    expected = last.transpose(0, 3, 1, 2) if last is not None else images.reshape(6, channels, 8, 8)
    assert np.array_equal(train.pixels.numpy(), expected)
    assert train.labels.tolist() == LABELS.tolist()
    assert train.labels.dtype == torch.int64


def test_facts_of_the_data_set() -> None:
    images = pixels(6, 16, 16, 3)
    made = from_arrays(images, LABELS, images[:2], np.array([[2], [0]], dtype=np.uint8), classes=["a", "b", "c"])
    assert made.name == "arrays"
    assert made.classes == ("a", "b", "c")
    assert made.test is not None
    assert made.test.labels.tolist() == [2, 0]
    assert made.mean == pytest.approx(images.mean((0, 1, 2)) / 255)
    assert made.std == pytest.approx(images.std((0, 1, 2)) / 255)
    assert made.augment == {"padding": 2, "horizontal_flip": True}
    assert from_arrays(images, LABELS).classes == ("0", "1", "2")
    assert from_arrays(images, LABELS).test is None


def test_the_callers_array_is_neither_shared_nor_needs_to_be_writable() -> None:
    images = pixels(6, 8, 8)
    images.flags.writeable = False
    made = from_arrays(images, LABELS)
    made.train.pixels.zero_()
    assert images.any()


def test_image_size_cuts_and_scales() -> None:
    made = from_arrays(pixels(6, 20, 30), LABELS, pixels(6, 40, 9), LABELS.clip(0), image_size=10)
    assert made.test is not None
    assert made.train.pixels.shape == made.test.pixels.shape == (6, 1, 10, 10)


GOOD = pixels(6, 8, 8)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((GOOD[0], LABELS), ("train_images has shape (8, 8)", "(N, H, W)")),
        ((pixels(6, 8, 8, 4), LABELS), ("shape (6, 8, 8, 4)", "1 or 3 channels")),
        ((GOOD / 255, LABELS), ("float64", "convert them to uint8")),
        ((GOOD[:5], LABELS), ("5 images for 6 labels",)),
        ((GOOD[:, :0], LABELS), ("train_images is empty",)),
        ((pixels(6, 8, 9), LABELS), ("8 x 9 pixels", "image size such as 8")),
        ((GOOD, LABELS.astype(float)), ("train_labels holds float64", "convert them to integers")),
        ((GOOD, np.eye(6, dtype=int)), ("train_labels has shape (6, 6)", "(N,) or (N, 1)")),
        ((GOOD, LABELS - 1), ("train_labels holds -2", "use 0 to 1, or -1 for unlabeled")),
        ((GOOD, LABELS * 2), ("has label 1,", "some have label 4", "number the 3 classes from 0 to 2")),
        ((GOOD, LABELS * 0 - 1), ("No training image of 'arrays' has a label",)),
        ((GOOD, LABELS * 0), ("knows 1 class", "at least two")),
        ((GOOD, LABELS, GOOD), ("test_labels is missing",)),
        ((GOOD, LABELS, None, LABELS), ("test_images is missing",)),
        ((GOOD, LABELS, GOOD, LABELS), ("test_labels holds -1", "use 0 to 2.")),
        ((GOOD, LABELS, GOOD, LABELS + 1), ("test_labels holds 3", "use 0 to 2.")),
        ((GOOD, LABELS, GOOD[:1], LABELS.clip(0)), ("test_images holds 1 images for 6 labels",)),
        ((GOOD, LABELS, pixels(6, 9, 9), LABELS.clip(0)), ("shape (1, 9, 9)", "training images (1, 8, 8)")),
    ],
)
def test_mistakes_are_named(refused, arguments: tuple[np.ndarray, ...], parts: tuple[str, ...]) -> None:
    with refused(*parts):
        from_arrays(*arguments)


def test_labels_beyond_the_named_classes(refused) -> None:
    with refused("train_labels holds 2", "use 0 to 1"):
        from_arrays(GOOD, LABELS, classes=["a", "b"])


def medmnist(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    arrays = {
        "train_images": pixels(6, 28, 28),
        "train_labels": np.array([[0], [1], [2], [0], [1], [2]], dtype=np.uint8),
        "val_images": pixels(2, 28, 28),
        "val_labels": np.array([[0], [1]], dtype=np.uint8),
        "test_images": pixels(3, 28, 28),
        "test_labels": np.array([[0], [1], [1]], dtype=np.uint8),
    }
    return {key: value for key, value in {**arrays, **changes}.items() if value is not None}


def save(path: Path, **changes: np.ndarray | None) -> str:
    np.savez(path, **medmnist(**changes))
    return str(path)


def test_npz_in_the_layout_of_medmnist(tmp_path: Path) -> None:
    made = open_dataset(save(tmp_path / "cells.npz"))
    assert made.name == "cells"
    assert made.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.array_equal(made.train.pixels[:, 0].numpy(), medmnist()["train_images"])
    assert made.test is not None
    assert np.array_equal(made.test.pixels[:, 0].numpy(), medmnist()["test_images"])
    assert made.augment == {"padding": 3, "horizontal_flip": True}
    assert open_dataset(str(tmp_path / "cells.npz"), image_size=14).train.pixels.shape == (6, 1, 14, 14)
    Path(save(tmp_path / "alone.npz", test_images=None, test_labels=None)).rename(tmp_path / "ALONE.NPZ")
    assert open_dataset(str(tmp_path / "ALONE.NPZ")).test is None


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"train_labels": None}, ("no array called 'train_labels'", "test_images, test_labels, train_images, val_")),
        ({"train_images": None}, ("no array called 'train_images'", "it holds test_images")),
        ({"test_labels": None}, ("no array called 'test_labels'",)),
        ({"test_images": None}, ("no array called 'test_images'",)),
        ({"train_images": pixels(6, 28, 28) / 2}, ("set.npz': train_images holds float64",)),
        ({"train_labels": np.array([0, 1, 2, 0, 1, None])}, ("Python objects", "never loaded", "numpy.savez")),
    ],
)
def test_mistakes_in_an_npz_are_named(refused, tmp_path: Path, changes, parts: tuple[str, ...]) -> None:
    path = save(tmp_path / "set.npz", **changes)
    with refused("set.npz", *parts):
        open_dataset(path)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("code from the file was run",)


def test_pickles_are_never_run(refused, tmp_path: Path) -> None:
    path = save(tmp_path / "set.npz", train_images=np.array([Bomb()], dtype=object))
    with refused("Python objects"):
        open_dataset(path)


@pytest.mark.parametrize("damage", [lambda whole: b"not a zip", lambda whole: whole[: len(whole) // 2], lambda _: b""])
def test_damaged_files_are_refused(refused, tmp_path: Path, damage) -> None:
    path = tmp_path / "set.npz"
    save(path)
    path.write_bytes(damage(path.read_bytes()))
    with refused("set.npz' cannot be read", "damaged or no .npz archive"):
        open_dataset(str(path))


def test_corrupted_bytes_are_refused(refused, tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **medmnist())
    whole = path.read_bytes()
    start = 30 + int.from_bytes(whole[26:28], "little") + int.from_bytes(whole[28:30], "little")
    for place, value in ((start, b"\xff"), (start + 200, bytes(20))):  # no block type, then a wrong check sum
        path.write_bytes(whole[:place] + value + whole[place + len(value) :])
        with refused("damaged"):
            open_dataset(str(path))


def test_a_single_array_is_no_archive(refused, tmp_path: Path) -> None:
    with (tmp_path / "set.npz").open("wb") as file:
        np.save(file, GOOD)
    with refused("single array", "numpy.savez"):
        open_dataset(str(tmp_path / "set.npz"))
