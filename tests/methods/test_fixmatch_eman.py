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
    cross_entropy,
    hard,
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    record_inputs,
    soft_gradient,
    softmax,
    train_steps,
)
from torch import nn

from epass.methods.fixmatch_eman import FixMatchEMAN


def taught(**settings: object) -> FixMatchEMAN:
    """A method whose teacher differs from its student in every weight and every statistic."""
    torch.manual_seed(5)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    method = FixMatchEMAN(SmallNet(), problem, **settings)
    with torch.no_grad():
        for weight in method.teacher.parameters():
            weight.add_(torch.randn_like(weight))
        norm = method.teacher.module.backbone.norm
        norm.running_mean.add_(torch.randn_like(norm.running_mean))
        norm.running_var.mul_(1 + torch.rand_like(norm.running_var))
    return method.train()


def test_conformance_row_2_of_fixmatch_when_teacher_and_student_agree() -> None:
    weak, strong = answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = FixMatchEMAN(Answers(3), make_problem(), threshold=0.8, unlabeled_weight=2.0)
    outcome = method(make_batch(answers(LABELED), LABELS, weak, strong))
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.pseudo.labels.tolist() == [0, 0, 1]
    assert outcome.losses["unlabeled"].item() == pytest.approx(2 * 0.256908, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)
    outcome.loss.backward()
    assert weak.grad is None
    wanted = soft_gradient([hard(0, 3), hard(0, 3), hard(1, 3)], STRONG.tolist(), [1.0, 0.0, 1.0], 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))


def test_losses_are_those_of_the_loops_over_several_steps() -> None:
    method, masks = taught(threshold=0.7, unlabeled_weight=0.6, teacher_momentum=0.6), []
    for step in range(4):
        batch = image_batch(step, num_views=2)
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        # The teacher in evaluation mode: running statistics, so an image alone is told the same as in a batch.
        teacher = copy.deepcopy(method.teacher.module)
        assert not any(module.training for module in teacher.modules())
        student = copy.deepcopy(method.net).train()
        on_both = student(torch.cat([x, strong])).logits.tolist()
        total = 0.0
        for image, strong_logits in zip(weak, on_both[6:], strict=True):
            probs = softmax(teacher(image[None]).logits[0].tolist())
            masks.append(1.0 if max(probs) >= 0.7 else 0.0)
            total += masks[-1] * cross_entropy(hard(probs.index(max(probs)), 3), strong_logits)
        outcome = method(batch)
        assert outcome.pseudo.mask.tolist() == masks[-9:]
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_both[:6], batch.labels.tolist()), 1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.6 * total / 9, rel=1e-4)

        before = {name: value.clone() for name, value in method.teacher.module.state_dict().items()}
        method.update(outcome.memory)
        live = method.net.state_dict()
        for name, value in method.teacher.module.state_dict().items():
            # All numbers are averaged, running statistics included; the counter is copied.
            wanted = 0.6 * before[name] + 0.4 * live[name] if value.is_floating_point() else live[name]
            torch.testing.assert_close(value, wanted)
            assert name == "backbone.norm.num_batches_tracked" or not torch.equal(value, live[name])
    assert set(masks) == {0, 1}


def test_the_teacher_sees_weak_views_and_the_student_the_others() -> None:
    method, batch = taught(), image_batch(0, num_views=2)
    (x,), (weak, strong) = batch.labeled, batch.unlabeled
    by_student, by_teacher = record_inputs(method.net), record_inputs(method.teacher.module)
    method(batch)
    assert [len(by_student), len(by_teacher)] == [1, 1]
    assert torch.equal(by_student[0], torch.cat([x, strong]))
    assert torch.equal(by_teacher[0], weak)


def test_the_teacher_is_not_trained_and_follows_the_weights_that_have_moved() -> None:
    torch.manual_seed(0)
    method = FixMatchEMAN(SmallNet(), make_problem(num_labeled=8), threshold=0.3, teacher_momentum=0.0).train()
    assert not any(parameter.requires_grad for parameter in method.teacher.parameters())
    start = copy.deepcopy(method.teacher.module.state_dict())
    train_steps(method, 2)
    moved, live = method.teacher.module.state_dict(), method.net.state_dict()
    assert all(torch.equal(moved[name], live[name]) for name in live)  # momentum 0: the student after its step
    assert not torch.equal(moved["backbone.conv.weight"], start["backbone.conv.weight"])
    assert isinstance(method.teacher.module.backbone.norm, nn.BatchNorm2d)
    assert not method.train().teacher.module.backbone.norm.training


def test_defaults_are_the_published_ones() -> None:
    method = FixMatchEMAN(Answers(3), make_problem())
    assert (method.threshold, method.unlabeled_weight, method.teacher.momentum) == (0.7, 10.0, 0.999)
    assert method.views == (("weak",), ("weak", "strong"))
