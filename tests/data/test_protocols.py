"""The counts and draws of published protocols, on labels alone."""

from itertools import pairwise

import numpy as np
import pytest

from epass.data.split.drawing import (
    balanced_split,
    draw,
    long_tailed_counts,
    long_tailed_split,
    share_counts,
    stratified_part,
)

PUBLISHED = [
    # head, imbalance, total, all or the first and the last counts
    (1500, 50, 4196, [1500, 971, 628, 407, 263, 170, 110, 71, 46, 30]),
    (3000, 50, 8397, [3000, 1942, 1257, 814, 527, 341, 221, 143, 92, 60]),
    (1500, 150, 3496, [1500, 859, 492, 282, 161, 92, 53, 30, 17, 10]),
    (3000, 150, 6996, [3000, 1719, 985, 564, 323, 185, 106, 60, 34, 20]),
]


@pytest.mark.parametrize(("head", "imbalance", "total", "counts"), PUBLISHED)
def test_the_long_tails_of_cifar_10(head: int, imbalance: int, total: int, counts: list[int]) -> None:
    assert long_tailed_counts(head, 10, imbalance) == counts
    assert sum(counts) == total
    assert long_tailed_counts(head, 10, imbalance, reverse=True) == counts[::-1]


@pytest.mark.parametrize(
    ("head", "imbalance", "total", "first", "last"),
    [
        (150, 20, 4741, [150, 145, 141, 136, 132], [8, 8, 7, 7, 7]),
        (300, 20, 9527, [300, 291, 282, 273, 265], [16, 16, 15, 15, 15]),
        (150, 100, 3218, [150, 143, 136, 130, 124], [1, 1, 1, 1, 1]),
        (300, 100, 6486, [300, 286, 273, 260, 249], [3, 3, 3, 3, 3]),
    ],
)
def test_the_long_tails_of_cifar_100(head: int, imbalance: int, total: int, first: list[int], last: list[int]) -> None:
    counts = long_tailed_counts(head, 100, imbalance)
    assert (len(counts), sum(counts), counts[:5], counts[-5:]) == (100, total, first, last)


def test_the_long_tail_of_usb() -> None:
    assert sum(long_tailed_counts(1500, 10, 100)) == 3720
    assert sum(long_tailed_counts(3000, 10, 100)) == 7443


@pytest.mark.parametrize("num_classes", [2, 3, 10, 37])
@pytest.mark.parametrize("head", [1, 7, 1500])
def test_without_imbalance_classes_are_equal(num_classes: int, head: int) -> None:
    assert long_tailed_counts(head, num_classes, 1) == [head] * num_classes
    assert long_tailed_counts(head, num_classes, 1.0, reverse=True) == [head] * num_classes


@pytest.mark.parametrize("imbalance", [1.5, 10, 77.7])
@pytest.mark.parametrize("num_classes", [2, 5, 100])
def test_a_tail_falls_from_its_head_to_its_end(imbalance: float, num_classes: int) -> None:
    counts = long_tailed_counts(1000, num_classes, imbalance)
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (1000, int(1000 / imbalance))
    for here, after in pairwise(counts):  # one factor throughout, but for rounding down
        assert after == pytest.approx(here * imbalance ** (-1 / (num_classes - 1)), abs=1)


def test_an_imbalance_below_one_is_refused(refused) -> None:
    for imbalance in (0.5, 0.0, -50, float("nan"), float("inf")):
        with refused("The imbalance", "use 1 for classes of one size"):
            long_tailed_counts(10, 3, imbalance)


LABELS = np.random.default_rng(3).permutation(np.repeat([0, 1, 2, -1], [40, 30, 35, 9]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("labeled", "unlabeled"), [([9, 5, 2], [20, 10, 4]), ([9, 5, 2], [4, 10, 20]), ([3, 3, 3], [0, 27, 1])]
)
def test_a_long_tailed_draw_has_its_counts_and_never_overlaps(
    labeled: list[int], unlabeled: list[int], seed: int
) -> None:
    chosen, rest = long_tailed_split(LABELS, labeled, unlabeled, seed)
    assert LABELS[chosen].tolist() == np.repeat([0, 1, 2], labeled).tolist()
    assert LABELS[rest].tolist() == np.repeat([0, 1, 2], unlabeled).tolist()
    assert len(np.unique(np.concatenate([chosen, rest]))) == sum(labeled) + sum(unlabeled)
    again, rest_again = long_tailed_split(LABELS, labeled, unlabeled, seed)
    assert np.array_equal(chosen, again)
    assert np.array_equal(rest, rest_again)
    assert not np.array_equal(chosen, long_tailed_split(LABELS, labeled, unlabeled, seed + 1)[0])


def test_a_tail_is_cut_from_the_shuffle_of_the_balanced_split() -> None:
    chosen, rest = balanced_split(LABELS, 12, 3, 5)
    tail, after = draw(LABELS, [4, 3, 1], [2, 2, 2], 5)
    order = {number: [*chosen[LABELS[chosen] == number], *rest[LABELS[rest] == number]] for number in range(3)}
    assert tail.tolist() == [*order[0][:4], *order[1][:3], *order[2][:1]]
    assert after.tolist() == [*order[0][4:6], *order[1][3:5], *order[2][1:3]]


def test_what_a_class_cannot_give_is_refused(refused) -> None:
    names = ["ant", "bee", "cat"]
    with refused(
        "Class 'bee' has 30 labeled training images", "asks for 31 of it (11 labeled and 20 unlabeled)", "head"
    ):
        long_tailed_split(LABELS, [1, 11, 1], [1, 20, 1], 0, classes=names)
    with refused("Class '1' has 30 labeled training images", "asks for 31 of it:"):
        long_tailed_split(LABELS, [1, 31, 1], None, 0)


def test_the_100k_labels_of_imagenet_are_a_share_rounded_down() -> None:
    assert share_counts([1300, 732], 100_000 / 1_281_167, "down") == [101, 57]
    assert share_counts([1300, 732, 1000], 0.01, "nearest") == [13, 7, 10]
    assert share_counts([1300, 732, 1000], 0.1, "nearest") == [130, 73, 100]


def test_the_nearest_share_is_at_least_one_and_at_most_all() -> None:
    assert share_counts([10, 40, 1], 0.01, "nearest") == [1, 1, 1]
    assert share_counts([10, 40, 1], 0.01, "down") == [0, 0, 0]
    assert share_counts([3, 0, 7], 1, "nearest") == [3, 0, 7]
    assert share_counts([199, 151], 0.01, "nearest") == [2, 2]
    assert share_counts([199, 151], 0.01, "down") == [1, 1]


def test_a_share_is_more_than_nothing_and_at_most_everything(refused) -> None:
    for share in (0.0, -0.1, 1.01):
        with refused("The share of labels", "more than 0 and at most 1"):
            share_counts([10], share, "down")


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_a_stratified_part_is_some_of_every_class_and_never_all(share: float) -> None:
    labels = np.array([0] * 20 + [3] * 5 + [4] + [-1] * 6)
    parts = stratified_part(labels, share, np.random.RandomState(1))
    assert [len(part) for part in parts] == [min(max(1, round(share * size)), size - 1) for size in (20, 5, 1)]
    for part, number in zip(parts, (0, 3, 4), strict=True):
        assert (labels[part] == number).all()
        assert len(np.unique(part)) == len(part)
