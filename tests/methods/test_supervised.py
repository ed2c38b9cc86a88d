from __future__ import annotations

import math

import pytest
import torch
from problems import LABELED, LABELS, Answers, SmallNet, answers, labeled_loss, make_batch, make_problem, record_inputs

from epass.methods.fully_supervised import FullySupervised
from epass.methods.supervised import Supervised
from epass.training.schedule import Plan


def test_row_1_supervised_cross_entropy() -> None:
    outcome = Supervised(Answers(3), make_problem())(make_batch(answers(LABELED), LABELS))
    assert set(outcome.losses) == {"labeled"}
    assert outcome.loss.item() == pytest.approx(0.479525, rel=1e-4)


@pytest.mark.parametrize(
    ("steps", "warmup_steps"), [(2**20, 0), (262_144, 0), (204_800, 5120), (1000, 0)], ids=lambda value: str(value)
)
def test_row_17_learning_rate_factor_at_the_end(steps: int, warmup_steps: int) -> None:
    plan = Plan(steps=steps, warmup_steps=warmup_steps)
    assert plan.lr_factor(steps) == pytest.approx(0.195090, rel=1e-4)
    assert plan.lr_factor(warmup_steps) == 1.0


def test_learning_rate_rises_linearly_from_zero_and_then_follows_the_cosine() -> None:
    plan = Plan(steps=300, warmup_steps=100)
    for step in range(300):
        wanted = step / 100 if step < 100 else math.cos(7 * math.pi / 16 * (step - 100) / 200)
        assert plan.lr_factor(step) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("method", [Supervised, FullySupervised])
def test_loss_and_gradient_are_those_of_the_loops(method: type[Supervised]) -> None:
    logits = 2 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels, images = [3, 0, 0, 2, 1], answers(logits).requires_grad_()
    outcome = method(Answers(4), make_problem(4))(make_batch(images, torch.tensor(labels)))
    assert outcome.loss.item() == pytest.approx(labeled_loss(logits.tolist(), labels), rel=1e-5)
    outcome.loss.backward()
    wanted = (logits.softmax(1) - torch.eye(4)[labels]) / 5
    torch.testing.assert_close(images.grad[:, :4], wanted)


def test_unlabeled_images_are_not_looked_at() -> None:
    net = SmallNet()
    seen = record_inputs(net)
    images = torch.randn(4, 3, 6, 6)
    outcome = Supervised(net, make_problem())(make_batch(images, torch.tensor([0, 1, 2, 0])))
    assert len(seen) == 1
    assert torch.equal(seen[0], images)
    assert outcome.pseudo is None
    assert outcome.memory == {}


def test_only_fully_supervised_asks_for_every_label() -> None:
    assert FullySupervised.all_labels
    assert not Supervised.all_labels
    assert Supervised.views.unlabeled == FullySupervised.views.unlabeled == ()
