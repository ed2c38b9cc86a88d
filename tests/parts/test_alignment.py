from __future__ import annotations

import pytest
import torch
from torch import Tensor

from epass.parts.alignment import AverageAlignment, QueueAlignment, reweigh

# The common inputs of section 18.
WEAK = torch.tensor([[2, 0, -1], [0.5, 0.4, 0.3], [-1, 3, 0]]).softmax(1)
STRONG = torch.tensor([[1.5, 0.5, 0], [0.2, 0.1, 0], [0, 2, 0.5]]).softmax(1)
LABELED = torch.tensor([[1.0, 0, 0], [0, 2, 1]]).softmax(1)


def assert_row(row: Tensor, *values: float) -> None:
    torch.testing.assert_close(row, torch.tensor(values), rtol=1e-4, atol=1e-6)


def assert_rows(rows: Tensor, wanted: list[list[float]]) -> None:
    torch.testing.assert_close(rows, torch.tensor(wanted), rtol=1e-4, atol=1e-6)


def test_row_7_average_alignment_with_the_model_as_target() -> None:
    alignment = AverageAlignment(3, momentum=0.9, target="model")
    aligned = alignment(WEAK, WEAK.mean(0), LABELED.mean(0))
    assert_row(aligned[0], 0.783598, 0.097177, 0.119225)
    alignment.remember(WEAK.mean(0), LABELED.mean(0))
    assert_row(alignment.found, 0.409369, 0.460887, 0.129744)
    assert_row(alignment.wanted, 0.333307, 0.343859, 0.322834)


def test_row_7b_average_alignment_on_the_second_call() -> None:
    alignment = AverageAlignment(3, momentum=0.9, target="model")
    alignment.remember(WEAK.mean(0), LABELED.mean(0))
    aligned = alignment(STRONG, STRONG.mean(0), LABELED.mean(0))
    assert_row(aligned[0], 0.508866, 0.175426, 0.315708)
    alignment.remember(STRONG.mean(0), LABELED.mean(0))
    assert_row(alignment.found, 0.404943, 0.458117, 0.136940)
    assert_row(alignment.wanted, 0.333284, 0.353332, 0.313384)


def test_row_10_queue_alignment() -> None:
    alignment = QueueAlignment(3, 4)
    assert_row(alignment(WEAK, WEAK.mean(0))[0], 0.782906, 0.094111, 0.122983)
    alignment.remember(WEAK.mean(0))
    assert_row(alignment(STRONG, STRONG.mean(0))[0], 0.543465, 0.173185, 0.283350)


# --- The same in loops -----------------------------------------------------------------------------------------------


def average(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def slow_reweigh(rows: list[list[float]], wanted: list[float], found: list[float]) -> list[list[float]]:
    result = []
    for row in rows:
        scaled = [q * (w + 1e-6) / (f + 1e-6) for q, w, f in zip(row, wanted, found, strict=True)]
        result.append([value / sum(scaled) for value in scaled])
    return result


def some_probs(seed: int, count: int = 5, num_classes: int = 4) -> Tensor:
    return (3 * torch.randn(count, num_classes, generator=torch.Generator().manual_seed(seed))).softmax(1)


@pytest.mark.parametrize("length", [1, 3, 32])
def test_a_queue_of_batches(length: int) -> None:
    alignment = QueueAlignment(4, length)
    ring, pointer = [[0.0] * 4 for _ in range(length)], 0
    for step in range(8):  # the ring of three turns more than twice
        probs = some_probs(step)
        aligned = alignment(probs, probs.mean(0))
        ring[pointer] = average(probs.tolist())  # written before it is applied
        pointer = (pointer + 1) % length
        assert_rows(aligned, slow_reweigh(probs.tolist(), [0.25] * 4, average(ring)))
        alignment.remember(probs.mean(0))
        assert_rows(alignment.means, ring)


@pytest.mark.parametrize("fading_steps", [0, 4])
def test_a_queue_that_fades(fading_steps: int) -> None:
    alignment = QueueAlignment(4, 3, fading_steps)
    ring = [[0.0] * 4 for _ in range(3)]
    for step in range(8):
        probs = some_probs(step)
        aligned = alignment(probs, probs.mean(0), torch.tensor(step))
        ring[step % 3] = average(probs.tolist())
        strength = (fading_steps - step) / fading_steps if step < fading_steps else 0.0
        rows = []
        for row in probs.tolist():
            scaled = [q * (0.25 / (f + 1e-6)) ** strength for q, f in zip(row, average(ring), strict=True)]
            rows.append([value / sum(scaled) for value in scaled])
        assert_rows(aligned, rows)
        if step >= fading_steps:
            torch.testing.assert_close(aligned, probs)
        alignment.remember(probs.mean(0))


@pytest.mark.parametrize("target", ["uniform", "model", "given"])
def test_a_moving_average(target: str) -> None:
    given = torch.tensor([0.1, 0.2, 0.3, 0.4])
    alignment = AverageAlignment(4, momentum=0.8, target=given if target == "given" else target)
    found, wanted = None, given.tolist() if target == "given" else [0.25] * 4
    for step in range(5):
        probs, labeled = some_probs(step), some_probs(100 + step, 3)
        labeled_mean = labeled.mean(0) if target == "model" else None
        aligned = alignment(probs, probs.mean(0), labeled_mean)
        mean = average(probs.tolist())
        found = mean if found is None else [0.8 * old + 0.2 * new for old, new in zip(found, mean, strict=True)]
        if target == "model":
            wanted = [0.8 * old + 0.2 * new for old, new in zip(wanted, average(labeled.tolist()), strict=True)]
        assert_rows(aligned, slow_reweigh(probs.tolist(), wanted, found))
        alignment.remember(probs.mean(0), labeled_mean)
        assert_row(alignment.found, *found)
        assert_row(alignment.wanted, *wanted)


def test_aligning_remembers_nothing_by_itself() -> None:
    queue, moving = QueueAlignment(3, 4), AverageAlignment(3, target="model")
    for alignment, means in ((queue, (WEAK.mean(0),)), (moving, (WEAK.mean(0), LABELED.mean(0)))):
        before = {name: value.clone() for name, value in alignment.state_dict().items()}
        first = alignment(WEAK, *means)
        assert torch.equal(first, alignment(WEAK, *means))
        assert all(torch.equal(value, before[name]) for name, value in alignment.state_dict().items())


def test_all_state_is_in_the_state_dict() -> None:
    for build in (lambda: QueueAlignment(4, 3), lambda: AverageAlignment(4, momentum=0.5)):
        one, other = build(), build()
        for step in range(4):
            one.remember(some_probs(step).mean(0))
        other.load_state_dict(one.state_dict())
        for alignment in (one, other):
            alignment.remember(some_probs(9).mean(0))
        probs = some_probs(10)
        assert torch.equal(one(probs, probs.mean(0)), other(probs, probs.mean(0)))


def test_a_class_that_is_never_found_stays_finite() -> None:
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(reweigh(probs, 0.5, torch.tensor([1.0, 0.0])), probs)


def test_a_class_that_is_not_wanted_keeps_a_trace() -> None:
    probs, wanted, found = [[0.5, 0.3, 0.2]], [0.0, 0.5, 0.5], [0.6, 0.3, 0.1]
    aligned = AverageAlignment(3, target=torch.tensor(wanted))(torch.tensor(probs), torch.tensor(found))
    torch.testing.assert_close(aligned, torch.tensor(slow_reweigh(probs, wanted, found)), rtol=1e-4, atol=0)
    assert aligned[0, 0] > 0
