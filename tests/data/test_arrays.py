from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_fractions_become_levels_and_it_is_said(kind: type) -> None:
    images = pixels(6, 3, 8, 8)
    with pytest.warns(UserWarning, match=r"train_images holds float\d\d values, taken as levels from 0 to 1\."):
        made = from_arrays((images / 255).astype(kind), LABELS)
    assert np.array_equal(made.train.pixels.numpy(), images)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64, np.uint16])
def test_levels_in_other_numbers_stay_levels_and_it_is_said(kind: type) -> None:
    images = pixels(6, 8, 8, 3)
    with pytest.warns(UserWarning, match=r"values, taken as levels from 0 to 255\."):
        made = from_arrays(images.astype(kind), LABELS)
    assert np.array_equal(made.train.pixels.numpy(), images.transpose(0, 3, 1, 2))


def test_fractions_that_scaling_moved_a_little_are_rounded() -> None:
    images = np.linspace(-1e-4, 255.0001, 6 * 64).reshape(6, 8, 8)
    with pytest.warns(UserWarning, match="taken as"):
        levels = from_arrays(images, LABELS).train.pixels
    with pytest.warns(UserWarning, match="taken as"):
        fractions = from_arrays(torch.from_numpy(images / 255), LABELS).train.pixels
    assert torch.equal(levels, fractions)
    assert (levels.min(), levels.max()) == (0, 255)


def test_dark_test_images_follow_the_training_images() -> None:
    images = pixels(6, 8, 8).astype(np.float32)
    with pytest.warns(UserWarning, match="taken as"):
        made = from_arrays(images, LABELS, images // 9, LABELS.clip(0))
    assert made.test is not None
    assert made.test.pixels.max() == 255 // 9


def test_many_images_are_converted_in_pieces() -> None:
    images = pixels(2500, 8, 8)
    with pytest.warns(UserWarning, match="taken as"):
        made = from_arrays(images / 255, np.arange(2500) % 3)
    assert np.array_equal(made.train.pixels[:, 0].numpy(), images)


@pytest.mark.parametrize(
    "labels",
    [
        ["dog", "cat", "cow", None, "cat", "dog"],
        ["dog", "cat", "cow", float("nan"), "cat", "dog"],
        ["dog", "cat", "cow", -1, "cat", "dog"],
        ("dog", "cat ", "cow", "", "cat", "dog"),
        np.array(["dog", "cat", "cow", "", "cat", "dog"]),
        np.array(["dog", "cat", "cow", -1, "cat", "dog"]),  # NumPy makes a text of the number
        np.array([["dog"], ["cat"], ["cow"], [None], ["cat"], ["dog"]], dtype=object),
    ],
)
def test_texts_are_classes_in_alphabetical_order(labels: object) -> None:
    made = from_arrays(pixels(6, 8, 8), labels, pixels(2, 8, 8), np.array(["cow", "dog"]))
    assert (made.classes, made.train.labels.tolist()) == (("cat", "cow", "dog"), [2, 0, 1, -1, 0, 2])
    assert made.test is not None
    assert made.test.labels.tolist() == [1, 2]


def test_texts_in_an_order_of_their_own_and_texts_of_numbers() -> None:
    made = from_arrays(pixels(2, 8, 8), ["b", "a"], classes=["b", "c", "a"])
    assert (made.classes, made.train.labels.tolist()) == (("b", "c", "a"), [0, 2])
    assert from_arrays(pixels(3, 8, 8), ["10", "9", "2"]).classes == ("2", "9", "10")


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2, None, 1, 0],
        [0, 1, 2, "", 1, 0],
        np.array([0, 1, 2, np.nan, 1, 0]),
        np.array([0.0, 1.0, 2.0, -1.0, 1.0, 0.0]),
        np.array([0, 1, 2, None, 1, 0], dtype=object),
        torch.tensor([0, 1, 2, -1, 1, 0]),
        [torch.tensor(label) for label in (0, 1, 2, -1, 1, 0)],
    ],
)
def test_numbers_with_gaps(labels: object) -> None:
    assert from_arrays(pixels(6, 8, 8), labels).train.labels.tolist() == LABELS.tolist()


def test_columns_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    for column in (
        ["a", None, "b"],
        pandas.array(["a", None, "b"], dtype="string"),
        pandas.Categorical(["a", None, "b"]),
    ):
        made = from_arrays(pixels(3, 8, 8), pandas.Series(column))
        assert (made.classes, made.train.labels.tolist()) == (("a", "b"), [0, -1, 1])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for number in range(4):
        (tmp_path / f"{number // 2}").mkdir(exist_ok=True)
        Image.new("L", (12, 8), number).save(tmp_path / f"{number // 2}" / f"{number}.png")
    return sorted(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda paths: np.array([str(path) for path in paths])])
def test_lists_of_files_are_read_like_those_of_a_table(
    files: list[Path], kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parents[1])
    made = from_arrays(kind(files[:3]), ["a", "b", None], [str(Path("1/3.png"))], ["b"], name="mine", image_size=16)
    assert (made.name, made.classes, made.train.shape) == ("mine", ("a", "b"), (3, 16, 16))
    assert (made.train.pixels[:, 0, 0, 0].tolist(), made.train.labels.tolist()) == ([0, 1, 2], [0, 1, -1])
    assert (made.train_names, made.test_names) == (("0/0.png", "0/1.png", "1/2.png"), ("1/3.png",))
    assert from_arrays([files[0], files[1]], [0, 1]).train.shape == (3, 32, 32)


def test_images_of_pillow(files: list[Path]) -> None:
    made = from_arrays([Image.open(path) for path in files], [0, 1, 0, 1], image_size=8)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_mistakes_in_lists_of_files(refused, files: list[Path]) -> None:
    (files[1].parent / "text.png").write_text("no image")
    with refused("2 images of", "none.png' cannot be read (No such file", "text.png' cannot be read (not an image)"):
        from_arrays([*files[:2], files[1].parent / "none.png", files[1].parent / "text.png"], [0, 1, 1, 0])
    with refused("The image '", "none.png' cannot be read", "replace or remove it."):  # no command could leave it out
        from_arrays([*files[:2], files[0].parent / "none.png"], [0, 1, 1])
    with refused("2 images for 3 labels"):
        from_arrays(files[:2], [0, 1, 1])
    with refused("3.png' twice", "remove one"):
        from_arrays(files, [0, 1, 0, 1], files[3:], [1])
    with refused("test_images holds no paths", "give paths of all"):
        from_arrays(files, [0, 1, 0, 1], pixels(1, 8, 8), [1])
    with refused("is not a path"):
        from_arrays(["a\0b", *files[:1]], [0, 1])


GOOD = pixels(6, 8, 8)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((GOOD[0], LABELS), ("train_images has shape (8, 8)", "(N, H, W)")),
        ((pixels(6, 8, 8, 4), LABELS), ("shape (6, 8, 8, 4)", "1 or 3 channels")),
        ((GOOD > 9, LABELS), ("holds bool values", "from 0 to 1 or from 0 to 255")),
        ((GOOD / 16, LABELS), ("float64 values from 0 to 15.9", "can be read in two ways", "convert them to uint8")),
        ((GOOD.astype(int) // 16, LABELS), ("int64 values from 0 to 15", "can be read in two ways")),
        ((GOOD.astype(int) % 2, LABELS), ("from 0 to 1", "can be read in two ways")),
        ((GOOD / 255 - 0.5, LABELS), ("values from -0.5 to 0.5", "0 to 1 or 0 to 255", "before any normalization")),
        ((GOOD.astype(np.uint16) * 9, LABELS), ("uint16 values from 0 to 2295", "0 to 1 or 0 to 255")),
        ((np.full((6, 8, 8), np.nan), LABELS), ("values from nan to nan", "0 to 1 or 0 to 255")),
        (([GOOD[0], GOOD[0, :4]] * 3, LABELS), ("train_images is no array", "one shape, or a list of paths")),
        ((np.array([{}] * 6), LABELS), ("train_images holds dict objects", "numpy.stack", "list of paths")),
        (("photos", LABELS), ("train_images has shape ()",)),
        ((GOOD / 255, LABELS, GOOD.astype(float), LABELS.clip(0)), ("test_images", "training images are from 0 to 1")),
        (
            (GOOD.astype(float), LABELS, GOOD / 255, LABELS.clip(0)),
            ("test_images", "training images are from 0 to 255"),
        ),
        ((GOOD[:5], LABELS), ("5 images for 6 labels",)),
        ((GOOD[:, :0], LABELS), ("train_images is empty",)),
        ((pixels(6, 8, 9), LABELS), ("8 x 9 pixels", "image size such as 8")),
        ((GOOD, LABELS + 0.5), ("train_labels holds 0.5", "whole numbers or texts", "None, NaN, -1 or ''")),
        ((GOOD, LABELS > 0), ("train_labels holds False", "whole numbers or texts")),
        ((GOOD, [0, 1, [2], 0, 1, 2]), ("train_labels holds [2]", "whole numbers or texts")),
        ((GOOD, ["a", "b", 2, 0, 1, 2]), ("the number 2 among texts", "use one kind")),
        ((GOOD, np.array(["a", "b", np.nan, "a", "b", "a"])), ("the text 'nan'", "a class or a missing label", "None")),
        ((GOOD, ["a", "b"] * 3, GOOD, LABELS.clip(0)), ("Only the train_labels", "texts")),
        ((GOOD, LABELS, GOOD, ["0", "1"] * 3), ("Only the test_labels", "texts")),
        ((GOOD, ["a", "b"] * 3, GOOD, ["a", "c"] * 3), ("Unknown class 'c'", "a, b")),
        ((GOOD, ["a", "b"] * 3, GOOD, ["a", None] * 3), ("test_labels holds an image without a label",)),
        ((GOOD, ["a"] * 5 + [None]), ("knows 1 class", "at least two")),
        ((GOOD, [None] * 6), ("No training image of 'arrays' has a label",)),
        ((GOOD, np.eye(6, dtype=int)), ("train_labels has shape (6, 6)", "(N,) or (N, 1)")),
        ((GOOD, LABELS - 1), ("train_labels holds -2", "use 0 to 1, or -1 for unlabeled")),
        ((GOOD, LABELS * 2), ("has label 1,", "some have label 4", "number the 3 classes from 0 to 2")),
        ((GOOD, LABELS * 0 - 1), ("No training image of 'arrays' has a label",)),
        ((GOOD, LABELS * 0), ("knows 1 class", "at least two")),
        ((GOOD, LABELS, GOOD), ("test_labels is missing",)),
        ((GOOD, LABELS, None, LABELS), ("test_images is missing",)),
        ((GOOD, LABELS, GOOD, LABELS), ("test_labels holds an image without a label", "use 0 to 2.")),
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
    assert made.unused == ("val_images", "val_labels")
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
        ({"train_images": pixels(6, 28, 28) / 9}, ("set.npz': train_images holds float64", "in two ways")),
        ({"train_images": np.array(["/etc/hosts"] * 6)}, ("set.npz': train_images holds texts", "save the pixels")),
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
