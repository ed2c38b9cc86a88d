"""Where the images of a split lie in their data set, as an object and as a file that can be shared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...errors import InputError, unknown
from ...untrusted import LARGEST_JSON, parse_json, read_limited
from ..dataset import Dataset
from ..images import ImageSource
from .drawing import IntArray

FORMAT = 1  # of the file; a newer one is refused, not guessed at
PARTS = ("labeled", "unlabeled", "validation", "test")
LABELED_PARTS = ("labeled", "validation", "test")  # whose labels are used
SAMPLED = 1024  # images that a fingerprint looks at: all of a large set would take seconds at the start of every run


@dataclass(frozen=True, eq=False)
class Positions:
    """Which images are in which part. The first three are positions in the training images."""

    classes: tuple[int, ...]  # the known ones, by their numbers in the data set, ascending
    labeled: IntArray
    unlabeled: IntArray  # may repeat labeled images
    validation: IntArray
    test: IntArray  # in the test images or, where there are none, in the training images


def fingerprint(dataset: Dataset) -> str:
    """SHA-256 of the classes, every label, and the images: their names where they have some, else a sample of pixels.

    Names, because the pixels of a folder follow the image size, and photos decode a little differently elsewhere.
    """
    digest = hashlib.sha256(json.dumps(dataset.classes).encode())
    for images, names in ((dataset.train, dataset.train_names), (dataset.test, dataset.test_names)):
        if images is None:
            continue
        images = getattr(images, "pictures", None) or images  # of features, what they were made of
        digest.update(images.labels.numpy().tobytes())
        digest.update((json.dumps(names) if names else json.dumps((len(images), *images.shape))).encode())
        if not names:
            digest.update(_sample(images).numpy().tobytes())
    return digest.hexdigest()


def split_text(dataset: Dataset, positions: Positions) -> str:
    """The file that `read_split` reads back; images by name where they have one."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "data": {
            **count_images(dataset),
            "fingerprint": fingerprint(dataset),
            "mean": list(dataset.mean),
            "std": list(dataset.std),
        },
        "classes": [dataset.classes[number] for number in positions.classes],
    }
    for part in PARTS:
        names = names_of(dataset, part)
        index: list[int] = getattr(positions, part).tolist()
        content[part] = [names[position] for position in index] if names else index
    content["labels"] = {part: label_numbers(dataset, part, positions) for part in LABELED_PARTS}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"  # one line per part: a position on each would be a very long file


def read_split(path: Path, dataset: Dataset) -> Positions:
    """The split in the file at `path`, which must be one of this data set."""
    if not path.is_file():
        raise InputError(f"There is not a split file '{path}': every run folder holds one, called split.json.")
    content = parse_split(read_limited(path, LARGEST_JSON), path)
    _check_data(path, content, dataset)
    positions = find_positions(path, content, dataset)
    check_parts(path, positions, dataset)
    return positions


def parse_split(data: bytes, path: Path) -> Mapping[str, Any]:
    """What a split file says, in the right types; `path` is for the sentence that refuses it."""
    try:
        content = parse_json(data)
    except ValueError as problem:
        reason = str(problem).rstrip(".")
        raise InputError(f"'{path}' is damaged or no split file ({reason}): use the split.json of a run.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"'{path}' is not a split file of this version, which has \"format\": {FORMAT}.")
    for key, kind in {"data": dict, "classes": list, **dict.fromkeys(PARTS, list)}.items():
        if not isinstance(content.get(key), kind):
            raise InputError(f"'{path}' lacks {'an object' if kind is dict else 'a list'} called \"{key}\".")
    return content


def _check_data(path: Path, content: Mapping[str, Any], dataset: Dataset) -> None:
    if content["data"].get("fingerprint") == fingerprint(dataset):
        return
    made_for = {key: content["data"].get(key) for key in ("name", "train", "test")}
    here = count_images(dataset)
    difference = f"for {say_count(made_for)}, and this is {say_count(here)}"
    if all(made_for[key] == here[key] for key in ("train", "test")):
        difference += " with other classes, labels, images or image size"
    raise InputError(f"'{path}' belongs to other data: it was made {difference}.")


def find_positions(path: Path, content: Mapping[str, Any], dataset: Dataset) -> Positions:
    """Where the images of a split file lie in a data set that has them all."""
    numbers = {name: number for number, name in enumerate(dataset.classes)}
    for name in content["classes"]:
        if not isinstance(name, str) or name not in numbers:
            raise InputError(f"In '{path}': {unknown('class', str(name), dataset.classes)}")
    classes = tuple(sorted({numbers[name] for name in content["classes"]}))
    return Positions(classes, *(_positions(path, part, content[part], dataset) for part in PARTS))


def _positions(path: Path, part: str, entries: list[Any], dataset: Dataset) -> IntArray:
    names, count = names_of(dataset, part), len(_source(dataset, part))
    numbers = {name: position for position, name in enumerate(names)}
    found = [numbers.get(entry, -1) if isinstance(entry, str) else entry for entry in entries]
    for entry, position in zip(entries, found, strict=True):
        if type(position) is not int or not 0 <= position < count:
            choice = "a name such as " + repr(names[0]) if names else f"a number from 0 to {count - 1}"
            raise InputError(f"'{path}' has {entry!r} in \"{part}\", where every entry is {choice}.")
    return np.array(found, dtype=np.int64)


def check_parts(path: Path, positions: Positions, dataset: Dataset, *, tested: bool = True) -> None:
    """What is tested must not be trained on, and what is labeled must have a label; `tested`: there must be a test."""
    labeled, held_out = positions.labeled, positions.test if dataset.test is None else positions.test[:0]
    for name in LABELED_PARTS:  # a repeated label would weigh twice, a repeated answer count as two
        index = getattr(positions, name)
        if len(np.unique(index)) < len(index):
            raise InputError(f"'{path}' has an image twice in \"{name}\": list each one once.")
    if not np.isin(dataset.train.labels.numpy()[labeled], positions.classes).all():
        raise InputError(f'\'{path}\' has an image in "labeled" that is of none of its "classes": leave it out.')
    trained = np.concatenate([labeled, positions.unlabeled])
    for name, kept in (("validation", positions.validation), ("test", held_out)):
        if np.isin(kept, trained).any():
            raise InputError(f"'{path}' has an image in \"{name}\" that is trained on, too: list it in one part.")
    if np.isin(positions.validation, held_out).any():
        raise InputError(f'\'{path}\' has an image in both "validation" and "test": list it in one part.')
    truth = _source(dataset, "test").labels.numpy()[positions.test]
    if tested and not np.isin(truth, positions.classes).any():
        raise InputError(f'\'{path}\' has no image of its "classes" in "test": list at least one.')


def label_numbers(dataset: Dataset, part: str, positions: Positions) -> list[int]:
    """The labels of a part as numbers of its known classes, -1 for every other one."""
    numbers = {number: place for place, number in enumerate(positions.classes)}
    labels: list[int] = _source(dataset, part).labels.numpy()[getattr(positions, part)].tolist()
    return [numbers.get(label, -1) for label in labels]


def count_images(dataset: Dataset) -> dict[str, Any]:
    """How a data set is called, and how many images it has."""
    return {
        "name": dataset.name,
        "train": len(dataset.train),
        "test": 0 if dataset.test is None else len(dataset.test),  # 0: the test part is held out from the others
    }


def say_count(data: Mapping[str, Any]) -> str:
    """The same in words."""
    return f"'{data['name']}' ({data['train']} training and {data['test']} test images)"


def _source(dataset: Dataset, part: str) -> ImageSource:
    return dataset.test if part == "test" and dataset.test is not None else dataset.train


def names_of(dataset: Dataset, part: str) -> tuple[str, ...]:
    """The names of the images among which those of a part are."""
    return dataset.test_names if part == "test" and dataset.test is not None else dataset.train_names


def _sample(images: ImageSource) -> torch.Tensor:
    """At most `SAMPLED` images, evenly spaced, the first and the last among them."""
    index = np.linspace(0, len(images) - 1, min(SAMPLED, len(images))).round().astype(np.int64)
    return images.take(torch.from_numpy(index))
