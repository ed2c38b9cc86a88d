"""Vectors where images were: the same seam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from epass.augment import make_policies, normalize
from epass.data import Feed, Images, ImageSource, Vectors, concatenate, vector_statistics
from epass.errors import InputError
from epass.method import Views


def vectors(count: int = 6, views: int = 3, width: int = 4, *, seed: int = 0) -> Vectors:
    stored = torch.randn(count, views, width, generator=torch.Generator().manual_seed(seed)).half()
    return Vectors(stored, torch.arange(count) % 2)


def pictured() -> Vectors:
    """With the images that they were made of, in another order."""
    pixels = torch.arange(6 * 3 * 2 * 2, dtype=torch.uint8).view(6, 3, 2, 2)
    places = torch.tensor([5, 4, 3, 2, 1, 0])
    return Vectors(vectors().views, vectors().labels, Images(pixels, torch.zeros(6, dtype=torch.int64)), places)


def test_they_are_a_source_of_examples() -> None:
    source: ImageSource = vectors()
    assert len(source) == 6
    assert source.shape == (4,)
    assert torch.equal(source.pixels, vectors().views[:, 0])
    assert torch.equal(source.take(torch.tensor([2, 0, 2])), vectors().views[[2, 0, 2]])
    chunks = list(source.chunks(4))
    assert [len(chunk) for chunk in chunks] == [4, 2]
    assert torch.equal(torch.cat(chunks), source.pixels)
    assert [tuple(chunk.shape) for chunk in vectors(0).chunks(4)] == [(0, 4)]


def test_some_of_them_keep_labels_and_pictures() -> None:
    index = torch.tensor([4, 1])
    some = pictured().select(index)
    assert torch.equal(some.views, pictured().views[index])
    assert some.labels.tolist() == [0, 1]
    assert torch.equal(some.look(torch.tensor([0, 1])), pictured().look(index))
    again = some.select(torch.tensor([1]))
    assert torch.equal(again.look(torch.tensor([0])), pictured().look(torch.tensor([1])))


def test_other_labels_and_another_device_leave_the_rest_alone() -> None:
    source, labels = pictured(), torch.full((6,), -1)
    for other in (source.labeled(labels), source.to("cpu")):
        assert torch.equal(other.views, source.views)
        assert torch.equal(other.look(torch.tensor([2])), source.look(torch.tensor([2])))
    assert torch.equal(source.labeled(labels).labels, labels)
    assert source.to("meta").views.is_meta
    assert source.to("meta").labels.is_meta


def test_two_sources_are_joined() -> None:
    both = concatenate(vectors(), vectors(3, seed=1))
    assert torch.equal(both.take(torch.tensor([5, 6])), torch.stack([vectors().views[5], vectors(3, seed=1).views[0]]))
    assert both.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "other",
    [
        vectors(width=5),
        vectors(views=2),
        Images(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)),
    ],
    ids=["width", "views", "images"],
)
def test_what_has_another_shape_is_not_joined(other: ImageSource) -> None:
    with pytest.raises(InputError, match=r"^Vectors of 4 numbers cannot be joined with examples of another shape\.$"):
        concatenate(vectors(), other)


def test_people_look_at_the_images() -> None:
    found = pictured().look(torch.tensor([0, 5]))
    assert found.tolist() == pictured().pictures.take(torch.tensor([5, 0])).tolist()


def test_without_images_people_look_at_the_numbers() -> None:
    found = Vectors(torch.tensor([[[0.0, 1.0, 2.0, -2.0]], [[3.0] * 4]]), torch.tensor([0, 1])).look(torch.arange(2))
    assert found.dtype == torch.uint8
    assert tuple(found.shape) == (2, 1, 8, 8)
    assert found[0].flatten()[:5].tolist() == [128, 191, 255, 0, 128]  # the rest of the picture is 0, as is the first
    long = Vectors(torch.randn(2, 1, 100), torch.tensor([0, 1])).look(torch.tensor([1]))
    assert tuple(long.shape) == (1, 1, 8, 8)


def test_statistics_are_those_of_numpy() -> None:
    random = np.random.default_rng(0)
    numbers = (random.standard_normal((5000, 6)) * [1, 10, 0.01, 100, 1, 1] + [0, 3, 0, 1000, 0, 0]).astype(np.float16)
    numbers[:, 4], numbers[:, 5] = 7.0, 0.0  # which never vary
    mean, std = vector_statistics(torch.from_numpy(numbers))
    exact = numbers.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std[:4], exact.std(0)[:4], rtol=1e-9)
    assert std[4:] == (1.0, 1.0)


def test_what_varies_in_the_last_digit_only_is_a_constant() -> None:
    five = torch.tensor(5.0)
    numbers = torch.stack([five, torch.nextafter(five, torch.tensor(6.0))])[:, None]
    assert vector_statistics(numbers)[1] == (1.0,)


def test_vectors_are_normalized_number_by_number() -> None:
    source, mean, std = vectors().pixels, torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    found = normalize(source, mean, std)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, (source.float() - mean) / std)


def test_a_feed_of_vectors_makes_batches_of_vectors() -> None:
    stored = torch.arange(10 * 5).view(10, 5, 1).expand(-1, -1, 4).half()  # every view has a number of its own
    labels = torch.arange(10) % 2

    def batch(step: int) -> tuple[Tensor, ...]:
        feed = Feed(
            Vectors(stored[:4], labels[:4]),
            Vectors(stored, labels),
            Views(labeled=("weak",), unlabeled=("weak", "strong")),
            make_policies(weak="stored-weak", strong="stored-strong", crop="stored-strong", views=2),
            mean=(0.0,) * 4,
            std=(1.0,) * 4,
            labeled_batch=6,
            unlabeled_batch=8,
            seed=3,
            device=torch.device("cpu"),
        )
        found = feed(step)
        place = torch.cat([found.labeled_index, found.unlabeled_index, found.unlabeled_index])
        return torch.cat([*found.labeled, *found.unlabeled]), place

    numbers, place = batch(0)
    assert tuple(numbers.shape) == (6 + 8 + 8, 4)
    assert torch.equal(numbers[:, 0].long() // 5, place)
    view = numbers[:, 0].long() % 5
    assert set(view[:14].tolist()) == {1, 2}
    assert set(view[14:].tolist()) == {3, 4}
    assert torch.equal(numbers, batch(0)[0])
    assert not torch.equal(numbers, batch(1)[0])
