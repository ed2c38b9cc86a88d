from __future__ import annotations

import copy

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
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

from epass.methods.pseudo_label import PseudoLabel

CLASSES = 4


@pytest.mark.parametrize("weight", [1.0, 3.0])
@pytest.mark.parametrize("threshold", [0.4, 0.7, 0.95])
def test_losses_are_those_of_the_loops(threshold: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    problem = make_problem(CLASSES, steps=40)  # the ramp ends after a quarter of them
    method = PseudoLabel(Answers(CLASSES), problem, threshold=threshold, unlabeled_weight=weight, ramp=0.25)
    masks = []
    for step in (0, 1, 5, 10, 39):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak = (random_answers(generator, count, CLASSES, 2) for count in (3, 6))
        outcome = method(make_batch(x, labels, weak, step=step))

        (on_x, _), (on_weak, _) = told(x, CLASSES), told(weak, CLASSES)
        total = 0.0
        for logits in on_weak:
            probs = softmax(logits)
            masks.append(1.0 if max(probs) >= threshold else 0.0)
            total += masks[-1] * cross_entropy(hard(probs.index(max(probs)), CLASSES), logits)
        assert outcome.pseudo.mask.tolist() == masks[-6:]
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in on_weak]
        torch.testing.assert_close(outcome.pseudo.probs, torch.tensor([softmax(row) for row in on_weak]))
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        wanted = weight * min(step / 10, 1) * total / 6
        assert outcome.losses["unlabeled"].item() == pytest.approx(wanted, rel=1e-5)
    assert 0 in masks
    assert 1 in masks


def test_gradients_reach_the_prediction_but_not_the_label() -> None:
    weak = answers(WEAK).requires_grad_()
    method = PseudoLabel(Answers(3), make_problem(), threshold=0.8, unlabeled_weight=2.0)
    method(make_batch(answers(LABELED), LABELS, weak, step=200)).loss.backward()  # half way up the ramp
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], WEAK.tolist(), [1.0, 0.0, 1.0], 1.0)
    torch.testing.assert_close(weak.grad[:, :3], torch.tensor(wanted))


def test_only_labeled_images_move_the_running_statistics() -> None:
    net, (x, weak) = SmallNet(), torch.randn(2, 4, 3, 6, 6)
    alone = copy.deepcopy(net)
    seen = record_inputs(net)
    outcome = PseudoLabel(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak))
    assert len(seen) == 2
    assert torch.equal(seen[0], x)
    assert torch.equal(seen[1], weak)
    alone(x)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, alone.get_buffer(name)), name
    torch.testing.assert_close(outcome.pseudo.probs, alone(weak).logits.softmax(1))  # normalized by its own batch


def test_defaults_are_the_published_ones() -> None:
    method = PseudoLabel(Answers(3), make_problem(steps=1000))
    assert (method.threshold, method.unlabeled_weight, method.ramp_steps) == (0.95, 1.0, 400)
    assert method.views == (("weak",), ("weak",))
