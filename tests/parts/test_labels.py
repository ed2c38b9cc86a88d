from __future__ import annotations

import math

import pytest
import torch

from epass.parts.labels import consistency, divergence, entropy, one_hot, squared_error, sum_by_class
from epass.parts.threshold import confident

# The common inputs of section 18.
WEAK = torch.tensor([[2, 0, -1], [0.5, 0.4, 0.3], [-1, 3, 0]])
STRONG = torch.tensor([[1.5, 0.5, 0], [0.2, 0.1, 0], [0, 2, 0.5]])


def test_one_hot() -> None:
    encoded = one_hot(torch.tensor([2, 0, 1, 2]), 4)
    assert encoded.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert encoded.dtype == torch.float32


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_values_are_added_up_by_class_and_every_time_the_same(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    values, labels = torch.rand(7, 500, generator=generator), torch.randint(0, 4, (500,), generator=generator)
    slow = [[sum(float(v) for v, c in zip(row, labels, strict=True) if c == k) for k in range(5)] for row in values]
    found = [sum_by_class(values.to(device), labels.to(device), 5).cpu() for _ in range(5)]
    torch.testing.assert_close(found[0], torch.tensor(slow))
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_one_hot_of_labels_that_a_memory_kept_as_floats() -> None:
    assert one_hot(torch.tensor([1.0, 0.0]), 2).tolist() == [[0, 1], [1, 0]]


def test_confident_includes_the_threshold() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.8, 0.2], [0.7499999, 0.2500001]])
    assert confident(probs, 0.75).tolist() == [0, 1, 1, 0]
    assert confident(probs, 0.0).tolist() == [1, 1, 1, 1]
    assert confident(probs, 0.75).dtype == torch.float32


def slow_consistency(logits: list[list[float]], targets: list[list[float]], mask: list[float]) -> float:
    total = 0.0
    for row, target, weight in zip(logits, targets, mask, strict=True):
        log_total = math.log(sum(math.exp(value) for value in row))
        total += weight * -sum(t * (value - log_total) for t, value in zip(target, row, strict=True))
    return total / len(logits)


@pytest.mark.parametrize("mask", [[1.0, 0, 1, 1, 0], [0.0] * 5, [1.0] * 5, [0.3, 1, 0, 0.7, 0.1]])
def test_consistency_counts_masked_rows_in_the_mean(mask: list[float]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5, 3, generator=generator)
    soft = torch.randn(5, 3, generator=generator).softmax(1)
    found = consistency(logits, soft, torch.tensor(mask)).item()
    assert found == pytest.approx(slow_consistency(logits.tolist(), soft.tolist(), mask), rel=1e-5)

    labels = torch.tensor([0, 2, 1, 1, 0])
    hard = [[float(c == label) for c in range(3)] for label in labels.tolist()]
    found = consistency(logits, labels, torch.tensor(mask)).item()
    assert found == pytest.approx(slow_consistency(logits.tolist(), hard, mask), rel=1e-5)


def test_consistency_survives_extreme_logits() -> None:
    """Log-softmax, never the logarithm of a softmax."""
    logits = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = consistency(logits, torch.tensor([[0.0, 1.0]]), torch.ones(1))
    assert loss.item() == pytest.approx(2000)
    loss.backward()
    assert logits.grad.tolist() == [[1, -1]]


def test_conformance_row_4_squared_error() -> None:
    assert squared_error(STRONG, WEAK.softmax(1)).item() == pytest.approx(0.0144857, rel=1e-4)


def test_conformance_row_14_divergence_and_entropy() -> None:
    assert divergence(STRONG, WEAK.softmax(1)).item() == pytest.approx(0.0845232, rel=1e-4)
    assert entropy(WEAK).item() == pytest.approx(0.631289, rel=1e-4)


def slow_softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def test_squared_error_divergence_and_entropy_are_those_of_the_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5, 4, generator=generator)
    target = torch.randn(5, 4, generator=generator).softmax(1)
    squares, divergences, entropies = 0.0, 0.0, 0.0
    for row, wanted in zip(logits.tolist(), target.tolist(), strict=True):
        probs = slow_softmax(row)
        squares += sum((p - q) ** 2 for p, q in zip(probs, wanted, strict=True)) / 4
        divergences += sum(q * (math.log(q) - math.log(p)) for p, q in zip(probs, wanted, strict=True))
        entropies -= sum(p * math.log(p) for p in probs)
    assert squared_error(logits, target).item() == pytest.approx(squares / 5, rel=1e-5)
    assert divergence(logits, target).item() == pytest.approx(divergences / 5, rel=1e-5)
    assert entropy(logits).item() == pytest.approx(entropies / 5, rel=1e-5)


def test_divergence_and_entropy_survive_certain_predictions() -> None:
    logits = torch.tensor([[1000.0, -1000.0], [0.0, 0.0]], requires_grad=True)
    sure = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert divergence(logits, sure).item() == pytest.approx((2000 + math.log(2)) / 2)
    assert entropy(logits).item() == pytest.approx(math.log(2) / 2)
    (divergence(logits, sure) + entropy(logits)).backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.5, -0.5], [-0.25, 0.25]]))
