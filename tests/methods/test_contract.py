from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass.errors import InputError
from epass.machine.distributed import alone, mean_over_ranks
from epass.method import Batch, Method, Outcome, Problem, PseudoLabels, Views, Wrapper, made
from epass.methods import METHODS
from epass.methods.abc_wrapper import ABC
from epass.methods.adamatch import AdaMatch
from epass.methods.comatch import CoMatch
from epass.methods.dash import Dash
from epass.methods.fixmatch import FixMatch
from epass.methods.flexmatch import FlexMatch
from epass.methods.freematch import FreeMatch
from epass.methods.infomatch import InfoMatch
from epass.methods.iomatch import IOMatch
from epass.methods.mean_teacher import MeanTeacher
from epass.methods.mix_wrapper import Mix
from epass.methods.moco import MoCo
from epass.methods.remixmatch import ReMixMatch
from epass.methods.rotnet import RotNet
from epass.methods.sequencematch import SequenceMatch
from epass.methods.shrink_wrapper import Shrink
from epass.methods.shrinkmatch import ShrinkMatch
from epass.methods.simmatch import SimMatch
from epass.methods.simmatchv2 import SimMatchV2
from epass.methods.softmatch import SoftMatch
from epass.methods.supervised import Supervised
from epass.methods.uda import UDA
from epass.networks.classifier import predict_jointly
from epass.testing import (
    CHECKS,
    LATE,
    PROBLEM,
    Case,
    check_method,
    compare_compiled_replicas,
    compare_replicas,
    difference,
    named,
    snapshot,
)


def every_case() -> dict[str, Case]:
    cases = {}
    for name, method in METHODS.items():
        parameters = inspect.signature(method).parameters
        # A threshold that the untrained network passes now and then, or the unlabeled loss would be 0 throughout.
        arguments = {"threshold": 0.4} if "threshold" in parameters else {}
        if "projector" in parameters:
            cases |= {f"{name}-{size}": Case(method, arguments, {"size": size}) for size in (1, 3)}
        else:
            cases[name] = Case(method, arguments)
    cases["simmatch-average"] = Case(SimMatch, {"threshold": 0.4, "teacher": "average"}, {"size": 2})
    cases["simmatch-concat"] = Case(
        SimMatch, {"threshold": 0.4, "bank_normalization": "batch"}, {"size": 3, "combine": "concat"}
    )
    cases["mean_teacher-teacher"] = Case(MeanTeacher, {"compare": "teacher"})
    # 50 rows are overrun in the second step, in which 30 rows start at 30.
    ring = {"threshold": 0.4, "queue_overrun": "skip", "smooth_after": "or", "queue_size": 50}
    cases["comatch-skip-or"] = Case(CoMatch, ring, {"size": 3, "combine": "concat"})
    paper = {"threshold": 0.4, "graph": "paper", "edge_threshold": 0.1, "queue_size": 18}
    cases["comatch-paper"] = Case(CoMatch, paper, {"size": 2})
    cases["remixmatch-no-rotation"] = Case(ReMixMatch, {"rotation_weight": 0.0})
    # Statistics that move within a few steps, so that thresholds close and weights fall.
    cases["freematch-quantile"] = Case(FreeMatch, {"statistics_momentum": 0.2, "quantile": 0.8, "fairness_weight": 1.0})
    cases["freematch-ceiling"] = Case(FreeMatch, {"statistics_momentum": 0.2, "highest_threshold": 0.4})
    cases["infomatch-moving"] = Case(InfoMatch, {"statistics_momentum": 0.2, "agreement_weight": 1.0})
    cases["infomatch-fixed"] = Case(InfoMatch, {"fixed_threshold": 0.4})
    # AdaMatch's threshold is relative to the confidence on labeled images: 0.4 of that is always passed.
    cases["adamatch-strict"] = Case(AdaMatch, {"threshold": 1.0, "alignment_momentum": 0.2})
    cases["softmatch-moving"] = Case(SoftMatch, {"statistics_momentum": 0.2})
    for annealing in ("linear", "exp", "log"):
        cases[f"uda-{annealing}"] = Case(UDA, {"threshold": 0.4, "annealing": annealing})
    # The first step is measured, or the last of the warm-up; late ones come after a decay to above the floor or to it.
    dash = {"warmup_steps": 2, "decay_steps": LATE, "slack": 1.2}
    cases["dash-soft"] = Case(Dash, dash)
    cases["dash-trained"] = Case(Dash, dash | {"initial_loss": "trained"})
    cases["dash-hard"] = Case(Dash, dash | {"initial_loss": 1.1, "lowest_loss": 0.9})
    cases["flexmatch-no-warmup"] = Case(FlexMatch, {"threshold": 0.5, "threshold_warmup": False})
    sequence = {"threshold": 0.4, "class_thresholds": False, "doubtful_weight": 1.0}
    cases["sequencematch-plain"] = Case(SequenceMatch, sequence)
    # The ring of 18 rows is full after one step.
    ring = {"threshold": 0.4, "ring_rows": "all", "ring_batches": 1, "align_with": "present", "neighbors": 2}
    cases["simmatchv2-all"] = Case(SimMatchV2, ring, {"size": 3, "combine": "concat"})
    cases["iomatch-not-aligned"] = Case(IOMatch, {"threshold": 0.4, "align": False}, {"size": 2})
    # 50 rows are no multiple of a batch of 18.
    cases |= {f"moco-{size}": Case(MoCo, {"queue_size": 50}, {"size": size}) for size in (1, 3)}
    cases["moco-eman"] = Case(MoCo, {"queue_size": 50, "key": "eman"}, {"size": 3, "combine": "concat"})
    cases["rotnet"] = Case(RotNet, {})
    for name, arguments in SHRINKMATCH.items():
        cases[f"shrinkmatch-{name}"] = Case(ShrinkMatch, {"threshold": 0.4, **arguments})
    return cases | wrapped_cases()


# As published for other data sets, and with the slip of the code for CIFAR.
SHRINKMATCH = {
    "stl10": {"target": "hard", "alignment": "average", "ranking": "logits", "head_norm": "all"},
    "svhn": {"target": "hard", "alignment": "none", "head_norm": "all"},
    "restarts": {"restart_steps": 2},
}


def long_tailed(wrapper: Callable[..., Method], method: Method, problem: Problem, **arguments: object) -> Method:
    """A wrapper that is told of few labels in the last classes, so that ABC has something to leave out."""
    return wrapper(method, replace(problem, label_counts=(4, 2, 1)), **arguments)


def wrapped_cases() -> dict[str, Case]:
    abc, sure = partial(long_tailed, ABC, threshold=0.36), {"threshold": 0.4}
    return {
        "abc-fixmatch": Case(FixMatch, sure, wrap=abc),
        "abc-comatch": Case(CoMatch, sure, {"size": 1}, wrap=abc),
        "abc-simmatch-1": Case(SimMatch, sure, {"size": 1}, wrap=abc),
        "abc-simmatch-3": Case(SimMatch, sure, {"size": 3}, wrap=abc),
        "abc-simmatch-embedding": Case(SimMatch, sure, {"size": 3}, wrap=partial(abc, feature="embedding")),
        "mix-fixmatch": Case(FixMatch, sure, wrap=Mix),
        "mix-comatch": Case(CoMatch, sure, {"size": 1}, wrap=Mix),
        "mix-simmatch-3": Case(SimMatch, sure, {"size": 3}, wrap=Mix),
        "shrink-fixmatch": Case(FixMatch, sure, wrap=Shrink),
        "shrink-comatch": Case(CoMatch, sure, {"size": 1}, wrap=Shrink),
        "shrink-simmatch-3": Case(SimMatch, sure, {"size": 3}, wrap=Shrink),
        "abc-shrink-simmatch-3": Case(SimMatch, sure, {"size": 3}, wrap=both),
    }


def both(method: Method, problem: Problem) -> Method:
    return long_tailed(ABC, Shrink(method, problem), problem, threshold=0.36)


CASES = every_case()
# One case of every method, with three projectors where it has any, and the wrappers: what is traced differs little.
COMPILED = [name for name in CASES if "-" not in name or name.endswith("-3")]
KEPT = [(case, check) for case in CASES for check in CHECKS if check != "compiled"]
# Of every method and wrapper one case on vectors: what is new there are the shapes, and settings do not change these.
# Rotations need pixels.
VECTORS = {
    name: replace(CASES[name], vectors=True)
    for name in [*(name for name in COMPILED if name not in ("remixmatch", "rotnet")), "remixmatch-no-rotation"]
}
KEPT_ON_VECTORS = [(case, check) for case in VECTORS for check in CHECKS if check != "compiled"]


def test_every_method_and_wrapper_is_compiled() -> None:
    assert {CASES[name].method for name in COMPILED} == {case.method for case in CASES.values()}
    wrappers = [module for name in COMPILED for module in CASES[name].build().modules()]
    assert {ABC, Mix, Shrink} <= {type(module) for module in wrappers}


@pytest.mark.parametrize(
    ("case", "check"), [*KEPT, *(pytest.param(name, "compiled", marks=pytest.mark.slow) for name in COMPILED)]
)
def test_method_keeps_the_contract(case: str, check: str) -> None:
    CHECKS[check](CASES[case])


@pytest.mark.parametrize(
    ("case", "check"), [*KEPT_ON_VECTORS, pytest.param("abc-simmatch-3", "compiled", marks=pytest.mark.slow)]
)
def test_method_keeps_the_contract_on_vectors(case: str, check: str) -> None:
    CHECKS[check](VECTORS[case])


def test_every_method_and_wrapper_is_checked_on_vectors() -> None:
    assert {case.method for case in VECTORS.values()} == {case.method for case in CASES.values()} - {RotNet}
    for case in VECTORS.values():
        batch = case.batch(0)
        assert {view.ndim for view in (*batch.labeled, *batch.unlabeled)} == {2}
        assert not case.build().needs_pixels
    assert CASES["remixmatch"].build().needs_pixels
    assert CASES["rotnet"].build().needs_pixels
    sizes = {len(case.build().host.projector.heads) for case in VECTORS.values() if case.projector}
    assert sizes == {3}


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.wrap is not None or "shrink" in name])
def test_every_loss_of_a_wrapped_objective_is_at_work(case: str) -> None:
    method, losses = CASES[case].build(), []
    for position in range(4):  # several ranks are compared on these and more
        outcome = method(CASES[case].batch(position))
        method.update(outcome.memory)
        losses.append(outcome.losses)
    for name in losses[0]:
        assert any(values[name] > 0 for values in losses), name


# Every check against methods that break its rule: a check that cannot fail is worth nothing.


class Plain(Supervised):
    """A sound method for the broken ones to start from: one loss, from labeled images, times what they decide."""

    views = Views(labeled=("weak",), unlabeled=("weak",))

    def forward(self, batch: Batch) -> Outcome:
        on_x, on_weak = predict_jointly(self.net, *batch.labeled, *batch.unlabeled)
        probs = on_weak.logits.detach().softmax(1)
        loss = F.cross_entropy(on_x.logits, batch.labels)
        return self.finish(batch, loss, probs)

    def finish(self, batch: Batch, loss: Tensor, probs: Tensor) -> Outcome:
        return Outcome({"labeled": loss}, {"top": probs.amax(1).mean()}, {"mean": probs.mean(0)})


class WritesBuffer(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.register_buffer("calls", torch.zeros(()))

    def finish(self, batch, loss, probs):
        self.calls.add_(1)
        return super().finish(batch, loss, probs)


class KeepsTensor(Plain):
    kept: Tensor | float = 0.0

    def finish(self, batch, loss, probs):
        self.kept = self.kept + 1
        return super().finish(batch, loss * self.kept, probs)


class Draws(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * torch.rand(()), probs)


class WritesBatch(Plain):
    def finish(self, batch, loss, probs):
        batch.unlabeled_index.zero_()
        return super().finish(batch, loss, probs)


class Items(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * probs.max().item(), probs)


class Lists(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * max(probs.mean(0).tolist()), probs)


class Copies(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs.cpu())


class Branches(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, 2 * loss if batch.step > LATE else loss, probs)


class Masks(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * probs[probs > 0.1].mean(), probs)


class PutsWithMask(Plain):
    def finish(self, batch, loss, probs):
        probs[probs > 0.1] = 1.0
        return super().finish(batch, loss, probs)


class OneHots(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * F.one_hot(batch.labels, 3).float().mean(), probs)


class Counts(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * torch.bincount(batch.labels, minlength=3).sum(), probs)


class SyncsInUpdate(Plain):
    def update(self, memory: dict[str, Tensor]) -> None:
        memory["mean"].max().item()


class DeadLayer(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.extra = nn.Linear(2, 2)


class AwakensLate(DeadLayer):
    def finish(self, batch, loss, probs):
        extra = sum(p.sum() for p in self.extra.parameters())
        return super().finish(batch, loss + extra if batch.step > LATE else loss, probs)


class SharesGradients(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.scales = nn.ParameterList(torch.ones(2) for _ in range(3))

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * torch.stack(list(self.scales)).sum(0).mean(), probs)


class Peeks(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * (1 + (batch.unlabeled_truth == 0).float().mean()), probs)


class PeeksInMemory(Plain):
    def finish(self, batch, loss, probs):
        outcome = super().finish(batch, loss, probs)
        return outcome._replace(memory={"truth": batch.unlabeled_truth})


class OutsideBuffers(Plain):
    mean: Tensor | float = 1.0

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * torch.as_tensor(self.mean).max(), probs)

    def update(self, memory: dict[str, Tensor]) -> None:
        self.mean = memory["mean"]


class NotPersistent(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.register_buffer("mean", torch.ones(3), persistent=False)

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * self.mean.max(), probs)

    def update(self, memory: dict[str, Tensor]) -> None:
        self.mean.copy_(memory["mean"])


class ReplacesBuffer(Plain):
    """Assigns where it should write: all is well until a step is recorded."""

    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.register_buffer("mean", torch.ones(3))

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * self.mean.max(), probs)

    def update(self, memory: dict[str, Tensor]) -> None:
        self.mean = 0.9 * self.mean + 0.1 * memory["mean"]


class StaysInEval(Plain):
    def finish(self, batch, loss, probs):
        self.net.eval()
        return super().finish(batch, loss, probs)


class RandomStart(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.scale = 1 + torch.rand(())

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * self.scale, probs)


class Selects(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs)._replace(memory={"sure": probs[probs.amax(1) > probs.amax(1).mean()]})


class Grows(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.register_buffer("means", torch.zeros(0, 3))

    def update(self, memory: dict[str, Tensor]) -> None:
        self.means = torch.cat([self.means, memory["mean"][None]])


class MetricComesLate(Plain):
    def finish(self, batch, loss, probs):
        outcome = super().finish(batch, loss, probs)
        return outcome._replace(metrics={**outcome.metrics, "late": loss.detach()}) if batch.step > LATE else outcome


class OtherWhenCompiled(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * 1.1 if torch.compiler.is_compiling() else loss, probs)


class DividesByStep(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss / batch.step, probs)


class GrowsWithStep(Plain):
    def finish(self, batch, loss, probs):
        outcome = super().finish(batch, loss, probs)
        return outcome._replace(memory={"age": torch.exp(batch.step.float())})


class LossPerRow(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss.expand(4), probs)


class ConstantLoss(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs)._replace(losses={"labeled": loss, "other": loss.detach()})


class NoLoss(Plain):
    def finish(self, batch, loss, probs):
        return Outcome({})


class NotOutcome(Plain):
    def finish(self, batch, loss, probs):
        return loss


class NumberLoss(Plain):
    def finish(self, batch, loss, probs):
        return Outcome({"labeled": loss, "other": 0.0})


class Detached(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss.detach(), probs)


class MisspelledView(Plain):
    views = Views(labeled=("weak",), unlabeled=("wek",))


class ForgetsSuper(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        self.classes = problem.num_classes


class LayerBeforeSuper(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        self.head = nn.Linear(2, problem.num_classes)
        super().__init__(net, problem)


class AttachedMetric(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs)._replace(metrics={"loss_again": loss})


class AttachedMemory(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs)._replace(memory={"mean": loss})


class NamesMetricLoss(Plain):
    def finish(self, batch, loss, probs):
        return super().finish(batch, loss, probs)._replace(metrics={"loss": loss.detach()})


class BoolMask(Plain):
    def finish(self, batch, loss, probs):
        pseudo = PseudoLabels(probs.argmax(1), probs.amax(1) > 0.5)
        return super().finish(batch, loss, probs)._replace(pseudo=pseudo)


class TrainsOnlyItself(Plain):
    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net, problem)
        self.scale = nn.Parameter(torch.ones(()))

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss.detach() * self.scale, probs)


class LocalMemory(NotPersistent):
    """Remembers what this rank saw, not what all ranks saw."""


class SharedMemory(NotPersistent):
    def update(self, memory: dict[str, Tensor]) -> None:
        self.mean.copy_(mean_over_ranks(memory["mean"]))


class LocalPairs(Plain):
    """Compares the rows of this rank only, so two ranks see half of the pairs."""

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * (probs @ probs.T).amax(), probs)


class AlmostShared(Plain):
    """What this rank adds is a billionth of the loss."""

    def finish(self, batch, loss, probs):
        return super().finish(batch, loss * (1 + 1e-9 * (probs @ probs.T).amax()), probs)


class BreaksAmongOthers(Plain):
    """One graph alone, and two where there are others."""

    def finish(self, batch, loss, probs):
        if not alone():
            torch._dynamo.graph_break()
        return super().finish(batch, loss, probs)


BROKEN: list[tuple[type[Method], str, str]] = [
    (WritesBuffer, "pure", "changes calls in `forward`"),
    (KeepsTensor, "pure", r"changes losses\['labeled'\] from one call"),
    (Draws, "pure", r"changes losses\['labeled'\] from one call"),
    (WritesBatch, "pure", "changes unlabeled_index of the batch"),
    (StaysInEval, "pure", r"leaves layers in another mode than it finds them \(`train`, `eval`\)"),
    (ReplacesBuffer, "in_place", r"^ReplacesBuffer puts other tensors in the place of method\.mean: write into"),
    (Items, "no_host_sync", "_local_scalar_dense"),
    (Lists, "no_host_sync", "Tensor.tolist"),
    (Copies, "no_host_sync", "Tensor.cpu"),
    (Branches, "no_host_sync", "_local_scalar_dense"),
    (Masks, "no_host_sync", "aten.index"),
    (PutsWithMask, "no_host_sync", "aten.index_put_"),
    (OneHots, "no_host_sync", "_local_scalar_dense"),
    (Counts, "no_host_sync", "bincount"),
    (SyncsInUpdate, "no_host_sync", "_local_scalar_dense"),
    (DeadLayer, "gradients", r"without a gradient.*extra.weight"),
    (AwakensLate, "gradients", r"without a gradient at step 0.*extra.weight"),
    (SharesGradients, "gradients", r"share memory.*scales.0"),
    (Peeks, "no_peeking", r"changes losses\['labeled'\] with `batch.unlabeled_truth`"),
    (PeeksInMemory, "no_peeking", r"changes memory\['truth'\]"),
    (OutsideBuffers, "round_trip", r"changes losses\['labeled'\] when its state"),
    (OutsideBuffers, "resume", r"changes losses\['labeled'\] of step 3"),
    (NotPersistent, "round_trip", r"changes losses\['labeled'\] when its state"),
    (NotPersistent, "resume", r"changes losses\['labeled'\] of step 3"),
    (RandomStart, "round_trip", r"changes losses\['labeled'\] when its state"),
    (RandomStart, "resume", r"changes losses\['labeled'\] of step 3"),
    (Selects, "static_shapes", r"memory\['sure'\]"),
    (Grows, "static_shapes", "means"),
    (MetricComesLate, "static_shapes", r"metrics\['late'\]"),
    (Branches, "compiled", "does not compile to one graph"),
    (OtherWhenCompiled, "compiled", r"changes losses\['labeled'\] when compiled"),
    (DividesByStep, "outcome", r"losses\['labeled'\] not finite at step 0"),
    (GrowsWithStep, "outcome", r"memory\['age'\] not finite at step 1000000"),
    (LossPerRow, "outcome", r"losses\['labeled'\] of shape \(4,\)"),
    (ConstantLoss, "outcome", r"requires_grad` of losses\['other'\]"),
    (NoLoss, "outcome", "an `Outcome` with losses"),
    (NotOutcome, "outcome", "an `Outcome` with losses"),
    (NumberLoss, "outcome", r"losses\['other'\] that is no tensor"),
    (Detached, "outcome", "no loss that weights learn from"),
    (MisspelledView, "outcome", r"mistaken in `views`. Unknown view 'wek': did you mean 'weak'\?"),
    (ForgetsSuper, "outcome", r"^ForgetsSuper must call `super\(\).__init__\(net\)` before all else"),
    (LayerBeforeSuper, "outcome", r"^LayerBeforeSuper must call `super\(\).__init__\(net\)` before all else"),
    (AttachedMetric, "outcome", r"requires_grad` of metrics\['loss_again'\]"),
    (AttachedMemory, "outcome", r"requires_grad` of memory\['mean'\]"),
    (NamesMetricLoss, "outcome", r"names a metric \['loss'\]"),
    (BoolMask, "outcome", "float mask"),
    (TrainsOnlyItself, "weights_move", "does not move"),
]


@pytest.mark.parametrize(("method", "check", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_broken_method_is_caught(method: type[Method], check: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        CHECKS[check](Case(method, {}))


def test_every_check_is_seen_to_fail() -> None:
    assert {check for _, check, _ in BROKEN} == set(CHECKS)


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "compiled"])
def test_sound_method_passes(check: str) -> None:
    # What the broken methods are made of is sound: they fail for what they add.
    CHECKS[check](Case(Plain, {}))


def test_check_method_runs_every_check_on_the_method_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in CHECKS:
        monkeypatch.setitem(CHECKS, name, lambda case, name=name: seen.append((name, case)))
    check_method(SimMatch, projector={"size": 2}, threshold=0.5)
    assert seen == [(name, Case(SimMatch, {"threshold": 0.5}, {"size": 2})) for name in CHECKS]
    seen.clear()
    check_method(FixMatch, vectors=True)
    assert seen == [(name, Case(FixMatch, {}, vectors=True)) for name in CHECKS]


@pytest.mark.parametrize(
    "method", [LossPerRow, NoLoss, NotOutcome, NumberLoss, Detached, ForgetsSuper, LayerBeforeSuper]
)
def test_training_refuses_what_the_checks_refuse_in_the_same_words(method: type[Method]) -> None:
    case = Case(method, {})
    with pytest.raises(AssertionError) as checked:
        CHECKS["outcome"](case)
    with pytest.raises(InputError) as trained:
        case.start()[1](case.batch(0))
    words = str(checked.value), str(trained.value)
    assert words[0] == words[1]


def test_a_mistake_of_another_kind_within_a_constructor_is_not_explained_away() -> None:
    class Mistaken(Plain):
        def __init__(self, net: nn.Module, problem: Problem) -> None:
            super().__init__(net, problem)
            self.rows = problem.rows

    with pytest.raises(AttributeError, match="'rows'"):
        Case(Mistaken, {}).build()


def test_a_wrapper_that_forgets_its_base_says_what_to_call() -> None:
    class Forgets(Wrapper):
        def __init__(self, method: Method, problem: Problem) -> None:
            self.share = 0.1

    with pytest.raises(InputError, match=r"^Forgets must call `super\(\).__init__\(method\)` before all else"):
        made(Forgets, Case(Plain, {}).build(), PROBLEM)


def test_check_method_fails_on_a_broken_method() -> None:
    with pytest.raises(AssertionError, match=r"^NoLoss must return"):
        check_method(NoLoss)


class Shortens(Wrapper):
    """Adds a loss that is drawn at random, if it shall."""

    def __init__(self, method: Method, problem: Problem, *, random: bool = False) -> None:
        super().__init__(method)
        self.random = random

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        small = self.features_of(outcome).strong.square().mean() * (torch.rand(()) if self.random else 1.0)
        return outcome._replace(losses={**outcome.losses, "small": small})


def test_check_method_checks_a_wrapper_around_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CHECKS, "compiled")  # takes seconds
    with pytest.raises(AssertionError, match=r"^Shortens changes losses\['small'\] from one call"):
        check_method(Shortens, random=True)
    with pytest.raises(AssertionError, match=r"^Shortens takes no projector"):
        check_method(Shortens, projector={"size": 3})
    check_method(Shortens)


def test_a_projector_for_a_method_without_embedding_is_an_error() -> None:
    with pytest.raises(AssertionError, match="FixMatch takes no projector"):
        Case(FixMatch, {}, {"size": 3}).build()


def test_views_are_asked_for() -> None:
    class Blind(Method):
        pass

    with pytest.raises(AssertionError, match="Blind needs `views"):
        Case(Blind, {}).batch(0)


def test_the_tiny_problem_is_one_that_shows_mistakes() -> None:
    case = CASES["simmatch-3"]
    for position in range(4):
        batch = case.batch(position)
        assert difference(named(batch), named(case.batch(position))) is None  # a pure function of the position
        assert len(batch.labeled_index.unique()) < len(batch.labeled_index)
        assert set(batch.labels.tolist()) <= set(range(PROBLEM.num_classes))
        assert -1 in batch.unlabeled_truth
        assert (batch.unlabeled_truth >= 0).any()
    assert [case.batch(position).step.item() for position in range(4)] == [0, 1, LATE + 2, LATE + 3]
    masks = torch.cat([case.trained()(case.batch(position)).pseudo.mask for position in range(4)])
    assert 0 < masks.mean() < 1  # some pseudo-labels are used and some are not
    assert difference(snapshot(case.build(seed=0)), snapshot(case.build(seed=1))) is not None


def test_a_side_without_views_has_no_rows() -> None:
    unlabeled_only, labeled_only = CASES["moco-1"].batch(0), CASES["supervised"].batch(0)
    assert unlabeled_only.labeled == labeled_only.unlabeled == ()
    assert len(unlabeled_only.labels) == len(unlabeled_only.labeled_index) == 0
    assert len(labeled_only.unlabeled_index) == len(labeled_only.unlabeled_truth) == 0
    assert len(unlabeled_only.unlabeled_index) == PROBLEM.unlabeled_batch
    assert len(labeled_only.labels) == PROBLEM.labeled_batch


def test_difference_is_exact_without_a_tolerance() -> None:
    one = {"a": torch.ones(2), "b": torch.tensor([float("nan")])}
    assert difference(one, {"a": torch.ones(2), "b": torch.tensor([float("nan")])}) is None
    near = {**one, "a": torch.nextafter(torch.ones(2), torch.zeros(2))}
    assert difference(one, near) == "a"
    assert difference(one, near, 1e-5) is None
    assert difference(one, {"a": torch.ones(2)}) == "b"
    assert difference({"a": torch.ones(2)}, one) == "b"
    assert difference(one, {**one, "a": torch.ones(2, dtype=torch.float64)}) == "a"
    assert difference(one, {**one, "a": torch.ones(1)}) == "a"


# All methods share one start of two processes and one of three: the start is what takes time.

REPLICAS = {
    **CASES,
    "simmatch-3 on vectors": VECTORS["simmatch-3"],
    "shared memory": Case(SharedMemory, {}),
    "local memory": Case(LocalMemory, {}),
    "local pairs": Case(LocalPairs, {}),
    "almost shared": Case(AlmostShared, {}),
}
REPLICA_PROBLEMS = {
    "local memory": "LocalMemory changes .* from rank to rank",
    "local pairs": "LocalPairs changes .* when 2 ranks share the work of one",
    "almost shared": "AlmostShared changes .* when 2 ranks share the work of one",
}


@pytest.mark.distributed
@pytest.mark.slow
def test_two_and_three_ranks_stay_identical_and_do_what_one_process_does() -> None:
    found = dict(zip(REPLICAS, compare_replicas(list(REPLICAS.values())), strict=True))
    assert {name: problem for name, problem in found.items() if problem and name not in REPLICA_PROBLEMS} == {}
    for name, message in REPLICA_PROBLEMS.items():
        assert re.match(message, found[name] or ""), name
    assert torch.ones(1, dtype=torch.float64).float().dtype == torch.get_default_dtype() == torch.float32


@pytest.mark.distributed
@pytest.mark.slow
def test_messages_of_several_ranks_are_part_of_the_compiled_graph() -> None:
    # Those whose messages differ most: gathered embeddings, a queue, a graph of all images, mixtures with others' rows.
    cases = {name: CASES[name] for name in ("simmatch-3", "comatch-3", "remixmatch")}
    cases["breaks"] = Case(BreaksAmongOthers, {})
    found = dict(zip(cases, compare_compiled_replicas(list(cases.values())), strict=True))
    assert (found.pop("breaks") or "").startswith("BreaksAmongOthers does not compile to one graph")
    assert set(found.values()) == {None}
