"""A run that goes on from another one on data that may have grown: what that one was tested on stays untouched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError
from ..dataset import Dataset
from .drawing import IntArray
from .recorded import class_name, count_relabeled, has_names, labels_then, list_changes
from .split_file import (
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


class Carried(NamedTuple):
    """The split of a run that goes on from another one, and how its data differ from that one's."""

    positions: Positions
    change: str  # in words; empty where there is none
    test_change: str  # the same of the test images alone: where there is one, test errors cannot be compared
    new_classes: tuple[str, ...]


def carry_over(data: bytes, path: Path, dataset: Dataset, fresh: Positions) -> Carried:
    """The split of the run that goes on, from `fresh`, which was drawn anew, and the other run's file, `data`.

    Images that the other run was tested or validated on keep that part, for no test may look at what a network has
    learned. Images that had a label keep it as long as there is room among as many of their class as `fresh` has.
    Images are found by their names, unless nothing changed.
    """
    content = parse_split(data, path)
    if content["data"].get("fingerprint") == fingerprint(dataset):
        old, change = find_positions(path, content, dataset), list[str]()
    else:
        old, change = _find_again(content, path, dataset)
    positions = _join(old, fresh, dataset)
    check_parts(path, positions, dataset, tested=bool(content["test"]))
    labels = len(positions.labeled) - len(content["labeled"])
    change += [f"{abs(labels):,} label{'s' * (abs(labels) > 1)} {'more' if labels > 0 else 'fewer'}"] if labels else []
    new = tuple(
        dataset.classes[number] for number in fresh.classes if dataset.classes[number] not in content["classes"]
    )
    return Carried(positions, ", ".join(change), _test_change(content, path, positions, dataset), new)


def _test_change(content: Mapping[str, Any], path: Path, positions: Positions, dataset: Dataset) -> str:
    """How the tested images differ from those of the other run, in words; empty where that one had no test."""
    names, known = names_of(dataset, "test"), [dataset.classes[number] for number in positions.classes]
    entries = [names[position] if names else position for position in positions.test.tolist()]
    labels = label_numbers(dataset, "test", positions)
    now = {entry: class_name(label, known) for entry, label in zip(entries, labels, strict=True)}
    then: dict[Any, object] = dict.fromkeys(content["test"], "")
    if content.get("labels") is None:  # an old version wrote none: which images these were is all that is known
        now = dict.fromkeys(now, "")
    else:
        then = labels_then(path, content, "test")
    then, now = ({entry: label for entry, label in part.items() if label is not None} for part in (then, now))
    counts = [
        (len(now.keys() - then.keys()), "added"),
        (len(then.keys() - now.keys()), f"of {len(then):,} missing"),
        (sum(then[entry] != now[entry] for entry in then.keys() & now.keys()), "relabeled"),
    ]
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) if then else ""


def _find_again(content: Mapping[str, Any], path: Path, dataset: Dataset) -> tuple[Positions, list[str]]:
    """Where the images of a split lie in data that changed, as far as they are there, and what changed."""
    if not all(has_names(content[part], dataset, part) for part in PARTS):
        raise InputError(
            f"'{dataset.name}' is not what the run learned from, and without file names nobody can tell which images "
            f"it was tested on: put back the old ones, where {say_count(count_images(dataset))} is now."
        )
    here = {part: frozenset(names_of(dataset, part)) for part in PARTS}
    left = {part: [name for name in content[part] if name in here[part]] for part in PARTS}
    gone = {part: [name for name in content[part] if name not in here[part]] for part in PARTS}
    known = [name for name in content["classes"] if name in dataset.classes]
    old = find_positions(path, {**content, **left, "classes": known}, dataset)
    return old, list_changes(content, dataset, gone, count_relabeled(path, content, old, dataset))


def _join(old: Positions, fresh: Positions, dataset: Dataset) -> Positions:
    test = fresh.test
    if dataset.test is None:
        unknown = ~np.isin(dataset.train.labels.numpy()[fresh.test], old.classes)
        test = np.concatenate([old.test, fresh.test[unknown]])  # a class that is new has images to test, too
    kept = np.union1d(old.validation, test if dataset.test is None else test[:0])
    labeled = _labeled(old.labeled, fresh, dataset.train.labels.numpy(), kept)
    everything: list[IntArray] = [fresh.labeled, fresh.validation, old.labeled, old.unlabeled]
    everything += [fresh.test] if dataset.test is None else []
    without = kept if np.isin(fresh.labeled, fresh.unlabeled).all() else np.union1d(kept, labeled)
    unlabeled = fresh.unlabeled[~np.isin(fresh.unlabeled, without)]  # in its order, and what is there twice
    others = np.setdiff1d(np.concatenate(everything), np.concatenate([unlabeled, without]))
    unlabeled = np.concatenate([unlabeled, others])
    return Positions(fresh.classes, labeled, unlabeled, old.validation, test)


def _labeled(before: IntArray, fresh: Positions, labels: IntArray, kept: IntArray) -> IntArray:
    """As many of each class as `fresh` has, those that had a label before first; never one that is `kept`."""
    chosen = []
    for number in fresh.classes:
        drawn = fresh.labeled[labels[fresh.labeled] == number]
        had = before[labels[before] == number]
        candidates = np.concatenate([had, drawn[~np.isin(drawn, had)]])
        chosen.append(candidates[~np.isin(candidates, kept)][: len(drawn)])
    return np.concatenate(chosen)
