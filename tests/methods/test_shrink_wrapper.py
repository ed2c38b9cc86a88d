from __future__ import annotations

import copy

import pytest
import torch
from problems import (
    Answers,
    Passing,
    SmallNet,
    image_batch,
    make_batch,
    make_problem,
    random_answers,
    shrink,
    told,
    train_steps,
)
from torch import Tensor, nn

from epass.errors import InputError
from epass.method import Batch, Method, Outcome
from epass.methods.abc_wrapper import ABC
from epass.methods.comatch import CoMatch
from epass.methods.fixmatch import FixMatch
from epass.methods.shrink_wrapper import Shrink
from epass.methods.shrinkmatch import ShrinkMatch
from epass.methods.simmatch import SimMatch
from epass.methods.supervised import Supervised
from epass.parts.projector import ProjectorEnsemble

CLASSES = 4


def host(name: str, net: nn.Module, projector: nn.Module, **settings: object) -> Method:
    problem = make_problem(CLASSES, num_labeled=8)
    if name == "fixmatch":
        return FixMatch(net, problem, **settings)
    cls = {"simmatch": SimMatch, "comatch": CoMatch}[name]
    return cls(net, problem, projector, warmup_steps=2, **settings)


@pytest.mark.parametrize("name", ["fixmatch", "simmatch", "comatch"])
def test_the_loss_is_that_of_the_loops_on_the_hosts_own_probabilities(name: str) -> None:
    torch.manual_seed(0)
    inner = host(name, Answers(CLASSES, CLASSES), Passing(CLASSES), threshold=0.7, unlabeled_weight=2.0)
    method = Shrink(inner, make_problem(CLASSES), share_momentum=0.8)
    method.shrinking.head = nn.Identity()
    alone, generator, share = copy.deepcopy(inner), torch.Generator().manual_seed(1), None
    for step in range(5):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        counts = [3] + [9] * len(inner.views.unlabeled)
        x, *views = (random_answers(generator, count, CLASSES, CLASSES) for count in counts)
        views[1].requires_grad_()
        batch = make_batch(x, labels, *views, step=step)
        outcome, plain = method(batch), alone(batch)
        for loss, value in plain.losses.items():
            assert torch.equal(outcome.losses[loss], value), loss  # what the host minimizes stays what it is

        mask = plain.pseudo.mask.tolist()
        mean = sum(mask) / len(mask)
        share = mean if share is None else 0.8 * share + 0.2 * mean
        _, auxiliary = told(views[1], CLASSES)
        probs = plain.pseudo.probs.tolist()
        wanted = 2.0 * share * shrink(auxiliary, probs, mask, 0.7, probs)
        assert outcome.losses["shrink"].item() == pytest.approx(wanted, rel=1e-4)
        assert wanted > 0
        outcome.losses["shrink"].backward()
        assert views[1].grad[:, CLASSES:].any()
        assert not views[1].grad[:, :CLASSES].any()

        method.update(outcome.memory)
        alone.update(plain.memory)
        assert method.shrinking.share.item() == pytest.approx(share, rel=1e-5)
        for state, buffer in alone.named_buffers():
            assert torch.equal(inner.get_buffer(state), buffer), state  # the host remembers what it would alone


def test_around_a_fixmatch_with_hard_labels_it_is_shrinkmatch_without_alignment() -> None:
    torch.manual_seed(0)
    net = SmallNet()
    one = Shrink(FixMatch(net, make_problem(), threshold=0.6), make_problem())
    other = ShrinkMatch(copy.deepcopy(net), make_problem(), threshold=0.6, target="hard", alignment="none")
    other.shrinking.load_state_dict(one.shrinking.state_dict())
    losses = train_steps(one, 6)
    assert losses == train_steps(other, 6)
    assert any(step["shrink"] > 0 for step in losses)


def test_it_takes_over_threshold_and_weight_unless_they_are_given() -> None:
    inner = FixMatch(SmallNet(), make_problem(), threshold=0.7, unlabeled_weight=5.0)
    method = Shrink(inner, make_problem())
    assert (method.threshold, method.weight) == (0.7, 5.0)
    method = Shrink(inner, make_problem(), threshold=0.8, weight=0.5)
    assert (method.threshold, method.weight) == (0.8, 0.5)
    # also through another wrapper, which has a threshold of its own
    method = Shrink(ABC(inner, make_problem(), threshold=0.9), make_problem())
    assert (method.threshold, method.weight) == (0.7, 5.0)


def test_a_given_threshold_does_not_decide_who_is_uncertain() -> None:
    generator = torch.Generator().manual_seed(1)
    x, weak, strong = (random_answers(generator, count, CLASSES, CLASSES) for count in (3, 9, 9))
    problem = make_problem(CLASSES)
    method = Shrink(FixMatch(Answers(CLASSES, CLASSES), problem, threshold=0.6), problem, threshold=0.9)
    outcome = method(make_batch(x, torch.arange(3), weak, strong))
    assert outcome.metrics["certain_share"] == outcome.pseudo.mask.mean()
    assert outcome.pseudo.mask.tolist() == (outcome.pseudo.probs.amax(1) >= 0.6).float().tolist()


def test_with_three_projectors_around_simmatch_the_ensemble_decides_what_is_shrunk() -> None:
    torch.manual_seed(0)
    inner = SimMatch(
        SmallNet(), make_problem(num_labeled=8), ProjectorEnsemble(8, 4, size=3), threshold=0.6, warmup_steps=0
    )
    method = Shrink(inner, make_problem())
    method.update(method(image_batch(1, num_views=2)).memory)  # gives the rows of the bank their classes
    method.shrinking.remember(torch.ones(()))
    first = method(image_batch(0, num_views=2))
    assert first.losses["shrink"] > 0
    with torch.no_grad():
        inner.projector.heads[2][2].weight.mul_(-3)
    second = method(image_batch(0, num_views=2))
    assert not torch.equal(first.pseudo.probs, second.pseudo.probs)
    assert first.losses["shrink"] != second.losses["shrink"]


def test_what_is_kept_is_the_hosts_network() -> None:
    net = SmallNet()
    assert Shrink(FixMatch(net, make_problem()), make_problem()).net is net


# --- Methods that it cannot wrap -------------------------------------------------------------------------------------


class Vague(FixMatch):
    """Does not say what its mask was taken from, or exports no features."""

    hides = "probs"

    def forward(self, batch: Batch) -> Outcome:
        outcome = super().forward(batch)
        if self.hides == "features":
            return outcome._replace(features=None)
        return outcome._replace(pseudo=outcome.pseudo._replace(probs=None))


class Moving(FixMatch):
    """Has a threshold that is not one number."""

    def __init__(self, net: nn.Module, problem: object) -> None:
        super().__init__(net, problem)
        self.threshold: Tensor = torch.full((3,), 0.9)


def test_a_method_without_unlabeled_views_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"^Shrink builds on weak and strong views .* Supervised does not have"):
        Shrink(Supervised(SmallNet(), make_problem()), make_problem())


def test_a_method_without_one_threshold_needs_to_be_given_one() -> None:
    with pytest.raises(InputError, match="Moving has no fixed threshold"):
        Shrink(Moving(SmallNet(), make_problem()), make_problem())
    assert Shrink(Moving(SmallNet(), make_problem()), make_problem(), threshold=0.8).threshold == 0.8


def test_a_method_that_shrinks_already_is_refused() -> None:
    with pytest.raises(InputError, match="ShrinkMatch shrinks its classes already"):
        Shrink(ShrinkMatch(SmallNet(), make_problem()), make_problem())


@pytest.mark.parametrize(
    ("hides", "sentence"), [("probs", "Vague does not say what its mask"), ("features", "Vague exports none")]
)
def test_what_a_method_does_not_export_is_asked_for(monkeypatch: pytest.MonkeyPatch, hides: str, sentence: str) -> None:
    monkeypatch.setattr(Vague, "hides", hides)
    method = Shrink(Vague(SmallNet(), make_problem()), make_problem())
    with pytest.raises(InputError, match=sentence):
        method(image_batch(0, num_views=2))
