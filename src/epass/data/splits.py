"""Which images keep their labels, which lose them, and which are kept for the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .dataset import Dataset
from .images import Images, join

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Split:
    """The three parts of a data set that a run works with."""

    labeled: Images
    unlabeled: Images  # truth where it is known, for diagnostics only
    test: Images
    held_out: bool  # the test part was taken from the training images
    label_counts: tuple[int, ...]  # labeled images per class


def balanced_split(
    labels: IntArray, num_labels: int, num_classes: int, seed: int, *, classes: Sequence[str] | None = None
) -> tuple[IntArray, IntArray]:
    """Positions of `num_labels` images with equally many of every class, and of the other images with a known label.

    Class by class, the positions of its images (ascending) are shuffled by one generator seeded with `seed`; the first
    `num_labels / num_classes` are labeled, all others are not: the split that USB draws for CIFAR and SVHN. Images of
    unknown class (-1) are in neither part. The names in `classes` are for error messages.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"The seed {seed} is out of range: use a number from 0 to {2**32 - 1}.")
    each, remainder = divmod(num_labels, num_classes)
    if remainder or each < 1:
        nearest = [str(count * num_classes) for count in (each, max(each + 1, 1)) if count > 0]
        raise InputError(
            f"{num_labels} labels cannot be shared equally by {num_classes} classes: use {' or '.join(nearest)}."
        )
    random = np.random.RandomState(seed)
    chosen, rest = [], []
    for number in range(num_classes):
        index = np.flatnonzero(labels == number)
        if len(index) < each:
            raise _too_few(labels, number, num_labels, num_classes, classes)
        random.shuffle(index)
        chosen.append(index[:each])
        rest.append(index[each:])
    return np.concatenate(chosen), np.concatenate(rest)


def open_set_labels(labels: IntArray, seen: Sequence[int]) -> IntArray:
    """Number the classes in `seen` from 0 in their old order, and give every other class the one number after them.

    So with six of ten classes seen, 6 is what none of the six is. Unknown labels (-1) stay unknown.
    """
    order = sorted(set(seen))
    without = [number for number in order if number < 0 or not (labels == number).any()]
    if without:
        raise InputError(f"Class {without[0]} cannot be a seen class: it has no image.")
    if not order:
        raise InputError("There must be at least one seen class.")
    numbers = np.where(np.isin(labels, order), np.searchsorted(order, labels), len(order))
    renumbered: IntArray = np.where(labels < 0, -1, numbers).astype(np.int64)
    return renumbered


def divide(
    dataset: Dataset, *, labels: int | None, seed: int, holdout: float = 0.2, include_labeled: bool = True
) -> Split:
    """The labeled, unlabeled and test images of a run, in main memory as readers leave them: move them afterwards.

    Args:
        dataset: Where they come from.
        labels: How many images keep their label, equally many of every class; None keeps every known label.
        seed: Decides which ones. It does not touch the test part.
        holdout: Without a test set, this share of every class's labeled images becomes one. It is the same for every
            seed and number of labels, so that runs can be compared.
        include_labeled: The unlabeled images start with the labeled ones, as in the reference code.
    """
    test, train = dataset.test, dataset.train
    if test is None:
        kept, held_out = _hold_out(train.labels, holdout, dataset.classes)
        test, train = train.select(held_out), train.select(kept)
    truth = train.labels.numpy()
    if labels is None:
        chosen, rest = np.flatnonzero(truth >= 0), np.empty(0, dtype=np.int64)
    else:
        chosen, rest = balanced_split(truth, labels, len(dataset.classes), seed, classes=dataset.classes)
    rest = np.concatenate([rest, np.flatnonzero(truth < 0)])
    labeled, unlabeled = train.select(torch.from_numpy(chosen)), train.select(torch.from_numpy(rest))
    counts = np.bincount(labeled.labels.numpy(), minlength=len(dataset.classes)).tolist()
    if 0 in counts:
        name = dataset.classes[counts.index(0)]
        raise InputError(f"Class '{name}' has no labeled training image: label at least one or remove the class.")
    # Their truth is hidden: the quality of pseudo-labels is measured on images whose label was not trained on.
    again = Images(labeled.pixels, torch.full_like(labeled.labels, -1))
    return Split(
        labeled=labeled,
        unlabeled=join(again, unlabeled) if include_labeled else unlabeled,
        test=test,
        held_out=dataset.test is None,
        label_counts=tuple(counts),
    )


def _hold_out(labels: Tensor, share: float, classes: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Positions to train on, ascending, and positions of the test part, class by class."""
    if not 0 < share < 1:
        raise InputError(f"The held-out share {share:g} is out of range: use a number between 0 and 1, such as 0.2.")
    random = np.random.RandomState(0)  # a constant: the test part belongs to the data, not to the run
    held_out = []
    for number, name in enumerate(classes):
        index = np.flatnonzero(labels.numpy() == number)
        if len(index) < 2:
            raise InputError(
                f"Class '{name}' has {_count(len(index))}, but without a test set one is needed to train and one to "
                "test: label at least two or add a test set."
            )
        random.shuffle(index)
        held_out.append(index[: min(max(1, round(share * len(index))), len(index) - 1)])
    test = torch.from_numpy(np.concatenate(held_out))
    kept = torch.ones(len(labels), dtype=torch.bool)
    kept[test] = False
    return torch.nonzero(kept).flatten(), test


def _too_few(
    labels: IntArray, number: int, num_labels: int, num_classes: int, classes: Sequence[str] | None
) -> InputError:
    counts = [int((labels == other).sum()) for other in range(num_classes)]
    name = classes[number] if classes is not None else str(number)
    choice = f"use at most {min(counts) * num_classes} labels" if min(counts) else "label some or remove the class"
    return InputError(
        f"Class '{name}' has {_count(counts[number])}, but {num_labels} labels ask for "
        f"{num_labels // num_classes} of every class: {choice}."
    )


def _count(number: int) -> str:
    return f"{number} labeled training image{'s' * (number != 1)}"
