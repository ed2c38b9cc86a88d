import numpy as np
import pytest
import torch

from epass.data import Dataset, Images, balanced_split, divide, open_set_labels


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


def test_mistakes_in_dividing(refused) -> None:
    with refused("Class 'bee' has 1 labeled training image,", "label at least two or add a test set"):
        divide(dataset([0, 0, 1, 2, 2]), labels=None, seed=0)
    with refused("Class 'cat' has 0 labeled training images,", "add a test set"):
        divide(dataset([0, 0, 1, 1]), labels=None, seed=0)
    with refused("Class 'cat' has no labeled training image", "label at least one"):
        divide(dataset([0, 1], test=True), labels=None, seed=0)
    with refused("Class 'bee' has 2 labeled", "9 labels ask for 3", "at most 6"):
        divide(dataset([0] * 4 + [1] * 2 + [2] * 4, test=True), labels=9, seed=0)
    for share in (0.0, 1.0, -0.1):
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
