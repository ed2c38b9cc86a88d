from __future__ import annotations

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
    STRONG,
    WEAK,
    Answers,
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

from epass.methods.fixmatch import FixMatch

CLASSES = 4


def test_row_2_fixmatch_mask_and_loss() -> None:
    method = FixMatch(Answers(3), make_problem(), threshold=0.8)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.pseudo.labels.tolist() == [0, 0, 1]
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.256908, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)


@pytest.mark.parametrize("weight", [1.0, 10.0])
@pytest.mark.parametrize("threshold", [0.4, 0.7, 0.95])
def test_losses_are_those_of_the_loops(threshold: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    method = FixMatch(Answers(CLASSES), make_problem(CLASSES), threshold=threshold, unlabeled_weight=weight)
    masks = []
    for step in range(4):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        total = 0.0
        for weak_logits, strong_logits in zip(on_weak, on_strong, strict=True):
            probs = softmax(weak_logits)
            masks.append(1.0 if max(probs) >= threshold else 0.0)
            total += masks[-1] * cross_entropy(hard(probs.index(max(probs)), CLASSES), strong_logits)
        assert outcome.pseudo.mask.tolist() == masks[-6:]
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(weight * total / 6, rel=1e-5)
    assert 0 in masks
    assert 1 in masks


def test_gradients_reach_the_strong_view_only() -> None:
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = FixMatch(Answers(3), make_problem(), threshold=0.8, unlabeled_weight=2.0)
    method(make_batch(x, LABELS, weak, strong)).loss.backward()
    assert not weak.grad.any()
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], STRONG.tolist(), [1.0, 0.0, 1.0], 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    FixMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = FixMatch(Answers(3), make_problem())
    assert (method.threshold, method.unlabeled_weight) == (0.95, 1.0)
    assert method.views == (("weak",), ("weak", "strong"))
