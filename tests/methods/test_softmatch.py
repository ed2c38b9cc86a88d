from __future__ import annotations

import math
import statistics

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

from epass.errors import InputError
from epass.methods.softmatch import SoftMatch

CLASSES = 4


def test_conformance_row_9() -> None:
    method = SoftMatch(Answers(3), make_problem(), statistics_momentum=0.9)
    # The alignment remembers what makes classes uniform together with this batch, so that it does nothing.
    method.alignment.remember((1 / 3 - 0.1 * WEAK.softmax(1).mean(0)) / 0.9)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    torch.testing.assert_close(outcome.pseudo.probs, WEAK.softmax(1))
    torch.testing.assert_close(outcome.pseudo.mask, torch.tensor([1, 0.999957, 1]), rtol=1e-5, atol=0)
    assert outcome.pseudo.mask[1] < 1
    method.update(outcome.memory)
    assert method.weigh.mean.item() == pytest.approx(0.371573, rel=1e-4)
    assert method.weigh.variance.item() == pytest.approx(0.909326, rel=1e-4)


class SlowSoftMatch:
    """Sections 9.3 with a uniform target, and A15."""

    def __init__(self, momentum: float, narrowing: float) -> None:
        self.momentum, self.narrowing = momentum, narrowing
        self.found: Row | None = None
        self.mean, self.variance = 1 / CLASSES, 1.0

    def weights(self, probs: list[Row]) -> list[float]:
        mean = average_row(probs)
        self.found = mean if self.found is None else mix(self.momentum, self.found, mean)
        ratio = [(1 / CLASSES + 1e-6) / (f + 1e-6) for f in self.found]
        top = [max(scale_to_sum_one([q * r for q, r in zip(row, ratio, strict=True)])) for row in probs]
        self.mean = self.momentum * self.mean + (1 - self.momentum) * statistics.mean(top)
        self.variance = self.momentum * self.variance + (1 - self.momentum) * statistics.variance(top)
        scale = 2 * self.variance / self.narrowing**2
        return [math.exp(-(min(0.0, t - self.mean) ** 2) / scale) for t in top]


@pytest.mark.parametrize(("narrowing", "weight"), [(2.0, 1.0), (4.0, 3.0)])
def test_losses_are_those_of_the_loops(narrowing: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(4)
    settings = {"statistics_momentum": 0.6, "narrowing": narrowing, "unlabeled_weight": weight}
    method, slow = SoftMatch(Answers(CLASSES), make_problem(CLASSES), **settings), SlowSoftMatch(0.6, narrowing)
    seen, moved = [], 0
    for step in range(6):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, weak, strong, step=step))
        method.update(outcome.memory)

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        weights = slow.weights([softmax(row) for row in on_weak])
        seen += weights
        classes = [row.index(max(row)) for row in on_weak]  # those of the predictions before they are aligned
        moved += sum(c != a for c, a in zip(classes, outcome.pseudo.probs.argmax(1).tolist(), strict=True))
        terms = [
            w * cross_entropy(hard(c, CLASSES), row) for w, c, row in zip(weights, classes, on_strong, strict=True)
        ]
        assert outcome.pseudo.mask.tolist() == pytest.approx(weights, rel=1e-4)
        assert outcome.pseudo.labels.tolist() == classes
        assert outcome.metrics["weight"].item() == pytest.approx(sum(weights) / 6, rel=1e-4)
        assert outcome.metrics["confidence"].item() == pytest.approx(slow.mean, rel=1e-4)
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(weight * sum(terms) / 6, rel=1e-4)
    assert min(seen) < 0.8
    assert max(seen) == 1
    assert moved


def test_with_a_huge_deviation_every_pseudo_label_counts_fully() -> None:
    method = SoftMatch(Answers(3), make_problem())
    method.weigh.mean.fill_(1.0)  # every confidence is below
    batch = make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG))
    assert (method(batch).pseudo.mask < 1).all()
    method.weigh.variance.fill_(1e12)
    outcome = method(batch)
    assert outcome.pseudo.mask.tolist() == [1, 1, 1]
    everything = labeled_loss(STRONG.tolist(), [0, 0, 1])
    assert outcome.losses["unlabeled"].item() == pytest.approx(everything, rel=1e-5)


def test_gradients_reach_the_strong_view_only() -> None:
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = SoftMatch(Answers(3), make_problem(), unlabeled_weight=2.0)
    method.weigh.mean.fill_(1.0)
    outcome = method(make_batch(x, LABELS, weak, strong))
    outcome.loss.backward()
    assert not weak.grad.any()
    weights = outcome.pseudo.mask.tolist()
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], STRONG.tolist(), weights, 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    SoftMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = SoftMatch(Answers(3), make_problem())
    assert (method.unlabeled_weight, method.weigh.narrowing) == (1.0, 2.0)
    assert (method.weigh.momentum, method.alignment.momentum) == (0.999, 0.999)
    assert method.views == (("weak",), ("weak", "strong"))


def test_one_unlabeled_image_per_step_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 unlabeled images"):
        SoftMatch(Answers(3), make_problem(unlabeled_batch=1))
