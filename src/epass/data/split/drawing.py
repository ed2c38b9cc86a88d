"""How many images of each class are labeled, and which: pure functions of (labels, counts, seed)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ...errors import InputError

IntArray = np.ndarray[Any, np.dtype[np.int64]]
Rounding = Literal["nearest", "down"]


def draw(
    labels: IntArray, labeled: Sequence[int], unlabeled: Sequence[int] | None, seed: int
) -> tuple[IntArray, IntArray]:
    """Positions of as many labeled and unlabeled images of each class as asked for; without numbers, all the others.

    Class by class, the positions of its images (ascending) are shuffled by one generator seeded with `seed`; the first
    ones are labeled, the next ones are not, so the two never overlap: the draw of USB. Images of unknown class (-1)
    are in neither part.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"The seed {seed} is out of range: use a number from 0 to {2**32 - 1}.")
    random = np.random.RandomState(seed)
    chosen, rest = [], []
    for number, (count, index) in enumerate(zip(labeled, positions_by_class(labels, len(labeled)), strict=True)):
        end = len(index) if unlabeled is None else count + unlabeled[number]
        assert count <= end <= len(index)
        random.shuffle(index)
        chosen.append(index[:count])
        rest.append(index[count:end])
    return np.concatenate(chosen), np.concatenate(rest)


def balanced_split(
    labels: IntArray, num_labels: int, num_classes: int, seed: int, *, classes: Sequence[str] | None = None
) -> tuple[IntArray, IntArray]:
    """Positions of `num_labels` images with equally many of every class, and of the other images with a known label.

    This is the split that USB draws for CIFAR and SVHN, see `draw`. The names in `classes` are for error messages.
    """
    each, remainder = divmod(num_labels, num_classes)
    if remainder or each < 1:
        nearest = [str(count * num_classes) for count in (each, max(each + 1, 1)) if count > 0]
        raise InputError(
            f"{num_labels} labels cannot be shared equally by {num_classes} classes: use {' or '.join(nearest)}."
        )
    sizes = class_sizes(labels, num_classes)
    for number, size in enumerate(sizes):
        if size < each:
            choice = (
                f"use at most {min(sizes) * num_classes} labels" if min(sizes) else "label some or remove the class"
            )
            raise InputError(
                f"Class '{_name(classes, number)}' has {count_images(size)}, but {num_labels} labels ask for "
                f"{each} of every class: {choice}."
            )
    return draw(labels, [each] * num_classes, None, seed)


def long_tailed_counts(head: int, num_classes: int, imbalance: float, *, reverse: bool = False) -> list[int]:
    """Images per class that fall from `head` to `head / imbalance`, each class by the same factor, rounded down.

    `reverse` puts the largest class last. An imbalance of 1 gives every class as many.
    """
    if not 1 <= imbalance < math.inf:
        raise InputError(
            f"The imbalance {imbalance:g} is out of range: use 1 for classes of one size, or more for a tail."
        )
    assert num_classes > 1
    factor = (1 / imbalance) ** (1 / (num_classes - 1))
    counts = [int(head * factor**number) for number in range(num_classes - 1)] + [int(head / imbalance)]
    return counts[::-1] if reverse else counts


def long_tailed_split(
    labels: IntArray,
    labeled: Sequence[int],
    unlabeled: Sequence[int] | None,
    seed: int,
    *,
    classes: Sequence[str] | None = None,
) -> tuple[IntArray, IntArray]:
    """Like `draw`, once it is clear that every class has as many images as asked for."""
    for number, size in enumerate(class_sizes(labels, len(labeled))):
        wanted = labeled[number] + (unlabeled[number] if unlabeled is not None else 0)
        if size < wanted:
            parts = "" if unlabeled is None else f" ({labeled[number]} labeled and {unlabeled[number]} unlabeled)"
            raise InputError(
                f"Class '{_name(classes, number)}' has {count_images(size)}, but the tail asks for {wanted} of it"
                f"{parts}: use smaller heads (head_labels, head_unlabeled)."
            )
    return draw(labels, labeled, unlabeled, seed)


def share_counts(sizes: Sequence[int], share: float, rounding: Rounding) -> list[int]:
    """That share of every class: to the nearest whole number and at least 1, or rounded down, which may give 0."""
    if not 0 < share <= 1:
        raise InputError(f"The share of labels {share:g} is out of range: use more than 0 and at most 1, such as 0.1.")
    if rounding == "down":
        return [int(size * share) for size in sizes]
    return [min(size, max(1, round(size * share))) for size in sizes]


def class_sizes(labels: IntArray, num_classes: int) -> list[int]:
    """How many images each class has."""
    sizes: list[int] = np.bincount(labels[labels >= 0], minlength=num_classes)[:num_classes].tolist()
    return sizes


def positions_by_class(labels: IntArray, num_classes: int) -> list[IntArray]:
    """The positions of the images of every class, ascending: one sort, however many classes there are."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(num_classes + 1))
    return [order[start:end] for start, end in pairwise(ends.tolist())]


def open_set_labels(labels: IntArray, seen: Sequence[int]) -> IntArray:
    """Number the classes in `seen` from 0 in their old order, and give every other class the one number after them.

    So with six of ten classes seen, 6 is what none of the six is. Unknown labels (-1) stay unknown.
    """
    order = sorted(set(seen))
    present = set(labels.tolist())
    without = [number for number in order if number < 0 or number not in present]
    if without:
        raise InputError(f"Class {without[0]} cannot be a seen class: it has no image.")
    if not order:
        raise InputError("There must be at least one seen class.")
    numbers = np.where(np.isin(labels, order), np.searchsorted(order, labels), len(order))
    renumbered: IntArray = np.where(labels < 0, -1, numbers).astype(np.int64)
    return renumbered


def stratified_part(labels: IntArray, share: float, random: np.random.RandomState) -> list[IntArray]:
    """For every class that occurs, positions of about this share of its images: at least one, and never all.

    A class with a single image gives none.
    """
    parts = []
    for index in positions_by_class(labels, int(labels.max(initial=-1)) + 1):
        if not len(index):
            continue
        random.shuffle(index)
        parts.append(index[: min(max(1, round(share * len(index))), len(index) - 1)])
    return parts


def count_images(number: int) -> str:
    """A number of images that could be labeled, in words."""
    return f"{number} labeled training image{'s' * (number != 1)}"


def _name(classes: Sequence[str] | None, number: int) -> str:
    return classes[number] if classes is not None else str(number)
