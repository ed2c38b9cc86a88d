from __future__ import annotations

from dataclasses import replace

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
    cross_entropy,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    soft_gradient,
    softmax,
    told,
)
from torch import Tensor

from epass.method import Problem
from epass.methods.fixmatch import FixMatch
from epass.methods.flexmatch import FlexMatch

CLASSES, IMAGES, LABELED_BATCH, UNLABELED_BATCH = 4, 9, 3, 7


def problem_of(num_classes: int, num_unlabeled: int) -> Problem:
    return replace(make_problem(num_classes), num_unlabeled=num_unlabeled)


def remember(method: FlexMatch, classes: list[int], num_classes: int) -> None:
    """Put a whole memory in place; -1 stands for an image without a class."""
    given = [c if c >= 0 else num_classes for c in classes]
    method.last_class.classes.copy_(torch.tensor(given))
    method.last_class.counts.copy_(torch.tensor([given.count(c) for c in range(num_classes + 1)]))


def test_conformance_row_6() -> None:
    method = FlexMatch(Answers(3), problem_of(3, 6), threshold=0.8)
    remember(method, [-1, 0, 1, 1, -1, -1], 3)
    torch.testing.assert_close(method.thresholds(), torch.tensor([0.16, 0.40, 0]), rtol=1e-4, atol=1e-6)

    batch = make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG))
    outcome = method(batch._replace(unlabeled_index=torch.tensor([0, 4, 5])))
    assert outcome.pseudo.mask.tolist() == [1, 1, 1]
    method.update(outcome.memory)
    assert method.last_class.classes.tolist() == [0, 0, 1, 1, 3, 1]
    learned = torch.tensor([2 / 3, 1, 0])
    torch.testing.assert_close(method.thresholds(), 0.8 * learned / (2 - learned))


class SlowFlexMatch:
    """Section A11 with a recount of all images at every step."""

    def __init__(self, threshold: float, warmup: bool) -> None:
        self.selected, self.learned = [-1] * IMAGES, [0.0] * CLASSES
        self.threshold, self.warmup = threshold, warmup

    def mask(self, probs: Row) -> float:
        beta = self.learned[probs.index(max(probs))]
        return 1.0 if max(probs) >= self.threshold * beta / (2 - beta) else 0.0

    def update(self, index: list[int], probs: list[Row]) -> None:
        for i, row in zip(index, probs, strict=True):
            if max(row) >= self.threshold:
                self.selected[i] = row.index(max(row))
        counts = [self.selected.count(c) for c in range(CLASSES)]
        if any(counts):
            most = max([*counts, self.selected.count(-1)] if self.warmup else counts)
            self.learned = [count / most for count in counts]


@pytest.mark.parametrize("warmup", [True, False])
def test_steps_are_those_of_the_loops(warmup: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    method = FlexMatch(
        Answers(CLASSES), problem_of(CLASSES, IMAGES), threshold=0.8, unlabeled_weight=0.7, threshold_warmup=warmup
    )
    slow, masks, repeats = SlowFlexMatch(0.8, warmup), [], 0
    for step in range(12):
        index = torch.randint(IMAGES, (UNLABELED_BATCH,), generator=generator)
        repeats += UNLABELED_BATCH - len(index.unique())
        labels = torch.randint(CLASSES, (LABELED_BATCH,), generator=generator)
        counts = (LABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2).requires_grad_() for count in counts)
        outcome = method(make_batch(x, labels, weak, strong, step=step)._replace(unlabeled_index=index))

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        probs = [softmax(row) for row in on_weak]
        targets = [hard(row.index(max(row)), CLASSES) for row in probs]
        mask = [slow.mask(row) for row in probs]
        terms = [m * cross_entropy(t, row) for m, t, row in zip(mask, targets, on_strong, strict=True)]
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [row.index(1.0) for row in targets]
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * sum(terms) / UNLABELED_BATCH, rel=1e-4)
        outcome.loss.backward()
        assert not weak.grad.any()
        wanted = soft_gradient(targets, on_strong, mask, 0.7)
        torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)

        method.update(outcome.memory)
        slow.update(index.tolist(), probs)
        assert method.last_class.classes.tolist() == [c if c >= 0 else CLASSES for c in slow.selected]
        thresholds = [0.8 * beta / (2 - beta) for beta in slow.learned]
        assert method.thresholds().tolist() == pytest.approx(thresholds, rel=1e-5)
        assert method(make_batch(x, labels, weak, strong)).metrics["mean_threshold"].item() == pytest.approx(
            sum(thresholds) / CLASSES, rel=1e-5
        )
        masks += mask
    assert repeats
    assert 0 in masks
    assert 1 in masks


def test_classes_that_learned_equally_make_it_fixmatch() -> None:
    generator = torch.Generator().manual_seed(3)
    method = FlexMatch(Answers(CLASSES), problem_of(CLASSES, 8), threshold=0.7, unlabeled_weight=0.5)
    remember(method, [0, 1, 2, 3, 3, 2, 1, 0], CLASSES)
    plain = FixMatch(Answers(CLASSES), make_problem(CLASSES), threshold=0.7, unlabeled_weight=0.5)
    x, weak, strong = (random_answers(generator, 40, CLASSES, 2) for _ in range(3))
    batch = make_batch(x, torch.arange(40) % CLASSES, weak, strong)
    ours, theirs = method(batch), plain(batch)
    assert 0 < theirs.pseudo.mask.mean() < 1
    assert torch.equal(ours.pseudo.mask, theirs.pseudo.mask)
    assert all(torch.equal(ours.losses[name], theirs.losses[name]) for name in theirs.losses)


@pytest.mark.parametrize("warmup", [True, False])
def test_at_the_start_every_image_is_used(warmup: bool) -> None:
    method = FlexMatch(Answers(3), make_problem(), threshold_warmup=warmup)
    assert method.thresholds().tolist() == [0, 0, 0]
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    assert outcome.pseudo.mask.tolist() == [1, 1, 1]
    assert outcome.memory["confident"].tolist() == [0, 0, 0]  # yet none of these reaches 0.95


def test_the_mask_looks_at_what_was_learned_before_this_step() -> None:
    method = FlexMatch(Answers(3), problem_of(3, 3), threshold=0.3, threshold_warmup=False)
    weak: Tensor = torch.tensor([[0.1, 0, 0], [0, 9, 0], [0, 0, 9]])
    batch = make_batch(answers(LABELED), LABELS, answers(weak), answers(STRONG))
    first = method(batch)
    assert first.pseudo.mask.tolist() == [1, 1, 1]
    assert method.thresholds().tolist() == [0, 0, 0]
    method.update(first.memory)
    assert method.thresholds().tolist() == pytest.approx([0.3, 0.3, 0.3])


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    FlexMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = FlexMatch(Answers(3), make_problem())
    assert (method.threshold, method.unlabeled_weight, method.threshold_warmup) == (0.95, 1.0, True)
    assert method.views == (("weak",), ("weak", "strong"))
