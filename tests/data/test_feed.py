from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from epass.augment import Strong, Weak
from epass.data import Feed, Images
from epass.method import Batch, Views


class Draws(NamedTuple):
    shift: Tensor  # (N,)
    flip: Tensor  # (N, 1)


class Brighten:
    """Adds a random level per image: its draws can be read off the pixels."""

    def __init__(self, top: int) -> None:
        self.top = top

    def draw(self, count: int, generator: torch.Generator) -> Draws:
        shift = torch.randint(0, self.top, (count,), generator=generator)
        return Draws(shift, torch.rand(count, 1, generator=generator) < 0.5)

    def apply(self, pixels: Tensor, draws: Draws) -> Tensor:
        shift, flip = draws
        flipped = torch.where(flip[..., None, None], pixels.flip(-1), pixels)
        return (flipped + shift[:, None, None, None]).byte()


class Counting(Images):
    def take(self, index: Tensor) -> Tensor:
        taken.append(len(index))
        return super().take(index)


taken: list[int] = []
POLICIES = {"weak": Brighten(50), "strong": Brighten(100)}
VIEWS = Views(("weak",), ("weak", "strong", "strong"))


def images(count: int, offset: int) -> Counting:
    pixels = torch.zeros(count, 3, 4, 4, dtype=torch.uint8)
    pixels[..., 0] = (offset + torch.arange(count)).byte()[:, None, None]
    return Counting(pixels, torch.arange(count) % 7)


def make(views: Views = VIEWS, **changes: Any) -> Feed:
    options = {"labeled_batch": 4, "unlabeled_batch": 12, "seed": 0, "mean": (0.0, 0.5, 0.5), "std": (1.0, 0.5, 0.25)}
    return Feed(images(10, 0), images(50, 100), views, POLICIES, **{**options, **changes})


def tensors(batch: Batch) -> list[Tensor]:
    return [*batch.labeled, batch.labels, *batch.unlabeled, *batch[3:]]


def equal(first: Batch, second: Batch) -> bool:
    return all(torch.equal(one, other) for one, other in zip(tensors(first), tensors(second), strict=True))


def levels(view: Tensor, mean: float = 0.0, std: float = 1.0, channel: int = 0) -> Tensor:
    """Undo the normalization of a channel."""
    return ((view[:, channel] * std + mean) * 255).round().int()


def test_a_batch_is_what_the_contract_says() -> None:
    feed = make()
    batch = feed(3)
    assert len(batch.labeled) == 1
    assert batch.labeled[0].shape == (4, 3, 4, 4)
    assert len(batch.unlabeled) == 3
    for view in batch.unlabeled:
        assert view.shape == (12, 3, 4, 4)
        assert view.dtype == torch.float32
    assert batch.step.shape == ()
    assert batch.step.dtype == torch.int64
    assert batch.step.item() == 3
    assert torch.equal(batch.labels, feed.labeled.labels[batch.labeled_index])
    assert torch.equal(batch.unlabeled_truth, feed.unlabeled.labels[batch.unlabeled_index])
    # Every view shows the image its index says: the difference between the columns is the image's own level.
    for index, offset, views in (
        (batch.labeled_index, 0, batch.labeled),
        (batch.unlabeled_index, 100, batch.unlabeled),
    ):
        for view in views:
            seen = levels(view)
            assert torch.equal(seen.amax((1, 2)) - seen.amin((1, 2)), (index + offset).int())


def test_views_are_normalized_per_channel() -> None:
    for view in make()(0).unlabeled:
        first = levels(view)
        assert torch.equal(first, levels(view, 0.5, 0.5, channel=1))
        assert torch.equal(first, levels(view, 0.5, 0.25, channel=2))


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    feed, other = make(), make(seed=1)
    again = feed(5)
    for step in (0, 9, 2):
        feed(step)
    assert equal(feed(5), again)
    assert equal(make()(5), again)
    assert not equal(make()(6), again)
    assert not torch.equal(other(5).unlabeled_index, again.unlabeled_index)
    assert not torch.equal(levels(other(5).unlabeled[0]).amin((1, 2)), levels(again.unlabeled[0]).amin((1, 2)))


def test_every_step_has_draws_of_its_own() -> None:
    feed = make()
    first, second = (levels(feed(step).unlabeled[0]).amin((1, 2)) for step in (0, 1))
    assert not torch.equal(first, second)


def test_labeled_and_unlabeled_images_are_shuffled_apart() -> None:
    both, size = images(50, 0), {"labeled_batch": 12, "unlabeled_batch": 12}
    batch = Feed(both, both, VIEWS, POLICIES, seed=0, mean=(0.0,) * 3, std=(1.0,) * 3, **size)(0)
    # as many images of both: the same order would show each image beside itself
    assert not torch.equal(batch.labeled_index, batch.unlabeled_index)


def test_the_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    make()(0)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_view_has_draws_of_its_own() -> None:
    _, first, second = (levels(view).amin((1, 2)) for view in make()(0).unlabeled)
    assert not torch.equal(first, second)


def test_all_views_are_of_one_crop_if_they_share_it() -> None:
    policies = {"weak": Weak(padding=2), "strong": Strong(padding=2, num_operations=0, cutout=0.0)}
    pixels = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    source = Images(pixels, torch.arange(20) % 7)
    options: dict[str, Any] = {
        "labeled_batch": 4,
        "unlabeled_batch": 12,
        "seed": 0,
        "mean": [0.5] * 3,
        "std": [1.0] * 3,
    }
    for shared in (True, False):
        feed = Feed(source, source, VIEWS, policies, **options, shared_crop=shared)
        weak, strong, other = feed(0).unlabeled
        assert torch.equal(weak, strong) == torch.equal(weak, other) == shared
        assert not torch.equal(weak, feed(1).unlabeled[0])


def test_the_reference_order_ignores_the_seed_but_the_draws_do_not() -> None:
    first, second = make(order="reference")(2), make(order="reference", seed=1)(2)
    assert torch.equal(first.labeled_index, second.labeled_index)
    assert torch.equal(first.unlabeled_index, second.unlabeled_index)
    assert not torch.equal(first.unlabeled[0], second.unlabeled[0])


def test_images_are_taken_once_per_side() -> None:
    feed = make()
    taken.clear()
    feed(0)
    assert taken == [4, 12]


def test_without_unlabeled_views_no_unlabeled_image_is_taken() -> None:
    feed = make(Views(("weak",), ()), unlabeled_batch=0)
    taken.clear()
    batch = feed(0)
    assert taken == [4]
    assert batch.unlabeled == ()
    assert batch.unlabeled_index.shape == batch.unlabeled_truth.shape == (0,)
    assert batch.unlabeled_index.dtype == batch.unlabeled_truth.dtype == torch.int64


def test_without_labeled_views_no_labeled_image_is_taken() -> None:
    feed = make(Views((), ("strong", "strong")), labeled_batch=0)
    taken.clear()
    batch = feed(0)
    assert taken == [12]
    assert batch.labeled == ()
    assert batch.labeled_index.shape == batch.labels.shape == (0,)
    assert batch.labeled_index.dtype == batch.labels.dtype == torch.int64
    assert len(batch.unlabeled) == 2
    assert torch.equal(batch.unlabeled_index, make()(0).unlabeled_index)  # the order of a side is its own


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setattr("epass.data.stream.feed.rank", lambda: rank)
    monkeypatch.setattr("epass.data.stream.feed.world_size", lambda: world)


def test_ranks_together_see_the_batch_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make()(4)
    parts = []
    for rank in range(2):
        on_rank(monkeypatch, rank, 2)
        taken.clear()
        parts.append(make()(4))
        assert taken == [2, 6], "a rank takes only its own rows"
    for expected, *halves in zip(tensors(whole)[:-2], *(tensors(part)[:-2] for part in parts), strict=True):
        assert torch.equal(torch.stack(halves, 1).flatten(0, 1), expected)
    assert all(part.step.item() == 4 for part in parts)


def test_ranks_without_labeled_views_share_the_unlabeled_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    views = Views((), ("strong",))
    whole = make(views, labeled_batch=0)(4)
    halves = []
    for rank in range(2):
        on_rank(monkeypatch, rank, 2)
        halves.append(make(views, labeled_batch=0)(4).unlabeled[0])
    assert torch.equal(torch.stack(halves, 1).flatten(0, 1), whole.unlabeled[0])


def test_batches_must_be_shared_equally(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    on_rank(monkeypatch, 0, 3)
    with refused("labeled batch of 4 images", "3 processes", "use 3 or 6."):
        make()
    with refused("unlabeled batch of 2 images", "use 3."):
        make(labeled_batch=3, unlabeled_batch=2)
    on_rank(monkeypatch, 0, 1)
    for size in (0, -2):
        with refused(f"labeled batch of {size} images", "1 process:", "use 1."):
            make(labeled_batch=size)


def test_unknown_views_are_named(refused) -> None:
    with refused("Unknown view 'weka'", "did you mean 'weak'?"):
        make(Views(("weka",), ("weak",)))
    with refused("Unknown view 'stronk'", "did you mean 'strong'?"):
        make(Views(("weak",), ("stronk",)))


def test_an_empty_unlabeled_set_is_refused_only_where_it_is_needed(refused) -> None:
    none = images(0, 0)
    options = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "labeled_batch": 4, "unlabeled_batch": 12, "seed": 0}
    with refused("no unlabeled image", "--method supervised", "keep fewer labels"):
        Feed(images(10, 0), none, VIEWS, POLICIES, **options)
    assert Feed(images(10, 0), none, Views(("weak",), ()), POLICIES, **options)(0).unlabeled == ()


def test_an_empty_labeled_set_will_do_where_no_labels_are_needed() -> None:
    options = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "labeled_batch": 4, "unlabeled_batch": 12, "seed": 0}
    batch = Feed(images(0, 0), images(50, 100), Views((), ("weak", "strong")), POLICIES, **options)(0)
    assert len(batch.labels) == 0
    assert [len(view) for view in batch.unlabeled] == [12, 12]
