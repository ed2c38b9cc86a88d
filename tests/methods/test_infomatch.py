from __future__ import annotations

from statistics import fmean, stdev

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
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    mix,
    random_answers,
    record_inputs,
    softmax,
    told,
    train_steps,
)

from epass.method import Outcome
from epass.methods.infomatch import InfoMatch
from epass.parts.cutmix import cut_mix
from epass.parts.draws import permutation, uniform

CLASSES = 4
WEIGHTS = {"unlabeled_weight": 1.5, "mixed_weight": 0.4, "strong_weight": 0.3, "agreement_weight": 0.2}


class SlowThresholds:
    """Section N7.2."""

    def __init__(self, momentum: float, fixed: float | None) -> None:
        self.momentum, self.fixed = momentum, fixed
        self.confidence, self.probs = 1 / CLASSES, [1 / CLASSES] * CLASSES

    def mask(self, probs: list[Row]) -> list[float]:
        usual = fmean(max(row) for row in probs)
        self.confidence = self.momentum * self.confidence + (1 - self.momentum) * usual
        self.probs = mix(self.momentum, self.probs, average_row(probs))
        mask = []
        for row in probs:
            label = row.index(max(row))
            threshold = self.confidence * self.probs[label] / max(self.probs)
            mask.append(1.0 if max(row) >= (threshold if self.fixed is None else self.fixed) else 0.0)
        return mask


def standardized(row: Row) -> Row:
    return [(value - fmean(row)) / stdev(row) for value in row]


@pytest.mark.parametrize("fixed", [None, 0.8])
def test_losses_are_those_of_the_loops(fixed: float | None) -> None:
    generator, count = torch.Generator().manual_seed(3), 9
    settings = {"statistics_momentum": 0.6, "fixed_threshold": fixed, **WEIGHTS}
    method, slow = InfoMatch(Answers(CLASSES), make_problem(CLASSES), **settings), SlowThresholds(0.6, fixed)
    masks = []
    for step in range(5):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, *views = (random_answers(generator, size, CLASSES, 2) for size in (3, count, count, count))
        batch = make_batch(x, labels, *views, step=step)
        outcome = method(batch)
        method.update(outcome.memory)

        on_x, on_weak, on_strong, on_other = (told(view, CLASSES)[0] for view in (x, *views))
        mask = slow.mask([softmax(row) for row in on_weak])
        top = [row.index(max(row)) for row in on_weak]
        order = permutation(batch.seed, count, salt=3).tolist()
        kept = [max(share, 1 - share) for share in uniform(batch.seed, count, salt=4).tolist()]
        strong = mixed = agreement = 0.0
        for b, partner in enumerate(order):
            label = hard(top[b], CLASSES)
            strong += mask[b] * (cross_entropy(label, on_strong[b]) + cross_entropy(label, on_other[b]))
            # This network is linear: the logits of mixed vectors are mixed logits.
            logits = mix(kept[b], on_weak[b], on_weak[partner])
            mixed += kept[b] * mask[b] * cross_entropy(label, logits)
            mixed += (1 - kept[b]) * mask[partner] * cross_entropy(hard(top[partner], CLASSES), logits)
            pairs = zip(standardized(on_strong[b]), standardized(on_other[b]), strict=True)
            agreement += sum((one - two) ** 2 for one, two in pairs) / CLASSES
        masks += mask
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == top
        assert outcome.metrics["threshold"].item() == pytest.approx(slow.confidence, rel=1e-5)
        losses = {name: loss.item() for name, loss in outcome.losses.items()}
        assert losses["labeled"] == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert losses["unlabeled"] == pytest.approx(1.5 * 0.3 * strong / count, rel=1e-4)
        assert losses["mixed"] == pytest.approx(1.5 * 0.4 * mixed / count, rel=1e-4)
        assert losses["agreement"] == pytest.approx(1.5 * 0.2 * agreement / count, rel=1e-4)
    assert 0 in masks
    assert 1 in masks


def on_common_inputs(*views: torch.Tensor) -> Outcome:
    method = InfoMatch(Answers(3), make_problem(), statistics_momentum=0.9)
    return method(make_batch(answers(LABELED), LABELS, *views))


def test_thresholds_are_those_of_freematch() -> None:
    """Conformance row 8, whose thresholds count the batch at hand."""
    outcome = on_common_inputs(answers(WEAK), answers(STRONG), answers(STRONG))
    assert outcome.metrics["threshold"].item() == pytest.approx(0.371573, rel=1e-4)
    wanted = torch.tensor([0.340937, 0.346089, 0.312974])
    torch.testing.assert_close(outcome.memory["probs"], wanted, rtol=1e-4, atol=1e-6)
    assert outcome.losses["agreement"].item() == 0  # of equal views


def test_targets_and_masks_carry_no_gradient() -> None:
    """The weak view learns as part of the mixture, whose loss is linear in neither; without it, not at all."""
    weak, strong, other = (answers(logits).requires_grad_() for logits in (WEAK, STRONG, STRONG.flip(0)))
    losses = on_common_inputs(weak, strong, other).losses
    (losses["labeled"] + losses["unlabeled"] + losses["agreement"]).backward()
    assert weak.grad is None or not weak.grad.any()
    assert strong.grad[:, :3].all()
    assert other.grad[:, :3].all()


def test_the_agreement_teaches_both_strong_views() -> None:
    weak, strong, other = (answers(logits).requires_grad_() for logits in (WEAK, STRONG, STRONG.flip(0)))
    on_common_inputs(weak, strong, other).losses["agreement"].backward()
    torch.testing.assert_close(strong.grad.flip(0), other.grad)
    assert strong.grad[0, :3].any()


def test_logits_without_a_spread_have_a_finite_gradient() -> None:
    strong, other = torch.zeros(3, 4).requires_grad_(), answers(STRONG)
    on_common_inputs(answers(WEAK), strong, other).loss.backward()
    assert strong.grad.isfinite().all()


def test_all_views_and_the_mixture_pass_the_network_as_one_batch() -> None:
    net, batch = SmallNet(), image_batch(0, num_views=3)
    seen = record_inputs(net)
    InfoMatch(net, make_problem())(batch)
    (x,), (weak, strong, other) = batch.labeled, batch.unlabeled
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, other, cut_mix(weak, batch.seed).images, weak]))


def test_it_trains() -> None:
    torch.manual_seed(0)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9, steps=60)
    losses = train_steps(InfoMatch(SmallNet(), problem), 60)
    assert sum(step["labeled"] for step in losses[-10:]) < 0.8 * sum(step["labeled"] for step in losses[:10])


def test_defaults_are_the_published_ones() -> None:
    method = InfoMatch(Answers(3), make_problem())
    weights = method.unlabeled_weight, method.mixed_weight, method.strong_weight, method.agreement_weight
    assert weights == (2.0, 0.5, 0.25, 0.001)
    assert (method.thresholds.momentum, method.fixed_threshold) == (0.999, None)
    assert method.views == (("weak",), ("weak", "strong", "strong"))
    assert method.shared_crop
