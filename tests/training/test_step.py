from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from epass.method import Batch, Method, Outcome, PseudoLabels, Views
from epass.methods import METHODS
from epass.parts.teacher import Average
from epass.testing import Case, difference, named
from epass.training import step as step_module
from epass.training.checkpoint import RunState
from epass.training.optimizer import make_optimizer, set_lr
from epass.training.recording import Recorded, kept
from epass.training.schedule import Plan
from epass.training.step import make_step, observe


class Line(Method):
    """One weight, pulled towards the labels; its memory is what the weight was in `forward`."""

    views = Views(labeled=("weak",), unlabeled=())

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False))
        nn.init.ones_(self.net.weight)
        self.register_buffer("seen", torch.zeros(()))
        self.log: list[tuple[str, float, float]] = []

    def forward(self, batch: Batch) -> Outcome:
        loss = (self.net(batch.labeled[0]) - batch.labels[:, None]).square().mean()
        return Outcome({"fit": loss}, {"weight": self.net.weight.detach().sum()}, {"seen": batch.step.float()})

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.log.append(("update", self.net.weight.item(), self.seen.item()))
        self.seen.copy_(memory["seen"])


class Follower(Average):
    log: list[tuple[str, float, float]]
    method: Line

    def follow(self, module: nn.Module) -> None:
        self.log.append(("average", module.weight.item(), self.method.seen.item()))
        super().follow(module)


def line_batch(step: int = 5) -> Batch:
    nothing = torch.empty(0, dtype=torch.int64)
    images, labels = torch.tensor([[1.0], [2.0]]), torch.tensor([3, 6])
    return Batch((images,), labels, (), torch.arange(2), nothing, nothing, torch.tensor(step), torch.tensor(0))


def test_weights_move_then_memory_is_written_then_the_average_follows() -> None:
    method = Line()
    average = Follower(method.net, 0.75)
    average.log, average.__dict__["method"] = method.log, method  # not as a submodule
    step = make_step(method, torch.optim.SGD(method.net.parameters(), lr=0.1), average)
    step(line_batch())
    # mean of (w - 3)^2 and (2w - 6)^2: slope 5 (w - 3) = -10 at w = 1
    moved = 1 + 0.1 * 10
    assert method.log == [("update", moved, 0.0), ("average", moved, 5.0)]
    assert average.module.weight.item() == 0.75 * 1 + 0.25 * moved


def test_gradients_do_not_add_up_from_step_to_step() -> None:
    method = Line()
    step = make_step(method, torch.optim.SGD(method.net.parameters(), lr=0.1), Average(method.net))
    step(line_batch())
    step(line_batch())
    assert method.net.weight.item() == pytest.approx(2 + 0.1 * 5 * (3 - 2))
    assert method.net.weight.grad is None


def test_outcome_is_detached_and_has_the_metrics() -> None:
    method = Line()
    outcome = make_step(method, torch.optim.SGD(method.net.parameters(), lr=0.1), Average(method.net))(line_batch())
    assert outcome.losses["fit"].item() == 10.0  # before the step, and itself
    assert outcome.metrics["weight"].item() == 1.0
    assert not any(value.requires_grad for value in named(outcome).values())
    assert set(named(outcome)) == {"losses['fit']", "metrics['weight']"}


class Doubled(nn.Module):
    """Another form of what is computed, as `torch.compile` makes one: it even refuses to be measured."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def __len__(self) -> int:
        raise TypeError("Line does not support len()")

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor], Outcome]:
        loss, memory, told = self.objective(batch)
        return 2 * loss, memory, told._replace(losses={"fit": 2 * told.losses["fit"]})


def test_what_is_compiled_computes_the_outcome_and_the_method_remembers() -> None:
    method = Line()
    optimizer = torch.optim.SGD(method.net.parameters(), lr=0.1)
    step = make_step(method, optimizer, Average(method.net), compiler=Doubled)
    assert step(line_batch()).losses["fit"].item() == 20.0
    assert method.net.weight.item() == 3.0
    assert method.seen.item() == 5.0


def test_gradients_are_averaged_either_in_what_is_compiled_or_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    averaged: list[str] = []
    monkeypatch.setattr(step_module, "averaging", lambda module: averaged.append("inside") or module)
    monkeypatch.setattr(
        step_module, "differentiate", lambda loss, weights: averaged.append("beside") or loss.backward()
    )
    for compiler, way in ((None, "beside"), (lambda module: module, "inside")):
        method = Line()
        optimizer = torch.optim.SGD(method.net.parameters(), lr=0.1)
        make_step(method, optimizer, Average(method.net), compiler=compiler)(line_batch())
        assert averaged == [way]
        assert method.net.weight.item() == 2.0
        averaged.clear()


def test_a_compiler_gets_all_that_can_be_one_graph_and_one_thing_to_differentiate() -> None:
    case, found = Case(METHODS["fixmatch"], {"threshold": 0.1}), []
    progress, _ = case.start()

    def compiler(objective: nn.Module) -> nn.Module:
        objective.register_forward_hook(lambda module, given, made: found.append(made))
        return objective

    make_step(progress.method, progress.optimizer, progress.average, compiler=compiler)(case.batch(0))
    ((loss, memory, told),) = found
    assert loss.item() == pytest.approx(sum(part.item() for part in told.losses.values()))
    assert {"coverage", "used_known", "used_right", "used_by_class"} <= set(told.metrics)
    assert loss.requires_grad
    assert not any(value.requires_grad for value in tree_leaves((memory, told)) if isinstance(value, Tensor))


def test_observe_counts_what_is_used_known_and_right() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    mask = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0])  # used: 0, 1, 3, 5, 6
    truth = torch.tensor([0, 2, 2, -1, 1, 2, -1, -1])  # of the used known: 0, 1, 5; right: 0, 5
    observed = {name: value.item() for name, value in observe(PseudoLabels(labels, mask), truth).items()}
    assert observed == {"coverage": 5 / 8, "used_known": 3 / 8, "used_right": 2 / 8}


def test_observe_counts_by_the_class_that_is_named() -> None:
    generator = torch.Generator().manual_seed(0)
    count, classes = 50, 4
    labels = torch.randint(classes, (count,), generator=generator)
    truth = torch.randint(-1, classes, (count,), generator=generator)
    mask = torch.rand(count, generator=generator) * torch.randint(2, (count,), generator=generator)
    wanted = {f"{name}_by_class": [0.0] * classes for name in ("used", "known", "right", "images")}
    for label, true, weight in zip(labels.tolist(), truth.tolist(), mask.tolist(), strict=True):
        if true >= 0:
            wanted["images_by_class"][true] += 1 / count
        if weight > 0:
            wanted["used_by_class"][label] += 1 / count
            wanted["known_by_class"][label] += (true >= 0) / count
            wanted["right_by_class"][label] += (true == label) / count
    observed = observe(PseudoLabels(labels, mask, torch.zeros(count, classes)), truth)
    for name, values in wanted.items():
        assert observed[name].tolist() == pytest.approx(values)
    assert float(observed["used_by_class"].sum()) == pytest.approx(float(observed["coverage"]))


def test_of_too_many_classes_none_is_counted_on_its_own() -> None:
    few, many = (PseudoLabels(torch.zeros(2).long(), torch.ones(2), torch.zeros(2, size)) for size in (100, 101))
    truth = torch.zeros(2).long()
    assert set(observe(few, truth)) > set(observe(many, truth)) == {"coverage", "used_known", "used_right"}


def test_an_unknown_truth_is_never_right() -> None:
    observed = observe(PseudoLabels(torch.tensor([-1, 0]), torch.ones(2)), torch.tensor([-1, -1]))
    assert (observed["used_known"], observed["used_right"]) == (0.0, 0.0)


def test_nothing_is_observed_without_pseudo_labels() -> None:
    assert observe(None, torch.empty(0)) == {}


def test_step_reports_what_it_observes() -> None:
    case = Case(METHODS["fixmatch"], {"threshold": 0.0})
    _, step = case.start()
    batch = case.batch(0)
    outcome = step(batch)
    assert outcome.metrics["coverage"] == 1.0
    assert outcome.metrics["used_known"] == (batch.unlabeled_truth >= 0).float().mean()


@pytest.mark.gpu
@pytest.mark.usefixtures("full_float32")
@pytest.mark.parametrize("optimizer_name", ["sgd", "adamw"])
@pytest.mark.parametrize("name", METHODS)
def test_captured_step_does_what_the_eager_one_does(name: str, optimizer_name: str) -> None:
    case = Case(METHODS[name], {"threshold": 0.4} if "threshold" in inspect.signature(METHODS[name]).parameters else {})
    plan = Plan(steps=6, optimizer=optimizer_name, lr=0.01)

    def start():
        method = case.build().cuda()
        progress = RunState(method, Average(method.net, 0.9), make_optimizer(method, plan))
        return progress, make_step(method, progress.optimizer, progress.average)

    def batch(position: int) -> Batch:
        return torch.utils._pytree.tree_map(Tensor.cuda, case.batch(position))

    (eager, eager_step), (progress, step) = start(), start()
    before = {key: value.clone() for key, value in progress.tensors().items()}
    captured = Recorded(step, batch(0), state=list(progress.tensors().values()))
    assert difference(before, progress.tensors()) is None
    for position in range(6):
        for each in (eager, progress):
            set_lr(each.optimizer, plan.lr / (1 + position))  # a captured step follows the schedule
        wanted, found = eager_step(batch(position)), captured(batch(position))
        assert difference(named(wanted), named(found), 1e-4) is None
    assert difference(eager.tensors(), progress.tensors(), 1e-4) is None


@pytest.mark.parametrize("device", [None, "cpu"])
def test_state_is_put_back_even_when_the_work_fails(device: str | None) -> None:
    weight, count = torch.ones(3, requires_grad=True), torch.tensor(4)

    def fail() -> None:
        with kept([weight, count], device), torch.no_grad():
            weight.mul_(2)
            count.add_(1)
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert weight.tolist() == [1.0, 1.0, 1.0]
    assert weight.requires_grad
    assert count.item() == 4
