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
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    slow_squared_error,
    slow_squared_error_gradient,
    softmax,
    told,
    train_steps,
)

from epass.errors import InputError
from epass.methods.mean_teacher import MeanTeacher
from epass.methods.pi_model import PiModel
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

CLASSES = 4


def test_conformance_row_4() -> None:
    method = MeanTeacher(Answers(3), make_problem(), unlabeled_weight=1.0, ramp=0.0)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG), step=1))
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.0144857, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)


@pytest.mark.parametrize("weight", [1.0, 50.0])
def test_losses_are_those_of_the_loops(weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    method = MeanTeacher(Answers(CLASSES), make_problem(CLASSES, steps=40), unlabeled_weight=weight, ramp=0.25)
    for step in (0, 1, 5, 10, 39):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, first, second = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, first, second, step=step))

        (on_x, _), (on_first, _), (on_second, _) = (told(view, CLASSES) for view in (x, first, second))
        wanted = weight * min(step / 10, 1) * slow_squared_error(on_second, [softmax(row) for row in on_first])
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(wanted, rel=1e-5)


def test_the_teacher_follows_the_student_and_gives_the_targets() -> None:
    torch.manual_seed(0)
    method = MeanTeacher(SmallNet(), make_problem(), unlabeled_weight=2.0, ramp=0.0, teacher_momentum=0.6)
    step = make_step(method, make_optimizer(method, Plan(steps=9, lr=0.1)), Average(method.net))
    slow = {name: weight.detach().double() for name, weight in method.net.named_parameters()}
    for number in range(4):
        batch = image_batch(number, num_views=2)
        first, second = batch.unlabeled
        student, teacher = copy.deepcopy(method.net), copy.deepcopy(method.net)
        teacher.load_state_dict({name: weight.float() for name, weight in slow.items()}, strict=False)
        difference = student(second).logits.softmax(1) - teacher.train()(first).logits.softmax(1)
        found = step(batch).losses["unlabeled"]
        wanted = 2 * difference.square().mean() if number else torch.zeros(())
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)
        slow = {name: 0.6 * old + 0.4 * method.net.get_parameter(name).detach().double() for name, old in slow.items()}
    for name, weight in method.teacher.module.named_parameters():
        torch.testing.assert_close(weight, slow[name].float())
    assert not torch.allclose(method.teacher.module.head.weight, method.net.head.weight)


def test_without_momentum_the_teacher_is_the_student() -> None:
    # Mean Teacher is then the Pi-Model.
    torch.manual_seed(0)
    net = SmallNet()
    settings = {"unlabeled_weight": 10.0, "ramp": 0.01}
    student = train_steps(PiModel(copy.deepcopy(net), make_problem(), **settings), 5)
    taught = train_steps(MeanTeacher(net, make_problem(), teacher_momentum=0.0, **settings), 5)
    assert taught == student


def test_gradients_reach_the_student_only() -> None:
    first, second = answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = MeanTeacher(Answers(3), make_problem(), unlabeled_weight=3.0)
    method(make_batch(answers(LABELED), LABELS, first, second, step=200)).loss.backward()  # half way up the ramp
    assert first.grad is None
    wanted = slow_squared_error_gradient(STRONG.tolist(), [softmax(row) for row in WEAK.tolist()], 1.5)
    torch.testing.assert_close(second.grad[:, :3], torch.tensor(wanted))


def test_the_published_slip_trains_on_labels_only() -> None:
    # Published code compares the teacher with itself.
    traces = {}
    for compare in ("student", "teacher"):
        torch.manual_seed(0)
        method = MeanTeacher(SmallNet(), make_problem(), ramp=0.0, compare=compare)
        traces[compare] = [losses["unlabeled"] for losses in train_steps(method, 4)]
    assert traces["teacher"] == [0.0] * 4
    assert all(loss > 0 for loss in traces["student"][1:])

    second = answers(STRONG).requires_grad_()
    method = MeanTeacher(Answers(3), make_problem(), ramp=0.0, compare="teacher")
    method(make_batch(answers(LABELED), LABELS, answers(WEAK), second, step=1)).loss.backward()
    assert not second.grad.any()


def test_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'teacher'"):
        MeanTeacher(Answers(3), make_problem(), compare="teachers")  # type: ignore[arg-type]


def test_only_labeled_images_move_the_running_statistics() -> None:
    net, (x, first, second) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    alone, method = copy.deepcopy(net), MeanTeacher(net, make_problem())
    seen, taught = record_inputs(net), record_inputs(method.teacher.module)
    before = copy.deepcopy(method.teacher.state_dict())
    method(make_batch(x, torch.tensor([0, 1, 2, 0]), first, second))
    assert [len(seen), len(taught)] == [2, 1]
    assert torch.equal(taught[0], first)
    assert torch.equal(seen[1], second)
    alone(x)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, alone.get_buffer(name)), name
    assert all(torch.equal(value, before[name]) for name, value in method.teacher.state_dict().items())


def test_defaults_are_the_published_ones() -> None:
    method = MeanTeacher(Answers(3), make_problem(steps=1000))
    assert (method.unlabeled_weight, method.ramp_steps, method.teacher.momentum) == (50.0, 400, 0.999)
    assert method.views == (("weak",), ("weak", "weak"))
