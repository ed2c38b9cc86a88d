from __future__ import annotations

import copy

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
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    slow_squared_error,
    slow_squared_error_gradient,
    softmax,
    told,
)

from epass.methods.pi_model import PiModel

CLASSES = 4


def test_conformance_row_4() -> None:
    method = PiModel(Answers(3), make_problem(), unlabeled_weight=1.0, ramp=0.0)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG), step=1))
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.0144857, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_losses_are_those_of_the_loops(weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    method = PiModel(Answers(CLASSES), make_problem(CLASSES, steps=40), unlabeled_weight=weight, ramp=0.25)
    for step in (0, 1, 5, 10, 39):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, first, second = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, first, second, step=step))

        (on_x, _), (on_first, _), (on_second, _) = (told(view, CLASSES) for view in (x, first, second))
        wanted = weight * min(step / 10, 1) * slow_squared_error(on_second, [softmax(row) for row in on_first])
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(wanted, rel=1e-5)
        assert outcome.pseudo is None


def test_gradients_reach_the_second_view_only() -> None:
    first, second = answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = PiModel(Answers(3), make_problem(), unlabeled_weight=3.0)
    method(make_batch(answers(LABELED), LABELS, first, second, step=200)).loss.backward()  # half way up the ramp
    assert first.grad is None
    wanted = slow_squared_error_gradient(STRONG.tolist(), [softmax(row) for row in WEAK.tolist()], 1.5)
    torch.testing.assert_close(second.grad[:, :3], torch.tensor(wanted))


def test_views_pass_one_by_one_and_only_labeled_images_move_the_running_statistics() -> None:
    net, (x, first, second) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    alone = copy.deepcopy(net)
    seen = record_inputs(net)
    outcome = PiModel(net, make_problem(), ramp=0.0)(make_batch(x, torch.tensor([0, 1, 2, 0]), first, second, step=1))
    assert len(seen) == 3
    assert all(torch.equal(images, view) for images, view in zip(seen, (x, first, second), strict=True))
    alone(x)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, alone.get_buffer(name)), name
    difference = alone(second).logits.softmax(1) - alone(first).logits.softmax(1)  # each normalized by its own batch
    torch.testing.assert_close(outcome.losses["unlabeled"], 10 * difference.square().mean())


def test_defaults_are_the_published_ones() -> None:
    method = PiModel(Answers(3), make_problem(steps=1000))
    assert (method.unlabeled_weight, method.ramp_steps) == (10.0, 400)
    assert method.views == (("weak",), ("weak", "weak"))
