from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from epass import from_huggingface


class FakeRows:
    """As much of a `datasets.Dataset` as is used."""

    def __init__(self, rows: list[dict[str, Any]], names: list[str] | None = None) -> None:
        self.rows = rows
        self.column_names = list(rows[0])
        self.features = {name: SimpleNamespace() for name in self.column_names}
        if names is not None:
            self.features["label"] = SimpleNamespace(names=names)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def gray(level: int) -> Image.Image:
    return Image.new("L", (12, 8), level)


def packed(level: int) -> dict[str, Any]:
    stream = io.BytesIO()
    gray(level).save(stream, "png")
    return {"bytes": stream.getvalue(), "path": None}


def test_rows_with_named_classes() -> None:
    labels = [2, 0, -1, None, 2]
    rows = [{"image": gray(level), "label": label} for level, label in enumerate(labels)]
    seen: list[tuple[int, int]] = []
    made = from_huggingface(
        FakeRows(rows, ["zebra", "yak", "ant"]), name="zoo", progress=lambda done, total: seen.append((done, total))
    )
    assert (made.name, made.classes) == ("zoo", ("zebra", "ant"))  # their order, without the class nobody has
    assert made.train.labels.tolist() == [1, 0, -1, -1, 1]
    assert made.train.pixels.shape == (5, 3, 32, 32)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert made.test is None
    assert made.augment == {"padding": 4, "horizontal_flip": True}
    assert seen == [(done, 5) for done in range(1, 6)]


def test_splits_and_other_columns() -> None:
    made = from_huggingface(
        {
            "test": FakeRows([{"img": packed(9), "kind": "b"}]),
            "unlabeled": FakeRows([{"img": packed(7)}]),
            "train": FakeRows([{"img": packed(1), "kind": "b"}, {"img": packed(2), "kind": "a"}]),
            "validation": FakeRows([{"img": packed(5), "kind": "a"}]),
            "extra": FakeRows([{"none": 1}]),
        },
        "img",
        "kind",
        image_size=8,
    )
    assert made.classes == ("a", "b")
    assert made.train.labels.tolist() == [1, 0, -1, 0]
    assert made.train.pixels[:, 0, 0, 0].tolist() == [1, 2, 7, 5]
    assert (made.validation, made.unused) == (1, ("extra",))
    assert made.parts["validation"] == "validation images"
    assert made.test is not None
    assert torch.equal(made.test.pixels, torch.full((1, 3, 8, 8), 9, dtype=torch.uint8))
    assert made.test.labels.tolist() == [1]


def test_without_test_images_those_for_validation_are_the_test() -> None:
    rows = {"train": [("a", 1), ("b", 2)], "valid": [("b", 3)]}
    made = from_huggingface(
        {key: FakeRows([{"image": gray(n), "label": label} for label, n in part]) for key, part in rows.items()}
    )
    assert (len(made.train), made.validation) == (2, 0)
    assert made.test is not None
    assert made.test.labels.tolist() == [1]
    assert made.parts == {"valid": "test images, since there are no others"}


def test_numbers_without_names() -> None:
    made = from_huggingface(FakeRows([{"image": gray(0), "label": label} for label in (10, 9)]))
    assert (made.classes, made.train.labels.tolist()) == (("9", "10"), [1, 0])


@pytest.mark.parametrize(
    ("splits", "parts"),
    [
        ({"test": [("a", 1)]}, ("Unknown split 'train'", "test")),
        ({"train": [("a", 1), ("a", 2)]}, ("split 'train'", "single class 'a'")),
        ({"train": [(None, 1)]}, ("split 'train'", "no class")),
        ({"train": [("a", 1), ("b", 2)], "test": [("c", 1)]}, ("Unknown test class 'c'", "a, b")),
        ({"train": [("a", 1), ("b", 2)], "test": [(None, 1)]}, ("test images", "without a label")),
    ],
)
def test_mistakes(refused, splits: dict[str, list[tuple[str | None, int]]], parts: tuple[str, ...]) -> None:
    made = {
        key: FakeRows([{"image": gray(level), "label": label} for label, level in rows]) for key, rows in splits.items()
    }
    with refused(*parts):
        from_huggingface(made)


def test_columns_and_images_are_checked(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = FakeRows([{"image": gray(0), "label": "a"}, {"image": "a.png", "label": "b"}])
    with refused("Unknown column of the split 'train' of 'zoo' 'images'", "did you mean 'image'?"):
        from_huggingface(rows, "images", name="zoo")
    with refused("Unknown column", "'kind'", "image, label"):
        from_huggingface(rows, label="kind")
    with refused("train[1] of 'zoo' is a str", "datasets.Image()"):
        from_huggingface(rows, name="zoo")
    with refused("too small"):
        from_huggingface(rows, image_size=2)
    rows.rows[1]["image"] = {"bytes": b"none", "path": "a.png"}
    with refused("train[1] of 'zoo'", "not an image"):
        from_huggingface(rows, name="zoo")
    rows.rows[1]["image"] = {"bytes": None, "path": "a.png"}
    with refused("train[1] of 'zoo' is a dict"):
        from_huggingface(rows, name="zoo")
    rows.rows[1]["image"] = Image.new("F", (8, 8))
    with refused("train[1] of 'zoo'", "floating-point"):
        from_huggingface(rows, name="zoo")
    rows.rows[1]["image"] = gray(0)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 95)
    with refused("train[0] of 'zoo'", "12 x 8 pixels"):
        from_huggingface(rows, name="zoo")
