from __future__ import annotations

import math
from shutil import which

import pytest
import torch
from torch import Tensor

from epass.parts import draws
from epass.parts.draws import normal, permutation, uniform

SEED = torch.tensor(123_456_789_012_345)
MANY = 40_000


def on_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    monkeypatch.setattr(draws, "rank", lambda: rank)
    monkeypatch.setattr(draws, "world_size", lambda: world_size)


def slow_mix(state: int) -> int:
    """The last steps of splitmix64, in whole numbers of Python."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def slow_uniform(seed: int, position: int, salt: int) -> float:
    stream = slow_mix((seed + 0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
    return ((slow_mix((stream + 0xD1B54A32D192ED03 * position) % 2**64) >> 41) + 0.5) / 2**23


@pytest.mark.parametrize("seed", [0, 1, 2**62 - 1, 123_456_789_012_345])
@pytest.mark.parametrize("salt", [0, 1, 17])
def test_uniform_is_that_of_the_loops(seed: int, salt: int) -> None:
    found = uniform(torch.tensor(seed), 5, 3, salt=salt)
    assert found.shape == (5, 3)
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == [slow_uniform(seed, position, salt) for position in range(15)]


def test_uniform_fills_the_open_interval_evenly() -> None:
    numbers = uniform(SEED, MANY, 25, salt=0)
    assert 0 < numbers.min() < 1e-5
    assert 1 - 1e-5 < numbers.max() < 1
    assert numbers.mean().item() == pytest.approx(1 / 2, abs=5 / math.sqrt(12 * numbers.numel()))
    assert numbers.var().item() == pytest.approx(1 / 12, rel=0.01)
    share = torch.histc(numbers, bins=20, min=0, max=1) / numbers.numel()
    assert share.tolist() == pytest.approx([0.05] * 20, rel=0.03)


def test_normal_has_the_moments_of_a_normal_distribution() -> None:
    numbers = normal(SEED, MANY, 5, salt=0)
    assert numbers.shape == (MANY, 5)
    assert numbers.isfinite().all()
    assert numbers.mean().item() == pytest.approx(0, abs=0.01)
    assert numbers.var().item() == pytest.approx(1, rel=0.02)
    assert (numbers**3).mean().item() == pytest.approx(0, abs=0.05)
    assert (numbers**4).mean().item() == pytest.approx(3, rel=0.03)
    assert (numbers.abs() > 1.96).float().mean().item() == pytest.approx(0.05, rel=0.05)


def correlation(a: Tensor, b: Tensor) -> float:
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


def test_draws_of_other_salts_seeds_and_places_have_nothing_in_common() -> None:
    base = uniform(SEED, MANY, 2, salt=0)
    others = {
        "next salt": uniform(SEED, MANY, 2, salt=1)[:, 0],
        "far salt": uniform(SEED, MANY, 2, salt=1000)[:, 0],
        "next seed": uniform(SEED + 1, MANY, 2, salt=0)[:, 0],
        "next column": base[:, 1],
        "next row": base[:, 0].roll(1),
    }
    for name, other in others.items():
        assert abs(correlation(base[:, 0], other)) < 5 / math.sqrt(MANY), name
        assert (base[:, 0] == other).float().mean() < 1e-3, name


def test_seeds_of_consecutive_steps_give_independent_single_numbers() -> None:
    numbers = torch.stack([uniform(torch.tensor(seed), salt=0) for seed in range(2000)])
    assert numbers.mean().item() == pytest.approx(0.5, abs=0.03)
    assert abs(correlation(numbers[1:], numbers[:-1])) < 0.1


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 3)])
def test_rows_of_all_ranks_interleave_to_those_of_one_process(
    shape: tuple[int, ...], world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {draw: draw(SEED, *shape, salt=3) for draw in (uniform, normal)}
    local = (shape[0] // world_size, *shape[1:])
    for rank in range(world_size):
        on_rank(monkeypatch, rank, world_size)
        for draw, wanted in alone.items():
            assert torch.equal(draw(SEED, *local, salt=3), wanted[rank::world_size])


def test_a_number_without_rows_is_one_that_all_ranks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = uniform(SEED, salt=3)
    assert alone.shape == ()
    assert uniform(SEED, 1, salt=3).shape == (1,)
    for rank in range(3):
        on_rank(monkeypatch, rank, 3)
        assert torch.equal(uniform(SEED, salt=3), alone)


def test_a_permutation_has_every_number_once_and_every_place_alike() -> None:
    found = torch.stack([permutation(torch.tensor(seed), 5, salt=0) for seed in range(1000)])
    assert found.dtype == torch.int64
    assert torch.equal(found.sort(1).values, torch.arange(5).expand(1000, 5))
    for place in range(5):
        share = torch.bincount(found[:, place], minlength=5) / 1000
        assert share.tolist() == pytest.approx([0.2] * 5, abs=0.06)
    assert not torch.equal(permutation(SEED, 100, salt=0), permutation(SEED, 100, salt=1))


def test_draws_are_a_pure_function_of_the_seed() -> None:
    before, seed = torch.get_rng_state(), SEED.clone()
    torch.manual_seed(1)
    first = [uniform(seed, 4, salt=0), normal(seed, 4, salt=0), permutation(seed, 4, salt=0)]
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = [uniform(seed, 4, salt=0), normal(seed, 4, salt=0), permutation(seed, 4, salt=0)]
    assert torch.equal(torch.get_rng_state(), state)  # and nothing is taken from the global generator
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    assert torch.equal(seed, SEED)
    torch.set_rng_state(before)


# Code that is generated for the CPU once took products with positions for addresses, and other numbers came out.
GENERATED = pytest.param(
    "inductor", marks=[pytest.mark.slow, pytest.mark.skipif(which("g++") is None, reason="needs a compiler")]
)


@pytest.mark.parametrize("backend", ["aot_eager", GENERATED])
@pytest.mark.filterwarnings("ignore")  # torch warns about itself while it compiles
def test_compiled_draws_are_the_same(backend: str) -> None:
    def draw(seed: Tensor) -> tuple[Tensor, ...]:
        return uniform(seed, salt=0), uniform(seed, 40, 3, salt=1), permutation(seed, 40, salt=3)

    torch._dynamo.reset()
    compiled = torch.compile(draw, fullgraph=True, backend=backend)
    for seed in (SEED, SEED + 1):
        for found, wanted in zip(compiled(seed), draw(seed), strict=True):
            assert torch.equal(found, wanted)
    torch._dynamo.reset()
