"""The split that a run wrote down, found again in its data, which may have changed since."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputError
from ..dataset import Dataset
from .split_file import (
    LABELED_PARTS,
    PARTS,
    Positions,
    check_parts,
    count_images,
    find_positions,
    fingerprint,
    label_numbers,
    names_of,
    parse_split,
    say_count,
)

_MOST_CHANNELS = 4  # of images
NAMED = 3  # missing images that are named


class Recorded(NamedTuple):
    """Where the images of a run lie today, and what is different about the data."""

    dataset: Dataset  # with the mean and deviation that the run began with
    positions: Positions  # without those that are missing, of the parts that are not needed
    change: str  # since the run began, in words; empty where there is none


def find_recorded(data: bytes, path: Path, dataset: Dataset, needed: Sequence[str] = PARTS) -> Recorded:
    """The split in a run's own file, whose bytes are `data`.

    Images are found by their names, so what changed around them does no harm. Refused are data in which images of the
    `needed` parts are missing, have other labels to train on, or cannot be told from others because they have no names.
    """
    content = parse_split(data, path)
    if content["data"].get("fingerprint") == fingerprint(dataset):
        positions = find_positions(path, content, dataset)
        check_parts(path, positions, dataset, tested=bool(content["test"]))
        return Recorded(dataset, positions, "")
    began = f"The images in '{dataset.name}' are not those that the run began with"
    if not all(has_names(content[part], dataset, part) for part in PARTS):
        raise InputError(
            f"{began}, and without file names nobody can tell which is which: put back {say_count(_data(content))}, "
            f"where {say_count(count_images(dataset))} is now."
        )
    here = {names: frozenset(names) for names in (dataset.train_names, dataset.test_names)}
    gone = {part: [name for name in content[part] if name not in here[names_of(dataset, part)]] for part in PARTS}
    left = {part: [name for name in content[part] if name in here[names_of(dataset, part)]] for part in PARTS}
    positions = find_positions(path, {**content, **left}, dataset)
    if [dataset.classes[number] for number in positions.classes] != content["classes"]:
        raise InputError(f"{began}: its classes come in another order. Put the old ones back.")
    relabeled = count_relabeled(path, content, positions, dataset)
    unknown = "another order, or others that it does not use" if relabeled else "other labels, or another order"
    change = f"{began} ({', '.join(list_changes(content, dataset, gone, relabeled)) or unknown})"
    if lacking := list(dict.fromkeys(name for part in needed for name in gone[part])):
        some = ", ".join(lacking[:NAMED]) + (f" and {len(lacking) - NAMED:,} more" if len(lacking) > NAMED else "")
        raise InputError(f"{change}, and some are needed: put back {some}.")
    if "labeled" in needed and (relabeled is None or relabeled["labeled"]):
        what = "and it did not write down its labels" if relabeled is None else "and its labels would be others"
        raise InputError(f"{change}, {what}: put the old ones back, or start a new run.")
    check_parts(path, positions, dataset, tested=bool(content["test"]))
    return Recorded(_with_scale(path, content, dataset), positions, change)


def has_names(entries: Sequence[object], dataset: Dataset, part: str) -> bool:
    """Whether images that a split file lists can be found by name."""
    return not entries or (bool(names_of(dataset, part)) and all(isinstance(entry, str) for entry in entries))


def _data(content: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says about the size of the data, with 0 for what is no number."""
    written = content["data"]
    counts = {key: written.get(key) for key in ("train", "test")}
    return {"name": written.get("name")} | {key: n if type(n) is int else 0 for key, n in counts.items()}


def count_relabeled(
    path: Path, content: Mapping[str, Any], positions: Positions, dataset: Dataset
) -> dict[str, int] | None:
    """How many images of each part have another label now; None where the run did not write them down."""
    if content.get("labels") is None:
        return None
    changed = {}
    for part in LABELED_PARTS:
        then = labels_then(path, content, part)
        names = [names_of(dataset, part)[position] for position in getattr(positions, part).tolist()]
        known = [dataset.classes[number] for number in positions.classes]
        now = zip(names, label_numbers(dataset, part, positions), strict=True)
        changed[part] = sum(then[name] != class_name(label, known) for name, label in now)
    return changed


def labels_then(path: Path, content: Mapping[str, Any], part: str) -> dict[Any, object]:
    """The class of every image of a part as the file has written it down; None for one of no known class."""
    written = content["labels"]
    labels = written.get(part) if isinstance(written, dict) else None
    if not isinstance(labels, list) or len(labels) != len(content[part]):
        raise InputError(f'\'{path}\' is damaged: "labels" has not one for every image in "{part}".')
    pairs = zip(content[part], labels, strict=True)
    return {entry: class_name(label, content["classes"]) for entry, label in pairs}


def class_name(label: Any, classes: Sequence[Any]) -> object:
    """What a label as a number of known classes stands for; None for every other one."""
    return classes[label] if type(label) is int and 0 <= label < len(classes) else None


def list_changes(
    content: Mapping[str, Any],
    dataset: Dataset,
    gone: Mapping[str, Sequence[str]],
    relabeled: Mapping[str, int] | None,
) -> list[str]:
    """What can be counted of changes since a split was written, in words."""
    missing = len({(part == "test", name) for part in PARTS for name in gone[part]})
    then, now = (data["train"] + data["test"] for data in (_data(content), count_images(dataset)))
    counts = (now - then + missing, "added"), (missing, "missing"), (sum((relabeled or {}).values()), "relabeled")
    return [f"{count:,} {what}" for count, what in counts if count > 0]


def _with_scale(path: Path, content: Mapping[str, Any], dataset: Dataset) -> Dataset:
    """The data set with the mean and deviation that were measured when the run began."""
    found = {}
    for key, today in (("mean", dataset.mean), ("std", dataset.std)):
        values = content["data"].get(key, list(today))
        if not today or (isinstance(values, list) and len(values) > _MOST_CHANNELS >= len(today)):
            return dataset  # the run's are those of the features of these images
        if not isinstance(values, list) or len(values) != len(today) or not all(map(_is_number, values)):
            raise InputError(f"'{path}' is damaged: \"{key}\" is no list of {len(today)} numbers.")
        found[key] = tuple(map(float, values))
    return replace(dataset, mean=found["mean"], std=found["std"])


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
