from __future__ import annotations

import math

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
    STRONG,
    WEAK,
    Answers,
    Row,
    SmallNet,
    answers,
    average_row,
    cross_entropy,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    mix,
    random_answers,
    record_inputs,
    scale_to_sum_one,
    soft_gradient,
    softmax,
    told,
)
from torch import Tensor

from epass.errors import InputError
from epass.methods.freematch import FreeMatch

CLASSES = 4


def test_conformance_rows_8_and_8b() -> None:
    method = FreeMatch(Answers(3), make_problem(), statistics_momentum=0.9, fairness_weight=1.0)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    assert outcome.pseudo.mask.tolist() == [1, 1, 1]
    assert outcome.metrics["threshold"].item() == pytest.approx(0.371573, rel=1e-4)
    assert outcome.losses["fairness"].item() == pytest.approx(-10.06913, rel=1e-4)
    method.update(outcome.memory)
    state = {
        "confidence": torch.tensor(0.371573),
        "probs": torch.tensor([0.340937, 0.346089, 0.312974]),
        "histogram": torch.tensor([0.366667, 0.333333, 0.300000]),
    }
    torch.testing.assert_close(dict(method.thresholds.named_buffers()), state, rtol=1e-4, atol=1e-6)
    thresholds = torch.tensor([0.366042, 0.371573, 0.336021])
    torch.testing.assert_close(method.thresholds(state), thresholds, rtol=1e-4, atol=1e-6)


def argmax(row: Row) -> int:
    return row.index(max(row))


def histogram(rows: list[Row]) -> Row:
    return average_row([hard(argmax(row), len(row)) for row in rows])


def divide(a: Row, b: Row) -> Row:
    return scale_to_sum_one([0.0 if y == 0 else x / y for x, y in zip(a, b, strict=True)])


class SlowFreeMatch:
    """Section A14."""

    def __init__(self, momentum: float, quantile: float | None, highest: float) -> None:
        self.momentum, self.quantile, self.highest = momentum, quantile, highest
        self.confidence, self.probs, self.histogram = 1 / CLASSES, [1 / CLASSES] * CLASSES, [1 / CLASSES] * CLASSES

    def usual(self, top: list[float]) -> float:
        if self.quantile is None:
            return sum(top) / len(top)
        top, place = sorted(top), self.quantile * (len(top) - 1)
        low = math.floor(place)
        high = min(low + 1, len(top) - 1)
        return top[low] + (place - low) * (top[high] - top[low])

    def mask(self, probs: list[Row]) -> list[float]:
        usual = self.usual([max(row) for row in probs])
        self.confidence = min(self.momentum * self.confidence + (1 - self.momentum) * usual, self.highest)
        self.probs = mix(self.momentum, self.probs, average_row(probs))
        self.histogram = mix(self.momentum, self.histogram, histogram(probs))
        thresholds = [self.confidence * value / max(self.probs) for value in self.probs]
        return [1.0 if max(row) >= thresholds[argmax(row)] else 0.0 for row in probs]

    def fairness(self, strong: list[Row], mask: list[float]) -> float:
        used = [row for row, m in zip(strong, mask, strict=True) if m]
        if not used:
            return 0.0
        a, b = divide(self.probs, self.histogram), divide(average_row(used), histogram(used))
        return sum(x * math.log(y + 1e-12) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("quantile", "highest"), [(None, 1.0), (0.8, 1.0), (None, 0.55)])
def test_losses_are_those_of_the_loops(quantile: float | None, highest: float) -> None:
    generator = torch.Generator().manual_seed(3)
    problem, weights = make_problem(CLASSES), {"unlabeled_weight": 0.7, "fairness_weight": 0.3}
    settings = {"statistics_momentum": 0.6, "quantile": quantile, "highest_threshold": highest}
    method, slow = FreeMatch(Answers(CLASSES), problem, **settings, **weights), SlowFreeMatch(0.6, quantile, highest)
    masks, terms = [], []
    for step in range(6):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 9, 9))
        outcome = method(make_batch(x, labels, weak, strong, step=step))
        method.update(outcome.memory)

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        mask = slow.mask([softmax(row) for row in on_weak])
        pairs = zip(mask, on_weak, on_strong, strict=True)
        total = sum(m * cross_entropy(hard(argmax(w), CLASSES), s) for m, w, s in pairs)
        terms.append(slow.fairness([softmax(row) for row in on_strong], mask))
        masks += mask
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [argmax(row) for row in on_weak]
        assert outcome.metrics["threshold"].item() == pytest.approx(slow.confidence, rel=1e-5)
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * total / 9, rel=1e-5)
        assert outcome.losses["fairness"].item() == pytest.approx(0.3 * terms[-1], rel=1e-4)
    assert 0 in masks
    assert 1 in masks
    assert min(terms) < -5 < max(terms)  # with and without a class that the strong views never show
    assert (slow.confidence == highest) == (highest < 1)


def weigh(method: FreeMatch, strong: Tensor) -> Tensor:
    return method(make_batch(answers(LABELED), LABELS, answers(WEAK), strong)).losses["fairness"]


def test_fairness_without_a_trusted_sample_is_0() -> None:
    method = FreeMatch(Answers(3), make_problem(), statistics_momentum=1.0, fairness_weight=1.0)
    method.thresholds.confidence.fill_(1.0)
    strong = answers(STRONG).requires_grad_()
    term = weigh(method, strong)
    assert term.item() == 0
    term.backward()
    assert strong.grad.tolist() == torch.zeros(3, 4).tolist()


@pytest.mark.parametrize("logits", [STRONG, torch.tensor([[1.5, 0.5, 0], [0.2, 0.1, 0.3], [0, 2, 0.5]])])
def test_the_gradient_of_the_fairness_term_is_finite_and_that_of_its_slope(logits: Tensor) -> None:
    method = FreeMatch(Answers(3), make_problem(), statistics_momentum=0.9, fairness_weight=1.0)
    strong = answers(logits).requires_grad_()
    weigh(method, strong).backward()
    slow = SlowFreeMatch(0.9, None, 1.0)
    slow.confidence, slow.probs, slow.histogram = 1 / 3, [1 / 3] * 3, [1 / 3] * 3
    mask = slow.mask(WEAK.softmax(1).tolist())

    def term(row: int, column: int, step: float) -> float:
        moved = logits.double().clone()
        moved[row, column] += step
        return slow.fairness(moved.softmax(1).tolist(), mask)

    wanted = torch.tensor([[(term(r, c, 1e-6) - term(r, c, -1e-6)) / 2e-6 for c in range(3)] for r in range(3)])
    assert wanted.abs().max() > 0.01
    torch.testing.assert_close(strong.grad[:, :3], wanted, rtol=1e-3, atol=1e-5)


def test_masked_rows_have_no_say_in_the_fairness_term() -> None:
    method = FreeMatch(Answers(3), make_problem(), statistics_momentum=1.0, fairness_weight=1.0)
    method.thresholds.confidence.fill_(0.8)  # the second row of the weak view is below it
    strong = answers(STRONG).requires_grad_()
    weigh(method, strong).backward()
    assert not strong.grad[1].any()
    assert strong.grad[0].any()


def test_gradients_reach_the_strong_view_only() -> None:
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = FreeMatch(Answers(3), make_problem(), unlabeled_weight=2.0, fairness_weight=0.0)
    method(make_batch(x, LABELS, weak, strong)).loss.backward()
    assert not weak.grad.any()
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], STRONG.tolist(), [1.0] * 3, 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))


def test_the_fairness_term_teaches_no_weak_view() -> None:
    method = FreeMatch(Answers(3), make_problem(), fairness_weight=1.0)
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method(make_batch(x, LABELS, weak, strong)).losses["fairness"].backward()
    assert weak.grad is None or not weak.grad.any()


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    FreeMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = FreeMatch(Answers(3), make_problem())
    assert (method.unlabeled_weight, method.fairness_weight) == (1.0, 0.001)
    thresholds = method.thresholds
    assert (thresholds.momentum, thresholds.quantile, thresholds.ceiling) == (0.999, None, 1.0)
    assert method.views == (("weak",), ("weak", "strong"))


def test_a_quantile_beyond_its_range_is_refused() -> None:
    with pytest.raises(InputError, match="must lie between 0 and 1, not at 80"):
        FreeMatch(Answers(3), make_problem(), quantile=80)
