import pytest
import torch

from epass.data import Order, Shuffle
from epass.data.stream.sampling import fold

SIZES = [(40, 64), (3, 64), (1, 5), (1000, 7), (64, 64), (50, 1)]


def stream(count: int, batch_size: int, seed: int = 0, order: Order = "seed", steps: int = 200) -> torch.Tensor:
    shuffle = Shuffle(count, batch_size, seed, "cpu", order)
    return torch.cat([shuffle.take(step) for step in range(steps)])


@pytest.mark.parametrize("order", ["seed", "reference"])
@pytest.mark.parametrize(("count", "batch_size"), SIZES)
def test_every_pass_visits_every_sample_once(count: int, batch_size: int, order: Order) -> None:
    samples = stream(count, batch_size, order=order)
    assert samples.dtype == torch.int64
    assert len(samples) == 200 * batch_size
    whole = samples[: len(samples) // count * count].reshape(-1, count)
    assert (whole.sort(1).values == torch.arange(count)).all()


@pytest.mark.parametrize(("count", "batch_size"), SIZES)
def test_a_batch_does_not_depend_on_what_was_asked_before(count: int, batch_size: int) -> None:
    expected = stream(count, batch_size).reshape(200, batch_size)
    for step in (7, 63, 64, 65, 199):
        assert torch.equal(Shuffle(count, batch_size, 0, "cpu").take(step), expected[step])
    jumping = Shuffle(count, batch_size, 0, "cpu")
    for step in (150, 3, 199, 0, 64, 63, 64):
        assert torch.equal(jumping.take(step), expected[step])


def test_passes_and_seeds_differ() -> None:
    passes = stream(100, 10).reshape(-1, 100)
    assert len(passes.unique(dim=0)) == len(passes)
    assert not torch.equal(stream(100, 10, seed=1), stream(100, 10, seed=0))


def published_batches(count: int, batch_size: int, epochs: int) -> list[list[int]]:
    """The published sampler, written down from its description: a generator for each epoch of 1,024 steps."""
    batches = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch)
        samples: list[int] = []
        while len(samples) < 1024 * batch_size:
            samples += torch.randperm(count, generator=generator).tolist()
        batches += [samples[step * batch_size : (step + 1) * batch_size] for step in range(1024)]
    return batches


@pytest.mark.parametrize(("count", "batch_size"), [(40, 64), (9000, 7), (7168, 7)])
def test_the_reference_order_is_the_published_one_batch_by_batch(count: int, batch_size: int) -> None:
    wanted = published_batches(count, batch_size, 3)
    shuffle = Shuffle(count, batch_size, 3, "cpu", "reference")
    assert torch.stack([shuffle.take(step) for step in range(3 * 1024)]).tolist() == wanted
    assert Shuffle(count, batch_size, 8, "cpu", "reference").take(2047).tolist() == wanted[2047]  # asked for first


def test_the_order_of_a_seed_is_drawn_on_the_cpu() -> None:
    expected = torch.randperm(100, generator=torch.Generator().manual_seed(fold(5, 2)))
    assert torch.equal(stream(100, 10, seed=5)[200:300], expected)
    # No device type has a generator of its own in this: one that cannot draw gets its batch all the same.
    assert Shuffle(100, 10, 5, "meta").take(0).device.type == "meta"


def test_old_passes_are_forgotten() -> None:
    shuffle = Shuffle(10_000, 10, 0, "cpu")
    for step in range(0, 10_000, 500):
        shuffle.take(step)
    assert len(shuffle._blocks) <= 2
