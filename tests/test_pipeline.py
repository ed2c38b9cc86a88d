"""What the loop is given: on CUDA one recorded graph, compiled where that pays, that does what the plain step does."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epass.engine import build as build_module
from epass.engine.build import Experiment, build
from epass.engine.timing import seconds_per_step
from epass.errors import ContractError
from epass.method import Outcome, Problem
from epass.methods import METHODS
from epass.methods.fixmatch import FixMatch
from epass.recipe import read_recipe
from epass.testing import difference, named
from epass.training.optimizer import set_lr
from epass.training.step import make_step


def make(device: str, method: str = "simmatch", **settings: Any) -> Experiment:
    own = {"method.threshold": 0.4} if "threshold" in inspect.signature(METHODS[method]).parameters else {}
    plan = {"plan.steps": 200, "plan.precision": "float32", "plan.compile": "off"}
    return build(read_recipe(f"digits-{method}").with_settings(plan | own | settings), torch.device(device))


def follow(experiment: Experiment, step_fn: Any, feed: Any, steps: int) -> Iterator[Outcome]:
    for step in range(steps):
        set_lr(experiment.optimizer, experiment.plan.lr * experiment.plan.lr_factor(step))
        yield step_fn(feed(step))


def test_the_estimate_and_the_run_share_one_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Experiment.make_pipeline
    monkeypatch.setattr(Experiment, "make_pipeline", lambda self: made.append(self) or original(self))
    experiment = make("cpu")
    seconds_per_step(experiment, patience=0.01)
    assert experiment.pipeline is experiment.pipeline
    assert made == [experiment]


def test_a_failed_compilation_is_one_warning_and_an_eager_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def captured(self: Experiment, *, compiled: bool) -> tuple[str, str]:
        tried.append(compiled)
        if compiled:
            raise RuntimeError("no C compiler\nand a long story")
        return "eager step", "eager feed"

    monkeypatch.setattr(Experiment, "captured", captured)
    experiment = make("cpu", **{"plan.compile": "on"})
    with pytest.warns(UserWarning, match=r"^Compiling failed \(no C compiler\); going on without it, more slowly\.$"):
        pipeline = replace(experiment, device=torch.device("cuda")).make_pipeline()
    assert pipeline == ("eager step", "eager feed")
    assert tried == [True, False]


def test_all_of_several_processes_compile_or_none_does(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    monkeypatch.setattr(
        Experiment, "captured", lambda self, *, compiled: ("compiled", "") if compiled else ("eager", "")
    )
    monkeypatch.setattr(build_module, "largest_over_ranks", lambda failed: said.append(failed) or 1.0)
    experiment = replace(make("cpu", **{"plan.compile": "on"}), device=torch.device("cuda"))
    with pytest.warns(UserWarning, match=r"^Compiling failed \(in another process\); going on without it"):
        assert experiment.make_pipeline() == ("eager", "")
    monkeypatch.setattr(build_module, "largest_over_ranks", lambda failed: said.append(failed) or 0.0)
    assert experiment.make_pipeline() == ("compiled", "")
    assert said == [False, False]


class Replaces(FixMatch):
    """Assigns a buffer in `update`."""

    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.register_buffer("steps", torch.zeros(()))

    def update(self, memory: dict[str, Tensor]) -> None:
        self.steps = self.steps + 1


def test_state_that_a_recorded_step_would_not_see_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(work: Any, example: Any, **_: object) -> Any:
        work(example)
        return work

    monkeypatch.setattr(build_module, "Recorded", recorded)
    monkeypatch.setattr(build_module, "Overlap", lambda *_: SimpleNamespace(step=None, feed=None))
    make("cpu", "flexmatch").captured(compiled=False)
    monkeypatch.setitem(METHODS, "fixmatch", Replaces)
    with pytest.raises(ContractError, match=r"^Replaces puts other tensors in the place of method\.steps: write into"):
        make("cpu", "fixmatch", **{"method.threshold": None}).captured(compiled=False)


def test_too_little_memory_is_not_taken_for_a_failed_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(self: Experiment, *, compiled: bool) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Experiment, "captured", captured)
    with pytest.raises(torch.OutOfMemoryError):
        replace(make("cpu", **{"plan.compile": "on"}), device=torch.device("cuda")).make_pipeline()


@pytest.mark.gpu
@pytest.mark.usefixtures("full_float32")
@pytest.mark.parametrize("method", METHODS)
def test_the_recorded_pipeline_trains_as_the_plain_one_does(method: str) -> None:
    # Selection, draws, gathering, augmentation, step, memory and average in one graph, against the same one by one.
    settings = {"plan.lr": 0.003}
    plain, recorded = make("cuda", method, **settings), make("cuda", method, **settings)
    step = make_step(plain.method, plain.optimizer, plain.average)
    runs = [follow(plain, step, plain.batch, 20), follow(recorded, *recorded.pipeline, 20)]
    for number, (wanted, found) in enumerate(zip(*runs, strict=True)):
        # The same kernels, up to which of them cuDNN finds fastest: equal but for rounding, which training amplifies.
        assert difference(named(wanted), named(found), 1e-4) is None, number
    assert difference(plain.progress.tensors(), recorded.progress.tensors(), 1e-3) is None


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_the_compiled_pipeline_stays_close_to_the_plain_one(method: str) -> None:
    settings = {"plan.lr": 0.003}
    plain, compiled = make("cuda", method, **settings), make("cuda", method, **settings, **{"plan.compile": "on"})
    step = make_step(plain.method, plain.optimizer, plain.average)
    runs = [follow(plain, step, plain.batch, 6), follow(compiled, *compiled.pipeline, 6)]
    for number, (wanted, found) in enumerate(zip(*runs, strict=True)):
        assert difference(wanted.losses, found.losses, 0.02) is None, number


@pytest.mark.gpu
def test_ten_thousand_steps_take_no_more_memory_than_one_thousand() -> None:
    experiment = make("cuda", **{"plan.steps": 10_000, "plan.labeled_batch": 8})
    held = []
    for number, _ in enumerate(follow(experiment, *experiment.pipeline, 10_000)):
        if number in (999, 9_999):
            held.append(torch.cuda.memory_allocated())
    assert held[1] <= held[0]


@pytest.mark.slow
def test_a_thousand_steps_take_no_more_tensors_than_a_hundred() -> None:
    experiment = make("cpu", **{"plan.steps": 1000, "plan.labeled_batch": 4, "plan.unlabeled_ratio": 1, "net.width": 2})
    counts = []
    for number, _ in enumerate(follow(experiment, *experiment.pipeline, 1000)):
        if number in (99, 999):
            gc.collect()
            counts.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))
    assert counts[1] <= counts[0] + 2  # whatever of the last step is still alive
