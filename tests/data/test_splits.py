from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from epass.data import Dataset, Images, Split, balanced_split, divide, open_set_labels
from epass.data.split.drawing import stratified_part


def dataset(labels: list[int], test: bool = False) -> Dataset:
    """Every image is its own position, so that a split can be read off its pixels."""
    truth = torch.tensor(labels)
    train = Images(torch.arange(len(labels), dtype=torch.uint8).reshape(-1, 1, 1, 1), truth)
    other = Images(torch.full((3, 1, 1, 1), 250, dtype=torch.uint8), torch.tensor([0, 1, 2])) if test else None
    return Dataset("tiny", ("ant", "bee", "cat"), train, other, (0.5,), (0.5,), {})


def positions(images: Images) -> list[int]:
    return images.pixels.flatten().tolist()


MIXED = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, -1], [20, 11, 14, 9])).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("each", [1, 4, 11])
def test_balanced_split_is_exact_and_a_partition(seed: int, each: int) -> None:
    labels = np.array(MIXED)
    chosen, rest = balanced_split(labels, 3 * each, 3, seed)
    assert labels[chosen].tolist() == [number for number in range(3) for _ in range(each)]
    assert sorted([*chosen, *rest]) == np.flatnonzero(labels >= 0).tolist()
    again, rest_again = balanced_split(labels, 3 * each, 3, seed)
    assert np.array_equal(chosen, again)
    assert np.array_equal(rest, rest_again)
    if each < 11:
        assert not np.array_equal(chosen, balanced_split(labels, 3 * each, 3, seed + 1)[0])


def test_balanced_split_is_the_one_of_the_reference_code() -> None:
    labels = np.array(MIXED)
    np.random.seed(7)  # noqa: NPY002  (the reference shuffles with the global generator)
    labeled, rest = [], []
    for number in range(3):
        index = np.where(labels == number)[0]
        np.random.shuffle(index)  # noqa: NPY002
        labeled.extend(index[:4])
        rest.extend(index[4:])
    chosen, others = balanced_split(labels, 12, 3, 7)
    assert chosen.tolist() == labeled
    assert others.tolist() == rest


def test_mistakes_in_the_number_of_labels(refused) -> None:
    labels = np.array(MIXED)
    with refused("13 labels", "3 classes", "use 12 or 15."):
        balanced_split(labels, 13, 3, 0)
    with refused("2 labels", "use 3."):
        balanced_split(labels, 2, 3, 0)
    with refused("0 labels", "use 3."):
        balanced_split(labels, 0, 3, 0)
    with refused("-6 labels", "use 3."):
        balanced_split(labels, -6, 3, 0)
    with refused("Class '1' has 11 labeled", "36 labels ask for 12", "at most 33 labels"):
        balanced_split(labels, 36, 3, 0)
    with refused("Class '3' has 0 labeled", "label some or remove the class"):
        balanced_split(labels, 4, 4, 0)
    with refused("seed -1", "from 0 to 4294967295"):
        balanced_split(labels, 3, 3, -1)


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_divide_draws_labels_and_keeps_the_truth_of_the_rest(test: bool, seed: int) -> None:
    data = dataset(MIXED, test)
    split = divide(data, labels=6, seed=seed)
    assert split.held_out is not test
    assert split.label_counts == (2, 2, 2)
    assert split.labeled.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [MIXED[position] for position in positions(split.labeled)] == split.labeled.labels.tolist()
    # the labeled images come first again, their truth hidden: pseudo-labels are judged on what was not trained on
    truth = [MIXED[position] for position in positions(split.unlabeled)]
    assert split.unlabeled.labels.tolist() == [-1] * 6 + truth[6:]
    assert positions(split.unlabeled)[:6] == positions(split.labeled)
    held_out = [] if test else positions(split.test)
    assert sorted([*positions(split.unlabeled), *held_out]) == list(range(len(MIXED)))
    if not test:
        assert split.test.labels.bincount().tolist() == [4, 2, 3]
        assert [MIXED[position] for position in held_out] == split.test.labels.tolist()
    disjoint = divide(data, labels=6, seed=seed, include_labeled=False)
    assert positions(disjoint.unlabeled) == positions(split.unlabeled)[6:]
    assert positions(disjoint.labeled) == positions(split.labeled)


def test_the_draw_follows_the_seed_but_the_test_part_does_not() -> None:
    data = dataset(MIXED)
    first, second = divide(data, labels=6, seed=0), divide(data, labels=6, seed=1)
    assert positions(first.labeled) != positions(second.labeled)
    assert positions(first.labeled) == positions(divide(data, labels=6, seed=0).labeled)
    for split in (second, divide(data, labels=12, seed=5), divide(data, labels=None, seed=0)):
        assert positions(split.test) == positions(first.test)


def test_the_test_set_is_used_where_there_is_one() -> None:
    data = dataset(MIXED, test=True)
    assert divide(data, labels=None, seed=0).test is data.test


def test_without_a_number_every_known_label_is_kept() -> None:
    split = divide(dataset(MIXED, test=True), labels=None, seed=0)
    known = [position for position, label in enumerate(MIXED) if label >= 0]
    unknown = [position for position, label in enumerate(MIXED) if label < 0]
    assert positions(split.labeled) == known
    assert positions(split.unlabeled) == known + unknown
    assert split.label_counts == (20, 11, 14)
    apart = divide(dataset(MIXED, test=True), labels=None, seed=0, include_labeled=False)
    assert positions(apart.unlabeled) == unknown


def test_when_every_label_is_kept_the_labeled_images_are_the_unlabeled_ones() -> None:
    split = divide(dataset([0, 1, 2, 2], test=True), labels=None, seed=0)
    assert positions(split.unlabeled) == positions(split.labeled) == [0, 1, 2, 3]


@pytest.mark.parametrize(("holdout", "counts"), [(0.01, [1, 1, 1]), (0.5, [2, 1, 1]), (0.99, [3, 1, 2])])
def test_at_least_one_image_is_tested_and_one_remains(holdout: float, counts: list[int]) -> None:
    split = divide(dataset([0, 0, 0, 0, 1, 1, 2, 2, 2, -1]), labels=None, seed=0, holdout=holdout)
    if holdout == 0.5:
        counts = [2, 1, 2]  # round(1.5) is 2
    assert split.test.labels.bincount().tolist() == counts
    assert min(split.label_counts) >= 1


@pytest.mark.parametrize("labels", [MIXED, [0, 1, 2] * 2, [-1, *MIXED, -1]])
def test_what_is_not_tested_is_trained_on_in_its_order(labels: list[int]) -> None:
    split = divide(dataset(labels), labels=None, seed=0, holdout=0.3)
    tested = set(split.positions.test.tolist())
    trained = [position for position in range(len(labels)) if position not in tested]
    assert len(tested) == len(split.positions.test) > 0
    assert sorted({*positions(split.labeled), *positions(split.unlabeled)}) == trained
    assert positions(split.labeled) == [position for position in trained if labels[position] >= 0]


def test_without_a_share_every_label_is_trained_on_and_nothing_is_tested() -> None:
    split = divide(dataset(MIXED), labels=None, seed=0, holdout=0.0)
    assert positions(split.labeled) == [position for position, label in enumerate(MIXED) if label >= 0]
    assert len(split.test) == 0
    assert divide(dataset([0, 1, 2]), labels=None, seed=0, holdout=0.0).label_counts == (1, 1, 1)
    assert len(divide(dataset([0, 1, 2], test=True), labels=None, seed=0, holdout=0.0).test) > 0


def test_mistakes_in_dividing(refused) -> None:
    with refused("Class 'bee' has 1 labeled training image,", "label at least two or add a test set"):
        divide(dataset([0, 0, 1, 2, 2]), labels=None, seed=0)
    with refused("Class 'cat' has 0 labeled training images,", "add a test set"):
        divide(dataset([0, 0, 1, 1]), labels=None, seed=0)
    with refused("Class 'cat' has no labeled training image", "label at least one"):
        divide(dataset([0, 1], test=True), labels=None, seed=0)
    with refused("Class 'bee' has 2 labeled", "9 labels ask for 3", "at most 6"):
        divide(dataset([0] * 4 + [1] * 2 + [2] * 4, test=True), labels=9, seed=0)
    for share in (1.0, -0.1):
        with refused(f"held-out share {share:g}", "between 0 and 1"):
            divide(dataset(MIXED), labels=None, seed=0, holdout=share)


def test_seen_classes_are_numbered_first_and_the_others_are_one() -> None:
    labels = np.array([5, 0, 2, 9, -1, 7, 2, 5])
    for seen in ([2, 5, 7], [7, 2, 5], (5, 7, 2)):
        assert open_set_labels(labels, seen).tolist() == [1, 3, 0, 3, -1, 2, 0, 1]
    assert open_set_labels(labels, [0, 2, 5, 7, 9]).tolist() == [2, 0, 1, 4, -1, 3, 1, 2]  # then nothing is unseen
    assert open_set_labels(labels, [9]).dtype == np.int64
    assert labels.tolist() == [5, 0, 2, 9, -1, 7, 2, 5]


def test_the_animals_of_cifar_10_are_a_published_task() -> None:
    renumbered = open_set_labels(np.arange(10), range(2, 8))
    assert renumbered.tolist() == [6, 6, 0, 1, 2, 3, 4, 5, 6, 6]


def test_mistakes_in_the_seen_classes(refused) -> None:
    labels = np.array([0, 1, 2, -1])
    with refused("Class 4 cannot be a seen class", "no image"):
        open_set_labels(labels, [1, 4])
    with refused("Class -1 cannot be a seen class"):
        open_set_labels(labels, [-1, 1])
    with refused("at least one seen class"):
        open_set_labels(labels, [])


# --- Long tails -------------------------------------------------------------------------------------------------------

PLENTY = np.random.default_rng(2).permutation(np.repeat([0, 1, 2, -1], [70, 60, 65, 5])).tolist()


def counts(images: Images) -> list[int]:
    return images.labels[images.labels >= 0].bincount(minlength=3).tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("more", "unlabeled"),
    [
        ({}, [40, 20, 10]),
        ({"unlabeled_imbalance": 1.0}, [40, 40, 40]),
        ({"unlabeled_imbalance": 16.0}, [40, 10, 2]),
        ({"reverse_unlabeled": True}, [10, 20, 40]),
    ],
)
def test_a_long_tail_in_both_parts_which_do_not_overlap(seed: int, more: dict[str, Any], unlabeled: list[int]) -> None:
    data = dataset(PLENTY, test=True)
    split = divide(data, seed=seed, head_labels=16, imbalance=4.0, head_unlabeled=40, **more)
    assert split.label_counts == (16, 8, 4)
    assert counts(split.labeled) == [16, 8, 4]
    assert counts(split.unlabeled) == unlabeled
    assert len(split.unlabeled) == sum(unlabeled) + 5  # and those that never had a label
    assert not set(positions(split.labeled)) & set(positions(split.unlabeled))
    assert len(set(positions(split.unlabeled))) == len(split.unlabeled)
    assert split.test is data.test
    for image, label in zip(positions(split.labeled), split.labeled.labels.tolist(), strict=True):
        assert PLENTY[image] == label
    again = divide(data, seed=seed, head_labels=16, imbalance=4.0, head_unlabeled=40, **more)
    assert positions(split.labeled) == positions(again.labeled)
    assert positions(split.unlabeled) == positions(again.unlabeled)
    other = divide(data, seed=seed + 1, head_labels=16, imbalance=4.0, head_unlabeled=40, **more)
    assert positions(split.labeled) != positions(other.labeled)


def test_a_long_tail_of_labels_alone_leaves_all_other_images_unlabeled() -> None:
    split = divide(dataset(PLENTY, test=True), seed=0, labels=3, head_labels=16, imbalance=4.0)
    assert counts(split.unlabeled) == [70 - 16, 60 - 8, 65 - 4]
    assert sorted(positions(split.labeled) + positions(split.unlabeled)) == list(range(200))
    included = divide(dataset(PLENTY, test=True), seed=0, head_labels=16, imbalance=4.0, include_labeled=True)
    assert positions(included.unlabeled) == positions(split.labeled) + positions(split.unlabeled)


def test_all_labels_of_a_long_tail_are_those_of_its_images() -> None:
    tail = {"head_labels": 16, "imbalance": 4.0, "head_unlabeled": 40}
    few, every = (divide(dataset(PLENTY, test=True), seed=0, all_labels=flag, **tail) for flag in (False, True))
    assert every.label_counts == (56, 28, 14)
    known = [position for position in positions(few.unlabeled) if PLENTY[position] >= 0]
    assert positions(every.labeled) == sorted(positions(few.labeled) + known)


def test_mistakes_in_the_tail(refused) -> None:
    data = dataset(PLENTY, test=True)
    with refused("3 labels in the largest class", "imbalance of 3.5", "data.head_labels=4 or more"):
        divide(data, seed=0, head_labels=3, imbalance=3.5)
    assert min(divide(data, seed=0, head_labels=4, imbalance=3.5).label_counts) == 1
    with refused("Class 'bee' has 60", "asks for 61"):
        divide(data, seed=0, head_labels=61)
    with refused("data.imbalance needs a long tail", "data.head_labels"):
        divide(data, seed=0, imbalance=2.0)
    with refused("data.unlabeled_imbalance needs data.head_unlabeled"):
        divide(data, seed=0, head_labels=4, unlabeled_imbalance=2.0)
    with refused("data.reverse_unlabeled needs data.head_unlabeled"):
        divide(data, seed=0, head_labels=4, reverse_unlabeled=True)
    with refused("data.label_share and data.head_labels both say", "remove one"):
        divide(data, seed=0, head_labels=4, label_share=0.5)


# --- Shares of a class, folds, labeled images twice ------------------------------------------------------------------


@pytest.mark.parametrize(("rounding", "wanted"), [("nearest", (7, 6, 6)), ("down", (7, 6, 6)), ("nearest", (2, 1, 1))])
def test_a_share_of_every_class(rounding: str, wanted: tuple[int, ...]) -> None:
    share = 0.1 if wanted[0] == 7 else 0.022
    split = divide(dataset(PLENTY, test=True), seed=0, labels=3, label_share=share, label_rounding=rounding)
    assert split.label_counts == wanted
    assert sorted(positions(split.unlabeled)) == list(range(200))  # the labeled ones are among them
    apart = divide(
        dataset(PLENTY, test=True), seed=0, label_share=share, label_rounding=rounding, include_labeled=False
    )
    assert sorted(positions(apart.labeled) + positions(apart.unlabeled)) == list(range(200))
    assert positions(apart.labeled) != positions(divide(dataset(PLENTY, test=True), seed=1, label_share=share).labeled)


def test_mistakes_in_the_share(refused) -> None:
    with refused("A share of 0.016 leaves class 'bee', which has 60", "data.label_rounding=nearest"):
        divide(dataset(PLENTY, test=True), seed=0, label_share=0.016, label_rounding="down")
    with refused("data.label_rounding needs data.label_share"):
        divide(dataset(PLENTY, test=True), seed=0, label_rounding="down")


def test_labeled_images_twice_as_in_published_code_for_stl_10() -> None:
    data = dataset(MIXED, test=True)
    known = [position for position, label in enumerate(MIXED) if label >= 0]
    never = [position for position, label in enumerate(MIXED) if label < 0]
    twice, once, apart = (divide(data, labels=6, seed=3, include_labeled=how) for how in ("twice", True, False))
    labeled = positions(twice.labeled)
    assert labeled == positions(once.labeled) == positions(apart.labeled)
    assert positions(twice.unlabeled) == labeled + never + known
    assert (len(twice.unlabeled), len(once.unlabeled), len(apart.unlabeled)) == (54 + 6, 54, 54 - 6)
    for image, truth in zip(positions(twice.unlabeled), twice.unlabeled.labels.tolist(), strict=True):
        assert truth == (-1 if image in labeled else MIXED[image])


def test_a_fold_is_the_list_that_came_with_the_data(refused) -> None:
    first = [position for number in range(3) for position in np.flatnonzero(np.array(MIXED) == number)[1:3].tolist()]
    second = first[::-1]
    data = replace(dataset(MIXED, test=True), folds=(tuple(first), tuple(second)))
    for seed in range(2):
        for number, listed in ((1, first), (2, second)):
            split = divide(data, seed=seed, labels=3, fold=number)
            assert positions(split.labeled) == listed
            assert positions(split.unlabeled)[:6] == listed
            assert sorted(positions(split.unlabeled)) == list(range(len(MIXED)))
    assert len(divide(data, seed=0, fold=1, all_labels=True).labeled) == 45
    for number in (0, 3):
        with refused(f"'tiny' has no fold {number}: use 1 to 2."):
            divide(data, seed=0, fold=number)
    with refused("'tiny' has no folds of its own", "data.labels"):
        divide(dataset(MIXED), seed=0, fold=1)


def test_a_fold_keeps_out_of_the_held_out_images() -> None:
    data = replace(dataset(MIXED), folds=(tuple(np.flatnonzero(np.array(MIXED) >= 0).tolist()),))
    split = divide(data, seed=0, fold=1)
    assert not set(positions(split.labeled)) & set(positions(split.test))
    assert len(split.labeled) + len(split.test) == 45


# --- Validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("include", [True, False, "twice"])
@pytest.mark.parametrize("test", [True, False])
def test_validation_images_come_from_the_labeled_ones_and_are_never_trained_on(test: bool, include: Any) -> None:
    data = dataset(PLENTY, test)
    whole = divide(data, seed=4, labels=30, include_labeled=include)
    split = divide(data, seed=4, labels=30, include_labeled=include, validation=0.2)
    assert split.validation is not None
    assert whole.validation is None
    assert counts(split.validation) == [2, 2, 2]
    assert split.label_counts == (8, 8, 8)
    assert sorted(positions(split.labeled) + positions(split.validation)) == sorted(positions(whole.labeled))
    assert not set(positions(split.validation)) & set(positions(split.unlabeled) + positions(split.labeled))
    assert positions(split.test) == positions(whole.test)
    for image, label in zip(positions(split.validation), split.validation.labels.tolist(), strict=True):
        assert PLENTY[image] == label
    again = divide(data, seed=4, labels=30, include_labeled=include, validation=0.2)
    assert again.validation is not None
    assert positions(again.validation) == positions(split.validation)


def test_every_label_that_was_given_can_be_drawn_for_validation() -> None:
    seen = set()
    for seed in range(12):
        part = divide(dataset(PLENTY, test=True), seed=seed, validation=0.2).validation
        assert part is not None
        assert counts(part) == [14, 12, 13]
        seen |= set(positions(part))
    assert len(seen) > 150  # not always the first ones of a class


def test_a_class_with_one_label_keeps_it(refused) -> None:
    labels = [0] * 10 + [1] * 4 + [2]
    split = divide(dataset(labels, test=True), seed=0, validation=0.25)
    assert split.validation is not None
    assert counts(split.validation) == [2, 1, 0]
    assert split.label_counts == (8, 3, 1)
    with refused("No class has two labels", "data.validation=0"):
        divide(dataset(labels, test=True), seed=0, labels=3, validation=0.25)
    for share in (-0.1, 1.0):
        with refused(f"validation share {share:g}", "between 0 and 1"):
            divide(dataset(labels, test=True), seed=0, validation=share)


# --- Known classes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("known", [["ant", "cat"], [2, 0], ["cat", 0]])
def test_only_known_classes_have_labels_and_are_tested(known: list[str | int], test: bool) -> None:
    data = dataset(MIXED, test)
    split, closed = divide(data, seed=0, labels=6, known_classes=known), divide(data, seed=0, labels=6)
    assert split.classes == ("ant", "cat")
    assert closed.classes == data.classes
    assert split.label_counts == (3, 3)
    old = {0: 0, 2: 1}  # ants keep their number, cats get the next one
    for image, label in zip(positions(split.labeled), split.labeled.labels.tolist(), strict=True):
        assert old[MIXED[image]] == label
    assert sorted(positions(split.unlabeled)) == sorted(positions(closed.unlabeled))  # images of all classes
    for image, truth in zip(positions(split.unlabeled)[6:], split.unlabeled.labels.tolist()[6:], strict=True):
        assert truth == old.get(MIXED[image], -1)
    assert split.outliers is not None
    assert closed.outliers is None
    assert set(split.test.labels.tolist()) == {0, 1}
    assert set(split.outliers.labels.tolist()) == {2}
    assert len(split.test) + len(split.outliers) == len(closed.test)
    if not test:
        assert [MIXED[position] for position in positions(split.outliers)] == [1] * len(split.outliers)
        assert sorted(positions(split.test) + positions(split.outliers)) == sorted(positions(closed.test))


def test_when_all_classes_are_known_nothing_changes() -> None:
    data = dataset(MIXED, test=True)
    split = divide(data, seed=0, labels=6, known_classes=["bee", "cat", "ant"])
    assert positions(split.labeled) == positions(divide(data, seed=0, labels=6).labeled)
    assert split.test is data.test
    assert split.outliers is None


def test_known_classes_are_renumbered_in_a_test_set_without_other_ones() -> None:
    data = dataset(MIXED, test=True)
    data = replace(data, test=Images(data.train.pixels[:4], torch.tensor([1, 2, 2, 1])))
    split = divide(data, seed=0, known_classes=[1, 2])
    assert split.test.labels.tolist() == [0, 1, 1, 0]
    assert split.outliers is None


def test_known_classes_go_with_tails_and_validation() -> None:
    split = divide(
        dataset(PLENTY, test=True), seed=0, known_classes=[1, 2], head_labels=20, imbalance=2.0, validation=0.1
    )
    assert split.label_counts == (18, 9)
    assert split.validation is not None
    assert split.validation.labels.bincount().tolist() == [2, 1]
    assert {PLENTY[position] for position in positions(split.labeled)} == {1, 2}


def test_mistakes_in_the_known_classes(refused) -> None:
    data = dataset(MIXED, test=True)
    with refused("Unknown class in data.known_classes 'cap': did you mean 'cat'?"):
        divide(data, seed=0, known_classes=["ant", "cap"])
    for number in (3, -1):
        with refused(f"data.known_classes has class {number}: use 0 to 2"):
            divide(data, seed=0, known_classes=[0, number])
    with refused("1 of the classes", "at least two"):
        divide(data, seed=0, known_classes=["ant", "ant"])
    for repeated in ([0, 2, 2], ["ant", "cat", 2]):
        with refused("data.known_classes has 'cat' more than once: list each class once."):
            divide(data, seed=0, known_classes=repeated)


def test_the_truth_of_labeled_images_is_hidden_in_every_protocol() -> None:
    data = replace(dataset(PLENTY, test=True), folds=(tuple(range(60)),))
    settings: list[dict[str, Any]] = [
        {},
        {"labels": 6},
        {"fold": 1},
        {"label_share": 0.3},
        {"head_labels": 9, "include_labeled": True},
        {"include_labeled": "twice", "labels": 9},
        {"known_classes": [0, 1], "labels": 6},
    ]
    for setting in settings:
        split = divide(data, seed=1, **setting)
        labeled = set(positions(split.labeled))
        truth = dict(zip(positions(split.unlabeled), split.unlabeled.labels.tolist(), strict=True))
        assert labeled <= truth.keys()
        assert {truth[position] for position in labeled} == {-1}
        if setting:
            assert max(truth.values()) > 0


def test_positions_lead_to_the_images() -> None:
    split: Split = divide(dataset(PLENTY), seed=1, labels=30, validation=0.2)
    found = split.positions
    for field in fields(found):
        if field.name != "classes":
            assert getattr(found, field.name).tolist() == positions(getattr(split, field.name))


class Watched(np.ndarray):
    """Labels that count how often all of them are compared with something."""

    comparisons = 0

    def __eq__(self, other: object) -> Any:
        Watched.comparisons += 1
        return super().__eq__(other)


def test_the_labels_are_not_read_once_for_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "comparisons", 0)
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(-1, 40), 3)).view(Watched)
    chosen, _ = balanced_split(labels, 40, 40, 0)
    assert labels[chosen].tolist() == list(range(40))
    held_out = stratified_part(labels, 0.3, np.random.RandomState(0))
    assert [labels[part].tolist() for part in held_out] == [[number] for number in range(40)]
    assert open_set_labels(labels, range(0, 40, 2)).max() == 20
    assert Watched.comparisons < 5


def test_the_share_of_every_class_is_that_of_a_search_for_its_images() -> None:
    labels, ours, theirs = np.array(MIXED) * 2, np.random.RandomState(3), np.random.RandomState(3)  # classes 0, 2, 4
    expected = []
    for number in (0, 2, 4):
        index = np.flatnonzero(labels == number)
        theirs.shuffle(index)
        expected.append(index[: round(0.2 * len(index))].tolist())
    assert [part.tolist() for part in stratified_part(labels, 0.2, ours)] == expected
