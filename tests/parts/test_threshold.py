from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from epass.parts.threshold import ClassThresholds, GaussianWeight, confident

# A common input of section 18.
WEAK = torch.tensor([[2, 0, -1], [0.5, 0.4, 0.3], [-1, 3, 0]]).softmax(1)
CLASSES = 4


def assert_values(found: Tensor, *values: float) -> None:
    torch.testing.assert_close(found, torch.tensor(values).view(found.shape), rtol=1e-4, atol=1e-6)


def some_probs(seed: int, count: int = 5) -> Tensor:
    return (3 * torch.randn(count, CLASSES, generator=torch.Generator().manual_seed(seed))).softmax(1)


def test_confidence_is_inclusive_and_the_threshold_may_differ_by_row() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]])
    assert confident(probs, 0.75).tolist() == [0, 1, 1]
    assert confident(probs, torch.tensor([0.5, 0.8, 0.7])).tolist() == [1, 0, 1]


def test_row_8_class_thresholds() -> None:
    thresholds = ClassThresholds(3, momentum=0.9)
    now = thresholds.next(WEAK)
    assert_values(now["confidence"], 0.371573)
    assert_values(now["probs"], 0.340937, 0.346089, 0.312974)
    assert_values(now["histogram"], 0.366667, 0.333333, 0.300000)
    assert_values(thresholds(now), 0.366042, 0.371573, 0.336021)


def test_row_9_gaussian_weight() -> None:
    weigh = GaussianWeight(3, momentum=0.9)
    now = weigh.next(WEAK)
    assert_values(now["mean"], 0.371573)
    assert_values(now["variance"], 0.909326)
    weights = weigh(WEAK, now)
    assert_values(weights, 1, 0.999957, 1)
    # 1 - weight has five digits only: this one, in double precision, shows the constant before the square.
    wanted = ((0.367165 - 0.371573) ** 2) * 2**2 / (2 * 0.909326)
    assert -math.log(weigh(WEAK.double(), {n: v.double() for n, v in now.items()})[1]) == pytest.approx(
        wanted, rel=1e-3
    )


@pytest.mark.parametrize("quantile", [None, 0.8])
@pytest.mark.parametrize("ceiling", [1.0, 0.6])
def test_class_thresholds_in_loops(quantile: float | None, ceiling: float) -> None:
    thresholds = ClassThresholds(CLASSES, momentum=0.7, quantile=quantile, ceiling=ceiling)
    confidence, means, histogram = 1 / CLASSES, [1 / CLASSES] * CLASSES, [1 / CLASSES] * CLASSES
    for step in range(6):
        probs = some_probs(step)
        rows = probs.tolist()
        top = sorted(max(row) for row in rows)
        # Five values: the 0.8-quantile lies at position 0.8 * 4 = 3.2 of the sorted ones.
        usual = sum(top) / 5 if quantile is None else 0.8 * top[3] + 0.2 * top[4]
        confidence = min(0.7 * confidence + 0.3 * usual, ceiling)
        for c in range(CLASSES):
            means[c] = 0.7 * means[c] + 0.3 * sum(row[c] for row in rows) / 5
            histogram[c] = 0.7 * histogram[c] + 0.3 * sum(row.index(max(row)) == c for row in rows) / 5
        now = thresholds.next(probs)
        assert_values(thresholds(now), *(confidence * mean / max(means) for mean in means))
        thresholds.remember(now)
        assert_values(thresholds.confidence, confidence)
        assert_values(thresholds.probs, *means)
        assert_values(thresholds.histogram, *histogram)
    assert (confidence == ceiling) == (ceiling < 1)  # the ceiling was reached


def test_gaussian_weight_in_loops() -> None:
    weigh = GaussianWeight(CLASSES, momentum=0.7, narrowing=3.0)
    mean, variance, weights = 1 / CLASSES, 1.0, []
    for step in range(6):
        probs = some_probs(step)
        top = [max(row) for row in probs.tolist()]
        mean = 0.7 * mean + 0.3 * statistics.mean(top)
        variance = 0.7 * variance + 0.3 * statistics.variance(top)  # divides by n - 1
        now = weigh.next(probs)
        weights += [math.exp(-(min(0, t - mean) ** 2) / (2 * variance / 9)) for t in top]
        assert_values(weigh(probs, now), *weights[-5:])
        weigh.remember(now)
        assert_values(weigh.mean, mean)
        assert_values(weigh.variance, variance)
    assert min(weights) < 0.5
    assert max(weights) == 1


def test_a_huge_deviation_weighs_everything_1() -> None:
    weigh = GaussianWeight(CLASSES)
    assert weigh(some_probs(0), {"mean": torch.tensor(1.0), "variance": torch.tensor(1e12)}).tolist() == [1.0] * 5


def test_confidences_without_a_spread_give_weights() -> None:
    weigh, probs = GaussianWeight(2, momentum=0.0), torch.tensor([[0.75, 0.25], [0.75, 0.25]])
    now = weigh.next(probs)
    assert now["variance"] == 0
    assert weigh(probs, now).tolist() == [1, 1]


@pytest.mark.parametrize("part", [ClassThresholds(CLASSES, momentum=0.5), GaussianWeight(CLASSES, momentum=0.5)])
def test_nothing_is_remembered_unless_told(part: ClassThresholds | GaussianWeight) -> None:
    before = {name: value.clone() for name, value in part.state_dict().items()}
    now = part.next(some_probs(0))
    assert set(now) == set(before)
    assert all(torch.equal(value, before[name]) for name, value in part.state_dict().items())
    part.remember(now)
    assert all(torch.equal(value, now[name]) for name, value in part.state_dict().items())
    assert not any(torch.equal(value, before[name]) for name, value in part.state_dict().items())
