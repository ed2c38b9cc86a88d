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
    divergence,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    sharpened,
    soft_gradient,
    softmax,
    told,
)

from epass.errors import InputError
from epass.methods.fixmatch import FixMatch
from epass.methods.refixmatch import ReFixMatch

CLASSES = 4


@pytest.mark.parametrize(("threshold", "temperature", "weight"), [(0.4, 0.5, 1.0), (0.8, 0.5, 1.0), (0.8, 2.0, 3.0)])
def test_losses_are_those_of_the_loops(threshold: float, temperature: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    settings = {"threshold": threshold, "temperature": temperature, "unlabeled_weight": weight}
    method = ReFixMatch(Answers(CLASSES), make_problem(CLASSES), **settings)
    masks = []
    for step in range(4):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        sure = doubtful = 0.0
        for weak_logits, strong_logits in zip(on_weak, on_strong, strict=True):
            probs = softmax(weak_logits)
            masks.append(1.0 if max(probs) >= threshold else 0.0)
            sure += masks[-1] * cross_entropy(hard(probs.index(max(probs)), CLASSES), strong_logits)
            doubtful += (1 - masks[-1]) * divergence(sharpened(weak_logits, temperature), strong_logits)
        assert outcome.pseudo.mask.tolist() == masks[-6:]
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in on_weak]
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(weight * sure / 6, rel=1e-5)
        assert outcome.losses["doubtful"].item() == pytest.approx(weight * doubtful / 6, rel=1e-4)
    assert 0 in masks
    assert 1 in masks


def test_numbers_of_the_common_inputs() -> None:
    """Rows 0 and 2 of three pass 0.8; the other one's divergence was computed apart, in float64."""
    settings = {"threshold": 0.8}
    batch = make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG))
    outcome = ReFixMatch(Answers(3), make_problem(), **settings)(batch)
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.losses["doubtful"].item() == pytest.approx(0.00109554, rel=1e-4)
    as_fixmatch = FixMatch(Answers(3), make_problem(), **settings)(batch)
    assert {name: outcome.losses[name] for name in as_fixmatch.losses} == as_fixmatch.losses


def test_gradients_reach_the_strong_view_only_and_every_row_of_it() -> None:
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = ReFixMatch(Answers(3), make_problem(), threshold=0.8, unlabeled_weight=2.0)
    method(make_batch(x, LABELS, weak, strong)).loss.backward()
    assert not weak.grad.any()
    # A divergence has the gradient of the cross-entropy: the entropy of the target is a constant.
    targets = [hard(0, 3), sharpened(WEAK[1].tolist(), 0.5), hard(1, 3)]
    wanted = torch.tensor(soft_gradient(targets, STRONG.tolist(), [1.0] * 3, 2.0))
    torch.testing.assert_close(strong.grad[:, :3], wanted)


def test_a_prediction_that_is_certain_leaves_the_divergence_finite() -> None:
    weak, strong = torch.tensor([[200.0, 0, -200]]), answers(torch.tensor([[-200.0, 0, 200]])).requires_grad_()
    method = ReFixMatch(Answers(3), make_problem(), threshold=1.1)
    loss = method(make_batch(answers(LABELED), LABELS, answers(weak), strong)).losses["doubtful"]
    loss.backward()
    assert loss.item() == pytest.approx(400)
    assert strong.grad.isfinite().all()


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    ReFixMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = ReFixMatch(Answers(3), make_problem())
    assert (method.threshold, method.temperature, method.unlabeled_weight) == (0.95, 0.5, 1.0)
    assert method.views == (("weak",), ("weak", "strong"))


def test_a_temperature_of_0_is_refused() -> None:
    with pytest.raises(InputError, match="temperature is a number above 0, not 0"):
        ReFixMatch(Answers(3), make_problem(), temperature=0)
