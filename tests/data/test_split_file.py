"""A split as a file: it comes back as it was, and only to the data that it was made for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from epass.data import Dataset, Images, Split, divide, open_dataset, split_text
from epass.data.split.split_file import SAMPLED, fingerprint

LABELS = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, -1], [20, 11, 14, 9]))


def dataset(test: bool = True, **changes: Any) -> Dataset:
    pixels = torch.arange(len(LABELS), dtype=torch.uint8).reshape(-1, 1, 1, 1)
    tested = Images(torch.full((6, 1, 1, 1), 250, dtype=torch.uint8), torch.arange(6) % 3) if test else None
    plain = Dataset("tiny", ("ant", "bee", "cat"), Images(pixels, torch.from_numpy(LABELS)), tested, (0.5,), (0.5,), {})
    return replace(plain, **changes)


def named(test: bool) -> Dataset:
    return dataset(
        test,
        train_names=tuple(f"train/{number}.png" for number in range(len(LABELS))),
        test_names=tuple(f"test/{number}.png" for number in range(6 if test else 0)),
    )


def parts(split: Split) -> dict[str, tuple[list[int], list[int]]]:
    names = ("labeled", "unlabeled", "validation", "test", "outliers")
    images = {name: getattr(split, name) for name in names}
    return {
        name: (found.pixels.flatten().tolist(), found.labels.tolist())
        for name, found in images.items()
        if found is not None
    }


SETTINGS: list[dict[str, Any]] = [
    {},
    {"labels": 6},
    {"labels": 6, "validation": 0.3, "include_labeled": "twice"},
    {"head_labels": 6, "imbalance": 3.0, "head_unlabeled": 4, "reverse_unlabeled": True},
    {"labels": 6, "known_classes": ["cat", "ant"]},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("make", [dataset, named])
def test_a_split_comes_back_as_it_was(make: Any, test: bool, settings: dict[str, Any], tmp_path: Path) -> None:
    data, path = make(test), tmp_path / "split.json"
    split = divide(data, seed=3, **settings)
    path.write_text(split_text(data, split.positions))
    for seed in (3, 4):  # whatever the seed
        again = divide(make(test), seed=seed, split_file=str(path))
        assert parts(again) == parts(split)
        assert (again.classes, again.label_counts, again.held_out) == (split.classes, split.label_counts, not test)
        assert split_text(data, again.positions) == path.read_text()


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    data = named(True)
    content = json.loads(split_text(data, divide(data, seed=0, labels=3, known_classes=[0, 2, 1]).positions))
    assert content["format"] == 1
    scale = {"mean": [0.5], "std": [0.5]}
    assert content["data"] == {"name": "tiny", "train": 54, "test": 6, "fingerprint": fingerprint(data), **scale}
    assert content["labels"] == {"labeled": [0, 1, 2], "validation": [], "test": [0, 1, 2, 0, 1, 2]}
    assert content["classes"] == ["ant", "bee", "cat"]
    assert [name.split("/")[0] for name in content["labeled"]] == ["train"] * 3
    assert content["test"] == [f"test/{number}.png" for number in range(6)]
    assert content["validation"] == []
    plain = dataset(True)
    assert all(
        isinstance(entry, int)
        for entry in json.loads(split_text(plain, divide(plain, seed=0, labels=3).positions))["unlabeled"]
    )


def test_all_labels_of_a_split_are_those_of_its_images(tmp_path: Path) -> None:
    data, path = dataset(False), tmp_path / "split.json"
    split = divide(data, seed=3, labels=6, validation=0.5)
    path.write_text(split_text(data, split.positions))
    every = divide(data, seed=0, split_file=str(path), all_labels=True)
    assert parts(every)["test"] == parts(split)["test"]
    assert parts(every)["validation"] == parts(split)["validation"]
    trained = set(parts(split)["unlabeled"][0])
    assert parts(every)["labeled"][0] == [position for position in sorted(trained) if LABELS[position] >= 0]


def moved(images: Images, index: list[int]) -> Images:
    return images.select(torch.tensor(index))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: {"classes": ("ant", "bee", "dog")}, ("other classes, labels",)),
        (
            lambda data: {"name": "else", "test": None},
            ("'tiny' (54 training and 6 test images)", "'else' (54", "0 test"),
        ),
        (lambda data: {"train": moved(data.train, list(range(53)))}, ("54 training", "53 training")),
        (lambda data: {"train": moved(data.train, [1, 0, *range(2, 54)])}, ("other classes, labels, images",)),
        (lambda data: {"train": Images(data.train.pixels, data.train.labels.flip(0))}, ("labels",)),
        (lambda data: {"train": Images(data.train.pixels.flip(0), data.train.labels)}, ("images",)),
        (lambda data: {"test": Images(data.test.pixels + 1, data.test.labels)}, ("images",)),
        (lambda data: {"train_names": tuple(map(str, range(54)))}, ("images",)),
    ],
)
def test_a_split_of_other_data_is_refused(change: Any, words: tuple[str, ...], tmp_path: Path, refused) -> None:
    data, path = dataset(), tmp_path / "split.json"
    path.write_text(split_text(data, divide(data, seed=0, labels=3).positions))
    with refused(f"'{path}' belongs to other data: it was made for 'tiny'", *words):
        divide(replace(data, **change(data)), seed=0, split_file=str(path))
    assert divide(replace(data, name="a copy"), seed=0, split_file=str(path)).label_counts == (1, 1, 1)


def test_a_fingerprint_sees_the_ends_of_a_large_set() -> None:
    def large(*brighter: int) -> Dataset:
        pixels = torch.zeros(5 * SAMPLED, 1, 1, 1, dtype=torch.uint8)
        pixels[list(brighter)] = 1
        return dataset(False, train=Images(pixels, torch.arange(5 * SAMPLED) % 3))

    assert len({fingerprint(large(*brighter)) for brighter in [(), (0,), (-1,)]}) == 3
    assert fingerprint(large(0)) == fingerprint(large(0))


def test_a_folder_keeps_its_split_at_any_image_size(tmp_path: Path, refused) -> None:
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(5):
            pixels = random.integers(0, 255, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    small, large = (open_dataset(str(tmp_path / "photos"), image_size=size) for size in (8, 12))
    split = divide(small, seed=1, labels=4)
    text, path = split_text(small, split.positions), tmp_path / "split.json"
    assert set(json.loads(text)["labeled"]) <= {
        f"{name}/{number}.png" for name in ("cat", "dog") for number in range(5)
    }
    path.write_text(text)
    again = divide(large, seed=0, split_file=str(path))
    assert split_text(small, again.positions) == text
    (tmp_path / "photos" / "cat" / "4.png").rename(tmp_path / "photos" / "cat" / "5.png")
    with refused("belongs to other data"):
        divide(open_dataset(str(tmp_path / "photos"), image_size=8), seed=0, split_file=str(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, ("is not a split file of this version", '"format": 1')),
        ({"labeled": None}, ("lacks a list", '"labeled"')),
        ({"data": []}, ("lacks an object", '"data"')),
        ({"labeled": [0, 54]}, ('has 54 in "labeled"', "from 0 to 53")),
        ({"labeled": [0, -1]}, ('has -1 in "labeled"',)),
        ({"unlabeled": [True]}, ('has True in "unlabeled"',)),
        ({"unlabeled": ["a.png"]}, ("has 'a.png' in \"unlabeled\"",)),
        ({"test": [6]}, ('has 6 in "test"', "from 0 to 5")),
        ({"test": []}, ("has no image of its", "list at least one")),
        ({"classes": ["ant", "bee", "bat"]}, ("Unknown class 'bat'",)),
        ({"classes": ["ant", "bee", ["cat"]]}, ("Unknown class",)),
        ({"classes": ["ant", "bee"]}, ('"labeled" that is of none of its',)),
    ],
)
def test_a_file_that_was_spoiled_by_hand(
    change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, refused
) -> None:
    data, path = dataset(), tmp_path / "split.json"
    content = json.loads(split_text(data, divide(data, seed=0, labels=6).positions))
    path.write_text(json.dumps(content | change))
    with refused(str(path), *words):
        divide(data, seed=0, split_file=str(path))


def test_parts_that_overlap_are_refused(tmp_path: Path, refused) -> None:
    data, path = dataset(False), tmp_path / "split.json"
    content = json.loads(split_text(data, divide(data, seed=0, labels=6, validation=0.3).positions))

    def spoil(**change: list[int]) -> str:
        path.write_text(json.dumps(content | change))
        return str(path)

    for part in ("labeled", "validation", "test"):
        with refused(f'has an image twice in "{part}": list each one once.'):
            divide(data, seed=0, split_file=spoil(**{part: content[part] * 2}))
    assert len(divide(data, seed=0, split_file=spoil(unlabeled=content["unlabeled"] * 2)).unlabeled) == 2 * len(
        content["unlabeled"]
    )
    with refused('in "validation" that is trained on'):
        divide(data, seed=0, split_file=spoil(validation=content["unlabeled"][-1:]))
    with refused('in "validation" that is trained on'):
        divide(data, seed=0, split_file=spoil(validation=content["labeled"][:1], unlabeled=content["unlabeled"][9:]))
    with refused('in "test" that is trained on'):
        divide(data, seed=0, split_file=spoil(test=content["test"] + content["unlabeled"][-1:]))
    with refused('in both "validation" and "test"'):
        divide(data, seed=0, split_file=spoil(validation=content["test"][:1]))
    tested = dataset(True)  # there, equal numbers are other images
    text = json.loads(split_text(tested, divide(tested, seed=0).positions))
    path.write_text(json.dumps(text))
    assert set(text["test"]) & set(text["labeled"])
    assert divide(tested, seed=0, split_file=str(path)).test is tested.test
    path.write_text(json.dumps(text | {"test": text["test"] * 2}))
    with refused('twice in "test"'):
        divide(tested, seed=0, split_file=str(path))


def test_what_is_no_split_file(tmp_path: Path, refused) -> None:
    path = tmp_path / "split.json"
    with refused("There is not a split file", "called split.json"):
        divide(dataset(), seed=0, split_file=str(path))
    for text in ("", "no json", '{"format": 1', "\x89"):
        path.write_text(text, encoding="latin-1")
        with refused(f"'{path}' is damaged or no split file", "use the split.json of a run"):
            divide(dataset(), seed=0, split_file=str(path))
    path.write_text("[1]")
    with refused("is not a split file of this version"):
        divide(dataset(), seed=0, split_file=str(path))


@pytest.mark.parametrize(
    "more", [{"holdout": 0.3}, {"validation": 0.1}, {"fold": 1}, {"known_classes": [0, 1]}, {"include_labeled": False}]
)
def test_a_split_file_leaves_nothing_to_decide(more: dict[str, Any], tmp_path: Path, refused) -> None:
    path = tmp_path / "split.json"
    path.write_text(split_text(dataset(), divide(dataset(), seed=0, labels=6).positions))
    with refused(f"data.split_file decides about every image already: remove data.{next(iter(more))}."):
        divide(dataset(), seed=0, split_file=str(path), **more)
    assert divide(dataset(), seed=0, split_file=str(path), labels=30).label_counts == (2, 2, 2)
