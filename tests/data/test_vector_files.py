"""Vectors of one's own: in memory, in .npz and .npy files and in tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from epass.data import Vectors, find_vectors, from_vectors, holds_vectors, open_dataset
from epass.data.read import vector_files
from epass.data.read.tables import Table

VECTORS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
LABELS = np.array([0, 1, 2, -1, 1, 0])


def views(made: Any) -> np.ndarray:
    assert isinstance(made, Vectors)
    return made.views.numpy()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_vectors_become_one_plain_view_whatever_their_numbers(kind: type) -> None:
    numbers = (10 * np.abs(VECTORS)).astype(kind)
    made = from_vectors(numbers, LABELS)
    assert views(made.train).dtype == np.float32
    assert np.array_equal(views(made.train)[:, 0], numbers.astype(np.float32))
    assert made.train.labels.tolist() == LABELS.tolist()
    assert made.mean == pytest.approx(numbers.astype(float).mean(0))
    assert (made.name, made.classes, made.test) == ("vectors", ("0", "1", "2"), None)


def test_without_views_training_sees_noise_around_the_mean_and_deviation() -> None:
    made = from_vectors(VECTORS, LABELS)
    noisy = {"weak": "weak-noise", "strong": "strong-noise", "crop": "strong-noise"}
    assert made.augment == {**noisy, "center": made.mean, "spread": made.std}


def test_views_of_ones_own_are_drawn_from_and_a_test_has_only_the_plain_one() -> None:
    stored = np.stack([VECTORS + view for view in range(5)], 1)
    made = from_vectors(stored, LABELS, stored[:2], [0, 1])
    assert made.augment == {"weak": "stored-weak", "strong": "stored-strong", "crop": "stored-strong", "views": 2}
    assert np.array_equal(views(made.train), stored)
    assert np.array_equal(views(made.test), stored[:2, :1])
    assert made.mean == pytest.approx(VECTORS.mean(0), abs=1e-6)


def test_half_precision_stays_half_and_the_callers_array_is_copied() -> None:
    mine = torch.from_numpy(VECTORS.copy()).half()
    made = from_vectors(mine, LABELS)
    assert views(made.train).dtype == np.float16
    mine.zero_()
    assert made.train.pixels.any()


def test_labels_may_be_texts_with_gaps() -> None:
    made = from_vectors(VECTORS, ["cat", None, "dog", float("nan"), "", "cat"], VECTORS[:2], ["dog", "cat"])
    assert made.classes == ("cat", "dog")
    assert made.train.labels.tolist() == [0, -1, 1, -1, -1, 0]
    assert made.test is not None
    assert made.test.labels.tolist() == [1, 0]


def with_value(value: float) -> np.ndarray:
    changed = VECTORS.astype(np.float64)
    changed[3, 1] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((VECTORS, LABELS, VECTORS[:, :3], LABELS.clip(0)), ("have 3 numbers", "the training vectors 4", "same way")),
        ((VECTORS, LABELS, VECTORS), ("needs vectors and labels", "test_labels is missing")),
        ((VECTORS[:5], LABELS), ("holds 5 vectors for 6 labels", "one label")),
        ((with_value(np.nan), LABELS), ("train_vectors[3] holds nan", "repair or remove")),
        ((VECTORS, LABELS, with_value(-np.inf), LABELS.clip(0)), ("test_vectors[3] holds -inf", "repair or remove")),
        ((with_value(1e300), LABELS), ("train_vectors[3] holds 1e+300", "no number to learn from")),
        ((np.zeros((6, 4, 3)), LABELS), ("train_vectors has 4 views", "odd number")),
        ((VECTORS[:, 0], LABELS), ("shape (6,)", "(N, D)")),
        ((np.zeros((6, 0)), LABELS), ("shape (6, 0)", "empty")),
        ((np.zeros((6, 2)).astype(str), LABELS), ("train_vectors holds texts", "embedding")),
        (([[1.0], [1.0, 2.0]], [0, 1]), ("train_vectors is no array", "one width")),
    ],
)
def test_mistakes_in_vectors(refused, arguments: tuple[Any, ...], parts: tuple[str, ...]) -> None:
    with refused(*parts):
        from_vectors(*arguments)


def test_an_npz_file_with_a_test_set(tmp_path: Path) -> None:
    path = tmp_path / "songs.npz"
    np.savez(path, train_vectors=VECTORS, train_labels=LABELS, test_vectors=VECTORS[:2], test_labels=[0, 1], val=[1])
    assert holds_vectors(str(path))
    made = open_dataset(str(path))
    assert (made.name, made.unused) == ("songs", ("val",))
    assert np.array_equal(views(made.train)[:, 0], VECTORS)
    assert made.test is not None
    assert made.test.labels.tolist() == [0, 1]


def test_an_npz_file_without_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", vectors=VECTORS, labels=LABELS)
    assert open_dataset(str(tmp_path / "a.npz")).test is None


def test_arrays_called_images_stay_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=LABELS, train_vectors=VECTORS)
    assert not holds_vectors(str(tmp_path / "a.npz"))
    made = open_dataset(str(tmp_path / "a.npz"))
    assert made.train.shape == (1, 8, 8)
    assert made.unused == ("train_vectors",)


def test_vectors_called_images_get_advice(refused, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=VECTORS, train_labels=LABELS)
    with refused("shape (6, 4)", "or call it train_vectors"):
        open_dataset(str(tmp_path / "a.npz"))


def test_an_npy_file_beside_its_labels(refused, tmp_path: Path) -> None:
    path = tmp_path / "e.npy"
    np.save(path, VECTORS)
    assert holds_vectors(str(path))
    with refused("no labels of", "e.csv", "labels.npy"):
        open_dataset(str(path))
    np.save(tmp_path / "labels.npy", np.array(["b", "a", "", "", "a", "b"]))
    made = open_dataset(str(path))
    assert made.classes == ("a", "b")
    assert made.train.labels.tolist() == [1, 0, -1, -1, 0, 1]
    with refused("no labels of"):
        open_dataset(str(tmp_path / "labels.npy"))


def test_an_npy_file_beside_a_table(refused, tmp_path: Path) -> None:
    path = tmp_path / "e.npy"
    np.save(path, VECTORS)
    rows = ["x,train", "y,test", ",train", "y,train", "x,val", "x,train"]
    (tmp_path / "e.csv").write_text("\n".join(["label,split", *rows]))
    made = open_dataset(str(path))
    assert made.train.labels.tolist() == [0, -1, 1, 0, 0]
    assert made.validation == 1
    assert np.array_equal(views(made.train)[:, 0], VECTORS[[0, 2, 3, 5, 4]])
    assert made.test is not None
    assert np.array_equal(views(made.test)[:, 0], VECTORS[[1]])
    (tmp_path / "e.csv").write_text("\n".join(["label,split", *rows[:5]]))
    with refused("has 5 rows for the 6 vectors"):
        open_dataset(str(path))


TABLE = ["id,label,a,b,split", "u,x,1,2.5,", "v,,3,-1,", "w,y,0,1e3,", "t,y,2,2,val"]


def test_a_table_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(TABLE))
    assert holds_vectors(str(tmp_path / "t.csv"))
    made = open_dataset(str(tmp_path / "t.csv"))
    assert views(made.train)[:, 0].tolist() == [[1, 2.5], [3, -1], [0, 1000]]
    assert made.train.labels.tolist() == [0, -1, 1]
    assert made.test is not None
    assert views(made.test).tolist() == [[[2, 2]]]


def test_a_table_of_lists_whose_files_are_only_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('file;genre;embedding\na.wav;x;"[1, 2]"\nb.wav;y;"[3, 4]"\n')
    made = open_dataset(str(tmp_path / "t.csv"), label_column="genre")
    assert views(made.train).tolist() == [[[1, 2]], [[3, 4]]]
    found = find_vectors(tmp_path / "t.csv", label_column="genre")
    assert (found.names, found.column) == (["a.wav", "b.wav"], "name")


def test_a_table_of_paths_stays_one_of_images(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,width,features\na.png,x,3,none\n")
    assert not holds_vectors(str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text("path,label,width\na.png,x,3\n")
    assert not holds_vectors(str(tmp_path / "t.csv"))
    (tmp_path / "u.csv").write_text("photo_of,label\na.png,x\n")
    assert not holds_vectors(str(tmp_path / "u.csv"))
    (tmp_path / "v.csv").write_text("number,label\n7,x\n")
    assert not holds_vectors(str(tmp_path / "v.csv"), path_column="number")


def test_a_column_that_is_named_as_the_labels_is_no_number_of_the_vector(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,cluster,b\n1,0,2\n3,1,4\n")
    made = open_dataset(str(tmp_path / "t.csv"), label_column="cluster")
    assert views(made.train).tolist() == [[[1, 2]], [[3, 4]]]
    assert find_vectors(tmp_path / "t.csv", label_column="cluster").vectors.shape == (2, 2)


def test_a_table_in_several_batches(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"name": [["u"], ["v", "w"]], "vector": [[[1, 2]], [[3, 4], [5, 6]]]}
    opened = Table(
        ["name", "vector"],
        lambda names: ([content[name][part] for name in names] for part in range(2)),
        [1, 2, 3],
    )
    monkeypatch.setattr(vector_files, "open_table", lambda path: opened)
    (tmp_path / "t.parquet").touch()
    found = find_vectors(tmp_path / "t.parquet")
    assert (found.names, found.vectors.tolist()) == (["u", "v", "w"], [[1, 2], [3, 4], [5, 6]])
    content["vector"][1] = [[3], [5]]
    with refused("different widths", "same way"):
        find_vectors(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([*TABLE, "s,x,1,,"], ("Row 6", "holds nothing in the column 'b'")),
        ([*TABLE, "s,x,1,few,"], ("Row 6", "holds 'few' in the column 'b'", "no number")),
        ([*TABLE, "s,x,1,nan,"], ("Row 6", "holds nan")),
        ([*TABLE, "s,x,1,2,all"], ("Row 6", "split 'all'", "train, val or test")),
        ([*TABLE, "s,,1,2,test"], ("Row 6", "test vector without a label")),
        ([line.replace("label", "kind") for line in TABLE], ("No column", "'label'", "data.label_column")),
        (["vector,label", '"[1, 2]",x', '"[1]",y'], ("Row 3", "width 1", "row 2 one of width 2")),
        (["vector,label", '"[1, 2]",x', "5 6,y"], ("Row 3", "'5 6' where a list of numbers is needed")),
        (["vector,label", '"[1, 2]",x', '"[1, null]",y'], ("Row 3", "holds nan")),
    ],
)
def test_mistakes_in_tables(refused, tmp_path: Path, lines: list[str], parts: tuple[str, ...]) -> None:
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with refused(*parts):
        open_dataset(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("how", "parts"),
    [({"image_size": 32}, ("no image size", "--image-size")), ({"streaming": True}, ("data.streaming",))],
)
def test_vectors_are_not_scaled_or_streamed(refused, tmp_path: Path, how: dict[str, Any], parts: Any) -> None:
    np.savez(tmp_path / "a.npz", vectors=VECTORS, labels=LABELS)
    with refused(*parts):
        open_dataset(str(tmp_path / "a.npz"), **how)


def test_damaged_files_are_refused(refused, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", vectors=VECTORS)
    with refused("no array called 'labels'", "vectors"):
        open_dataset(str(tmp_path / "a.npz"))
    np.save(tmp_path / "o.npy", np.array([None, "x"], dtype=object), allow_pickle=True)
    with refused("Python objects", "never loaded"):
        open_dataset(str(tmp_path / "o.npy"))
    (tmp_path / "t.npy").write_bytes(b"no array")
    with refused("t.npy", "damaged"):
        open_dataset(str(tmp_path / "t.npy"))


def test_vectors_to_ask_about_are_the_plain_ones_of_all_parts(refused, tmp_path: Path) -> None:
    stored = np.stack([VECTORS + view for view in range(3)], 1)
    np.savez(tmp_path / "a.npz", train_vectors=stored, train_labels=LABELS, test_vectors=VECTORS[:2])
    found = find_vectors(tmp_path / "a.npz")
    assert (found.column, found.names) == ("row", list("01234567"))
    assert np.array_equal(found.vectors, np.concatenate([VECTORS, VECTORS[:2]]))
    np.savez(tmp_path / "b.npz", train_vectors=VECTORS, test_vectors=VECTORS[:, :2])
    with refused("different widths", "same way"):
        find_vectors(tmp_path / "b.npz")
    np.savez(tmp_path / "b.npz", vectors=VECTORS, names=list("abcdef"))
    assert find_vectors(tmp_path / "b.npz").names == list("abcdef")
    np.savez(tmp_path / "b.npz", vectors=VECTORS, names=list("abc"))
    with refused("3 names for 6 vectors"):
        find_vectors(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", VECTORS)
    assert len(find_vectors(tmp_path / "c.npy").names) == 6
    with refused("There is no file"):
        find_vectors(tmp_path / "d.npy")
    (tmp_path / "e.png").write_text("")
    with refused("holds no vectors", ".npz"):
        find_vectors(tmp_path / "e.png")
