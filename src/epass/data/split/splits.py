"""Which images keep their labels, which lose them, and which are kept for validation and for the test."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch

from ... import seeds
from ...errors import InputError, unknown
from ...files import from_home
from ..dataset import Dataset
from ..images import ImageSource
from .drawing import (
    IntArray,
    Rounding,
    balanced_split,
    class_sizes,
    count_images,
    draw,
    long_tailed_counts,
    long_tailed_split,
    open_set_labels,
    share_counts,
    stratified_part,
)
from .split_file import Positions, read_split

WAYS = ("fold", "label_share", "head_labels")  # of choosing labeled images, beside an equal number of every class
TAIL = ("imbalance", "head_unlabeled", "unlabeled_imbalance", "reverse_unlabeled")


@dataclass(frozen=True, eq=False)
class Split:
    """The parts of a data set that a run works with."""

    labeled: ImageSource
    unlabeled: ImageSource  # truth where it is known and was not trained on, for diagnostics only
    test: ImageSource
    held_out: bool  # the test part was taken from the training images; it may be empty
    label_counts: tuple[int, ...]  # labeled images per class
    classes: tuple[str, ...]  # the known ones: what the labels above are numbers of
    positions: Positions  # where all of them lie in the data set
    validation: ImageSource | None = None  # labeled images that are not trained on
    outliers: ImageSource | None = None  # test images of no known class; their label is the number after the last class


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a data set is divided. The fields are keys of a recipe's [data] table."""

    labels: int | None = None  # so many, equally many of every class; None keeps every known label
    holdout: float = 0.2  # without a test set, this share of every class's labeled images becomes one; 0: no test
    include_labeled: bool | Literal["twice"] | None = None  # among the unlabeled; None: unless there is a long tail
    validation: float = 0.0  # share of every class's labels that is kept for choosing a step
    fold: int | None = None  # the labeled images are this list of the data set, from 1
    label_share: float | None = None  # this share of every class
    label_rounding: Rounding = "nearest"
    head_labels: int | None = None  # a long tail: so many labels in the largest class
    imbalance: float = 1.0  # the largest class over the smallest one
    head_unlabeled: int | None = None  # so many unlabeled images in their largest class; None keeps all that are left
    unlabeled_imbalance: float | None = None  # None: as for the labels
    reverse_unlabeled: bool = False  # the class with the most labels has the fewest unlabeled images
    known_classes: list[str | int] | None = None  # only these have labels, and are tested
    split_file: str | None = None  # decides all of the above

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if self.split_file is not None and (others := [name for name in given if name not in ("labels", "split_file")]):
            raise InputError(f"data.split_file decides about every image already: remove data.{others[0]}.")
        if len(ways := [name for name in WAYS if name in given]) > 1:
            raise InputError(f"data.{ways[0]} and data.{ways[1]} both say which images are labeled: remove one.")
        if self.head_labels is None and (tail := [name for name in TAIL if name in given]):
            raise InputError(
                f"data.{tail[0]} needs a long tail: set data.head_labels, the labels of the largest class."
            )
        if self.head_unlabeled is None and (tail := [name for name in TAIL[2:] if name in given]):
            raise InputError(f"data.{tail[0]} needs data.head_unlabeled: how many images the largest class has.")
        if self.label_share is None and "label_rounding" in given:
            raise InputError("data.label_rounding needs data.label_share: the share of every class that is labeled.")
        if not 0 <= self.validation < 1:
            raise InputError(
                f"The validation share {self.validation:g} is out of range: use a number between 0 and 1, such as 0.2."
            )


def divide(dataset: Dataset, *, seed: int, all_labels: bool = False, **settings: Any) -> Split:
    """The parts of a data set for one run, in main memory as readers leave them: move them afterwards.

    Args:
        dataset: Where they come from.
        seed: Decides which images are labeled, and which are for validation. It does not touch the test part, which is
            the same for every seed and number of labels, so that runs can be compared.
        all_labels: Every image that would have been unlabeled keeps its label, too, if it is known.
        **settings: Those of `Protocol`.
    """
    protocol = Protocol(**settings)
    if protocol.split_file is None:
        return cut(dataset, _draw_positions(dataset, protocol, seed, all_labels))
    positions = read_split(from_home(protocol.split_file), dataset)
    if all_labels:
        trained = np.union1d(positions.labeled, positions.unlabeled)
        known = np.isin(dataset.train.labels.numpy()[trained], positions.classes)
        positions = Positions(
            positions.classes, trained[known], positions.unlabeled, positions.validation, positions.test
        )
    return cut(dataset, positions)


def _draw_positions(dataset: Dataset, protocol: Protocol, seed: int, all_labels: bool) -> Positions:
    everything = dataset.train.labels.numpy()
    kept, own = np.split(np.arange(len(everything)), [len(everything) - dataset.validation])
    test = np.arange(0 if dataset.test is None else len(dataset.test))
    if dataset.test is None and protocol.holdout:
        kept, test = _hold_out(everything, protocol.holdout, dataset.classes)
    known = _known(protocol.known_classes, dataset.classes)
    truth = _numbers(everything, known, len(dataset.classes))
    classes = tuple(dataset.classes[number] for number in known)
    if protocol.fold is not None and not all_labels:
        chosen, rest = _fold(dataset, protocol.fold, np.flatnonzero(truth >= 0), kept)
    else:
        chosen, rest = (kept[index] for index in _choose(truth[kept], protocol, classes, seed, all_labels))
    without_class = kept[truth[kept] < 0]
    validation = own[truth[own] >= 0]
    if protocol.validation:
        if dataset.validation:
            raise InputError(f"'{dataset.name}' has validation images of its own: remove data.validation.")
        picked = _validation_part(truth[chosen], protocol.validation, seed)
        chosen, validation = np.delete(chosen, picked), chosen[picked]
    include = protocol.head_labels is None if protocol.include_labeled is None else protocol.include_labeled
    unlabeled = [rest, without_class]
    if include == "twice":  # as in the reference code for STL-10: all images, and before them the labeled ones
        unlabeled = [chosen, without_class, np.union1d(chosen, rest)]
    elif include:
        unlabeled = [chosen, *unlabeled]
    return Positions(known, chosen, np.concatenate(unlabeled), validation, test)


def _choose(
    truth: IntArray, protocol: Protocol, classes: tuple[str, ...], seed: int, all_labels: bool
) -> tuple[IntArray, IntArray]:
    """Positions in `truth` of the labeled images, and of the other ones of known class."""
    if protocol.head_labels is not None:
        labeled = long_tailed_counts(protocol.head_labels, len(classes), protocol.imbalance)
        if not min(labeled):
            raise InputError(
                f"{protocol.head_labels} labels in the largest class leave none for the smallest one at an imbalance "
                f"of {protocol.imbalance:g}: use data.head_labels={math.ceil(protocol.imbalance)} or more."
            )
        unlabeled = None
        if protocol.head_unlabeled is not None:
            imbalance = protocol.imbalance if protocol.unlabeled_imbalance is None else protocol.unlabeled_imbalance
            unlabeled = long_tailed_counts(
                protocol.head_unlabeled, len(classes), imbalance, reverse=protocol.reverse_unlabeled
            )
        chosen, rest = long_tailed_split(truth, labeled, unlabeled, seed, classes=classes)
        return (np.union1d(chosen, rest), rest[:0]) if all_labels else (chosen, rest)
    if protocol.label_share is not None and not all_labels:
        sizes = class_sizes(truth, len(classes))
        counts = share_counts(sizes, protocol.label_share, protocol.label_rounding)
        if 0 in counts:
            name, size = classes[counts.index(0)], sizes[counts.index(0)]
            raise InputError(
                f"A share of {protocol.label_share:g} leaves class '{name}', which has {count_images(size)}, without a "
                "label: use a larger data.label_share or data.label_rounding=nearest."
            )
        return draw(truth, counts, None, seed)
    if protocol.labels is not None and not all_labels:
        return balanced_split(truth, protocol.labels, len(classes), seed, classes=classes)
    return np.flatnonzero(truth >= 0), np.empty(0, dtype=np.int64)


def _fold(dataset: Dataset, fold: int, usable: IntArray, kept: IntArray) -> tuple[IntArray, IntArray]:
    """The labeled images that the data set itself lists, and the other ones of known class."""
    if not dataset.folds:
        raise InputError(f"'{dataset.name}' has no folds of its own: use data.labels to draw labeled images.")
    if not 1 <= fold <= len(dataset.folds):
        raise InputError(f"'{dataset.name}' has no fold {fold}: use 1 to {len(dataset.folds)}.")
    listed = np.array(dataset.folds[fold - 1], dtype=np.int64)
    usable = np.intersect1d(usable, kept)
    return listed[np.isin(listed, usable)], np.setdiff1d(usable, listed)


def cut(dataset: Dataset, positions: Positions) -> Split:
    """The images at these positions, with the numbers of the known classes."""
    known, train = positions.classes, dataset.train
    truth = _numbers(train.labels.numpy(), known, len(dataset.classes))
    classes = tuple(dataset.classes[number] for number in known)
    counts = class_sizes(truth[positions.labeled], len(known))
    if 0 in counts:
        name = classes[counts.index(0)]
        raise InputError(f"Class '{name}' has no labeled training image: label at least one or remove the class.")
    hidden = truth.copy()  # the quality of pseudo-labels is measured on images whose label was not trained on
    hidden[positions.labeled] = -1
    labeled = _images(train, positions.labeled, truth)
    again = np.array_equal(positions.labeled, positions.unlabeled)  # then one copy of the pixels is enough
    unlabeled = _images(labeled if again else train, positions.unlabeled, hidden, taken=again)
    test, outliers = cut_test(dataset, positions)
    return Split(
        labeled=labeled,
        unlabeled=unlabeled,
        test=test,
        held_out=dataset.test is None,
        label_counts=tuple(counts),
        classes=classes,
        positions=positions,
        validation=_images(train, positions.validation, truth) if len(positions.validation) else None,
        outliers=outliers,
    )


def cut_test(dataset: Dataset, positions: Positions) -> tuple[ImageSource, ImageSource | None]:
    """The test images of the known classes, and those of no known class, if there are any."""
    known, tested = positions.classes, dataset.train if dataset.test is None else dataset.test
    numbers = _numbers(tested.labels.numpy(), known, len(dataset.classes))
    inside = numbers[positions.test] >= 0
    whole = dataset.test is not None and inside.all() and np.array_equal(positions.test, np.arange(len(tested)))
    same = whole and len(known) == len(dataset.classes)
    test = tested if same else _images(tested, positions.test[inside], numbers)
    outside = np.full_like(numbers, len(known))
    return test, None if inside.all() else _images(tested, positions.test[~inside], outside)


def _images(source: ImageSource, index: IntArray, labels: IntArray, *, taken: bool = False) -> ImageSource:
    """The images at `index`, with these labels; `taken`: `source` holds just these already."""
    images = source if taken else source.select(torch.from_numpy(index))
    return images.labeled(torch.from_numpy(labels[index]))


def _known(asked: list[str | int] | None, classes: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers of the known classes, ascending."""
    if asked is None:
        return tuple(range(len(classes)))
    for entry in asked:
        if isinstance(entry, str) and entry not in classes:
            raise unknown("class in data.known_classes", entry, classes)
        if isinstance(entry, int) and not 0 <= entry < len(classes):
            raise InputError(f"data.known_classes has class {entry}: use 0 to {len(classes) - 1}, or names.")
    numbers = [classes.index(entry) if isinstance(entry, str) else entry for entry in asked]
    known = set(numbers)
    if len(known) < 2:
        raise InputError(f"data.known_classes has {len(known)} of the classes, but a classifier needs at least two.")
    twice = [classes[number] for number in sorted(known) if numbers.count(number) > 1]
    if twice:
        raise InputError(f"data.known_classes has '{twice[0]}' more than once: list each class once.")
    return tuple(sorted(known))


def _numbers(labels: IntArray, known: tuple[int, ...], num_classes: int) -> IntArray:
    """Labels as numbers of the known classes; -1 for every other one."""
    renumbered = open_set_labels(np.arange(num_classes), known)
    renumbered[renumbered == len(known)] = -1
    numbers: IntArray = np.where(labels < 0, -1, renumbered[labels])
    return numbers


def _hold_out(labels: IntArray, share: float, classes: tuple[str, ...]) -> tuple[IntArray, IntArray]:
    """Positions to train on, ascending, and positions of the test part, class by class."""
    if not 0 < share < 1:
        raise InputError(
            f"The held-out share {share:g} is out of range: use a number between 0 and 1, such as 0.2; 0 is no test."
        )
    for name, size in zip(classes, class_sizes(labels, len(classes)), strict=True):
        if size < 2:
            raise InputError(
                f"Class '{name}' has {count_images(size)}, but without a test set one is needed to train and one to "
                "test: label at least two or add a test set."
            )
    random = np.random.RandomState(0)  # a constant: the test part belongs to the data, not to the run
    test = np.concatenate(stratified_part(labels, share, random))
    return np.delete(np.arange(len(labels)), test), test


def _validation_part(labels: IntArray, share: float, seed: int) -> IntArray:
    """Positions in `labels` of the images for validation, class by class."""
    random = np.random.RandomState(seeds.fold(seed, "validation") % 2**32)
    picked = np.concatenate(stratified_part(labels, share, random))
    if not len(picked):
        raise InputError(
            "No class has two labels, of which one could be kept for validation: use more labels or data.validation=0."
        )
    return picked
