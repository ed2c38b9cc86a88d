from __future__ import annotations

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

from epass.methods.adamatch import AdaMatch

CLASSES = 4


def test_conformance_rows_7_7b_and_7c() -> None:
    method = AdaMatch(Answers(3), make_problem(), alignment_momentum=0.9)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    row = torch.tensor([0.783598, 0.097177, 0.119225])
    torch.testing.assert_close(outcome.pseudo.probs[0], row, rtol=1e-4, atol=1e-6)
    assert outcome.metrics["threshold"].item() == pytest.approx(0.589645, rel=1e-4)
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    method.update(outcome.memory)
    wanted = torch.tensor([0.333307, 0.343859, 0.322834])
    torch.testing.assert_close(method.alignment.wanted, wanted, rtol=1e-4, atol=1e-6)

    outcome = method(make_batch(answers(LABELED), LABELS, answers(STRONG), answers(WEAK)))
    row = torch.tensor([0.508866, 0.175426, 0.315708])
    torch.testing.assert_close(outcome.pseudo.probs[0], row, rtol=1e-4, atol=1e-6)
    method.update(outcome.memory)
    found = torch.tensor([0.404943, 0.458117, 0.136940])
    torch.testing.assert_close(method.alignment.found, found, rtol=1e-4, atol=1e-6)


class SlowAdaMatch:
    """Section 9.3 with the model as target, and A13."""

    def __init__(self, threshold: float, momentum: float) -> None:
        self.threshold, self.momentum = threshold, momentum
        self.found: Row | None = None
        self.wanted = [1 / CLASSES] * CLASSES

    def step(self, on_x: list[Row], on_weak: list[Row]) -> tuple[list[Row], list[float], float]:
        probs_x, probs = [softmax(row) for row in on_x], [softmax(row) for row in on_weak]
        mean = average_row(probs)
        self.found = mean if self.found is None else mix(self.momentum, self.found, mean)
        self.wanted = mix(self.momentum, self.wanted, average_row(probs_x))
        ratio = [(w + 1e-6) / (f + 1e-6) for w, f in zip(self.wanted, self.found, strict=True)]
        aligned = [scale_to_sum_one([q * r for q, r in zip(row, ratio, strict=True)]) for row in probs]
        threshold = self.threshold * sum(max(row) for row in probs_x) / len(probs_x)
        return aligned, [1.0 if max(row) >= threshold else 0.0 for row in aligned], threshold


@pytest.mark.parametrize(("threshold", "weight"), [(0.95, 1.0), (0.7, 3.0)])
def test_losses_are_those_of_the_loops(threshold: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(3)
    settings = {"threshold": threshold, "alignment_momentum": 0.6, "unlabeled_weight": weight}
    method, slow = AdaMatch(Answers(CLASSES), make_problem(CLASSES), **settings), SlowAdaMatch(threshold, 0.6)
    masks, moved = [], 0
    for step in range(6):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, weak, strong, step=step))
        method.update(outcome.memory)

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        aligned, mask, relative = slow.step(on_x, on_weak)
        masks += mask
        classes = [row.index(max(row)) for row in aligned]
        moved += sum(c != row.index(max(row)) for c, row in zip(classes, on_weak, strict=True))
        terms = [m * cross_entropy(hard(c, CLASSES), row) for m, c, row in zip(mask, classes, on_strong, strict=True)]
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == classes
        assert outcome.metrics["threshold"].item() == pytest.approx(relative, rel=1e-5)
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(weight * sum(terms) / 6, rel=1e-5)
    assert 0 in masks
    assert 1 in masks
    assert moved  # pseudo-labels are those of the aligned predictions


def test_gradients_reach_the_strong_view_and_the_labeled_loss_only() -> None:
    x, weak, strong = (answers(logits).requires_grad_() for logits in (LABELED, WEAK, STRONG))
    method = AdaMatch(Answers(3), make_problem(), alignment_momentum=0.9, unlabeled_weight=2.0)
    method(make_batch(x, LABELS, weak, strong)).loss.backward()
    assert not weak.grad.any()
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], STRONG.tolist(), [1.0, 0.0, 1.0], 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))
    wanted = soft_gradient([hard(0, 3), hard(1, 3)], LABELED.tolist(), [1.0, 1.0], 1.0)
    torch.testing.assert_close(x.grad[:, :3], torch.tensor(wanted))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    AdaMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = AdaMatch(Answers(3), make_problem())
    assert (method.threshold, method.alignment.momentum, method.unlabeled_weight) == (0.95, 0.999, 1.0)
    assert method.views == (("weak",), ("weak", "strong"))
