from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epass.method import Batch, Method, Outcome, Problem, Wrapper
from epass.methods.fixmatch import FixMatch
from epass.methods.freematch import FreeMatch
from epass.methods.supervised import Supervised
from epass.networks.classifier import Classifier
from epass.testing import CHECKS, PROBLEM, Case, compare_replicas, difference, snapshot
from epass.testing.case import TinyBackbone


def make_net() -> Classifier:
    torch.manual_seed(0)
    return Classifier(TinyBackbone(), PROBLEM.num_classes)


class Second(Wrapper):
    """Adds a second classifier on the features of the first, and counts its steps."""

    def __init__(self, method: Method, problem: Problem, *, weight: float = 0.5) -> None:
        super().__init__(method)
        self.weight = weight
        self.head = nn.Linear(TinyBackbone.num_features, problem.num_classes)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        assert outcome.features is not None
        loss = nn.functional.cross_entropy(self.head(outcome.features.labeled), batch.labels)
        return outcome._replace(losses={**outcome.losses, "second": self.weight * loss})

    def update(self, memory: dict[str, Tensor]) -> None:
        super().update(memory)
        self.get_buffer("steps").add_(1)


CASE = Case(FixMatch, {"threshold": 0.4}, wrap=Second)


def test_the_loss_is_the_sum_of_its_parts() -> None:
    outcome = Outcome({"labeled": torch.tensor(1.5), "unlabeled": torch.tensor(0.25)})
    assert outcome.loss.item() == 1.75


def test_a_plain_method_takes_the_network_as_it_is_and_remembers_nothing() -> None:
    net = make_net()
    assert Supervised.adapt(net) is net
    method = Supervised(net, PROBLEM)
    before = snapshot(method)
    method.update({"anything": torch.ones(3)})
    assert difference(before, snapshot(method)) is None


class Cosine(Supervised):
    """Trains another network than the recipe's."""

    @classmethod
    def adapt(cls, net: nn.Module) -> nn.Module:
        net.head.bias.requires_grad_(False)  # type: ignore[union-attr]
        return net


def test_cases_build_a_method_around_the_network_that_it_asks_for() -> None:
    assert not Case(Cosine, {}).build().net.head.bias.requires_grad
    assert Case(Supervised, {}).build().net.head.bias.requires_grad


class Silent(Wrapper):
    """Says nothing of memories, since it has none."""

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        return outcome


def test_a_method_remembers_whatever_is_around_it() -> None:
    batch = CASE.batch(0)
    plain, wrapped = (Case(FreeMatch, {}, wrap=wrap).build() for wrap in (None, lambda method, _: Silent(method)))
    for method in (plain, wrapped):
        method.update(method(batch).memory)
    assert difference(snapshot(plain), snapshot(wrapped.host)) is None
    assert difference(snapshot(plain), snapshot(Case(FreeMatch, {}).build())) is not None


def test_a_wrapper_holds_its_method_once_and_shows_its_network() -> None:
    inner = FixMatch(make_net(), PROBLEM)
    wrapper = Second(inner, PROBLEM)
    assert wrapper.net is inner.net
    assert set(wrapper.state_dict()) == {f"method.{name}" for name in inner.state_dict()} | {
        "head.weight",
        "head.bias",
        "steps",
    }
    own = len(list(wrapper.head.parameters()))
    assert len(list(wrapper.parameters())) == len(list(inner.parameters())) + own
    wrapper.eval()
    assert not inner.net.training


def test_a_wrapper_adds_to_the_objective() -> None:
    wrapper, batch = CASE.build(), CASE.batch(0)
    inner = copy.deepcopy(wrapper.method)
    found, wanted = wrapper(batch), inner(batch)
    assert set(found.losses) == {*wanted.losses, "second"}
    assert found.loss.item() > wanted.loss.item()
    wrapper.update(found.memory)
    assert wrapper.steps.item() == 1


@pytest.mark.parametrize("check", CHECKS)
def test_a_wrapper_keeps_the_contract(check: str) -> None:
    CHECKS[check](CASE)


@pytest.mark.distributed
def test_two_ranks_of_a_wrapper_do_what_one_process_does() -> None:
    problem: Any
    (problem,) = compare_replicas([CASE], worlds=(2,))
    assert problem is None
