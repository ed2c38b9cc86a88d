"""The interval of a difference: against loops and enumeration, and how often it holds the truth."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from scipy import stats

from epass.evaluation import paired_interval
from epass.evaluation.bootstrap import T_QUANTILES, widening


def slow_interval(wrong_ours: list[list[int]], wrong_theirs: list[list[int]]) -> tuple[float, float]:
    """The same with loops, numbers drawn one by one, and another generator."""
    draw, num_seeds, num_images = random.Random(5), len(wrong_ours), len(wrong_ours[0])
    gaps = [
        sum(a - b for a, b in zip(ours, theirs, strict=True)) / num_images
        for ours, theirs in zip(wrong_ours, wrong_theirs, strict=True)
    ]
    middle = sum(gaps) / num_seeds
    found = []
    for _ in range(4000):
        value = middle
        if num_seeds > 1:
            seeds = [draw.choice(gaps) for _ in range(num_seeds)]
            t = T_QUANTILES[num_seeds - 2]
            value += (num_seeds / (num_seeds - 1)) ** 0.5 * t / 1.96 * (sum(seeds) / num_seeds - middle)
        total = 0
        for _ in range(num_images):
            image = draw.randrange(num_images)
            for seed in range(num_seeds):
                total += wrong_ours[seed][image] - wrong_theirs[seed][image]
        found.append(value + total / (num_seeds * num_images) - middle)
    found.sort()
    return found[round(0.025 * len(found))], found[round(0.975 * len(found)) - 1]


def interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    gaps = ours.astype(int) - theirs
    return paired_interval(gaps.mean(axis=1), gaps.mean(axis=0))


@pytest.mark.parametrize(("num_seeds", "num_images"), [(1, 30), (2, 12), (3, 25), (5, 20)])
def test_it_is_what_loops_find(num_seeds: int, num_images: int) -> None:
    generator = np.random.default_rng(num_seeds)
    ours, theirs = generator.random((2, num_seeds, num_images)) < np.array([0.2, 0.45])[:, None, None]
    low, high = interval(ours, theirs)
    slow = slow_interval(ours.astype(int).tolist(), theirs.astype(int).tolist())
    assert (low, high) == pytest.approx(slow, abs=0.06 * (high - low))


def test_it_is_what_all_resamples_of_few_images_say() -> None:
    """Four images, one seed: 256 equally likely resamples."""
    on_images = np.array([-1.0, -1.0, 0.0, 1.0])
    means = sorted(sum(drawn) / 4 for drawn in product(on_images, repeat=4))
    assert paired_interval(on_images.mean(keepdims=True), on_images) == (means[6], means[-7])


def test_the_quantiles_of_students_t_are_those_of_scipy() -> None:
    freedom = np.arange(1, len(T_QUANTILES) + 1)
    assert pytest.approx(stats.t.ppf(0.975, freedom), abs=0.0051) == T_QUANTILES  # two digits are written


def test_seeds_are_widened_as_students_t_has_it() -> None:
    assert widening(3) == pytest.approx((3 / 2) ** 0.5 * 4.30 / 1.96)
    assert widening(30) == pytest.approx((30 / 29) ** 0.5 * 2.23 / 1.96)
    gaps = np.array([-0.03, -0.01, 0.01])  # one resample in 27 is the lowest seed three times
    low, high = paired_interval(gaps, np.zeros(0))
    assert (low, high) == pytest.approx((-0.01 - 0.02 * widening(3), -0.01 + 0.02 * widening(3)))


def test_many_seeds_give_the_interval_of_students_t() -> None:
    gaps = np.random.default_rng(0).normal(size=200)
    half = T_QUANTILES[-1] * gaps.std(ddof=1) / 200**0.5
    assert paired_interval(gaps, np.zeros(0)) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.02)


def test_the_same_input_gives_the_same_interval() -> None:
    gaps, on_images = np.array([0.1, 0.2, 0.4]), np.repeat([0.0, 1 / 3, 1.0], 7)
    assert paired_interval(gaps, on_images) == paired_interval(gaps.copy(), on_images[::-1].copy())


def test_degenerate_input() -> None:
    assert interval(np.zeros((3, 9)), np.zeros((3, 9))) == (0, 0), "equal predictions"
    assert interval(np.eye(9)[:3], np.eye(9)[:3]) == (0, 0), "equal mistakes"
    assert interval(np.zeros((1, 1)), np.ones((1, 1))) == (-1, -1), "one seed, one image: nothing can vary"
    low, high = interval(np.array([[0], [0], [1]]), np.array([[1], [1], [1]]))
    assert low < -2 / 3 < high, "one image still has seeds"
    low, high = interval(np.arange(10)[None] < 3, np.arange(10)[None] < 6)
    assert low < -0.3 < high, "one seed still has images"


def test_an_end_at_zero_is_zero() -> None:
    """2 of 60 images differ: in 13 of 100 resamples neither is drawn."""
    on_images = np.repeat([-1.0, 0.0], [2, 58])
    assert paired_interval(np.full(3, on_images.mean()), on_images)[1] == 0


SETTINGS = {  # standard deviations of seeds, and the share of mistakes that all seeds make
    "seeds differ": (3, 0.02, 0.0),
    "images differ": (5, 0.0, 0.8),
    "both": (3, 0.01, 0.5),
    "one seed, images differ": (1, 0.0, 0.8),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_where_there_is_no_difference_it_mostly_holds_zero(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.evaluation.bootstrap.REPLICATES", 2000)
    num_seeds, spread, shared = SETTINGS[name]
    generator, held, trials, widths = np.random.default_rng(1), 0, 200, []
    for _ in range(trials):
        rates = np.clip(0.15 + spread * generator.normal(size=(2, num_seeds, 1)), 0, 1)
        common = generator.random((2, 1, 300)) < 0.15
        wrong = np.where(
            generator.random((2, num_seeds, 300)) < shared, common, generator.random((2, num_seeds, 300)) < rates
        )
        low, high = interval(*wrong)
        held += low <= 0 <= high
        widths.append(high - low)
    assert 0.91 <= held / trials <= 1
    assert np.mean(widths) < 0.35  # it does not hold zero because it holds everything


def test_images_alone_do_not_cover_seeds() -> None:
    """Why one seed cannot tell: rates that differ by luck are taken for merit far more often than once in 20."""
    generator, held = np.random.default_rng(1), 0
    for _ in range(100):
        rates = 0.15 + 0.03 * generator.normal(size=(2, 1, 1))
        low, high = interval(*(generator.random((2, 1, 500)) < rates))
        held += low <= 0 <= high
    assert held < 85
