from __future__ import annotations

import copy

import pytest
import torch
from problems import (
    Answers,
    Passing,
    SmallNet,
    cross_entropy,
    hard,
    image_batch,
    make_batch,
    make_problem,
    mix,
    random_answers,
    record_inputs,
    told,
)

from epass.errors import InputError
from epass.method import Batch, Outcome
from epass.methods.abc_wrapper import ABC
from epass.methods.comatch import CoMatch
from epass.methods.fixmatch import FixMatch
from epass.methods.infomatch import InfoMatch
from epass.methods.mix_wrapper import Mix
from epass.methods.mixmatch import MixMatch
from epass.methods.simmatch import SimMatch
from epass.parts.cutmix import cut_mix
from epass.parts.draws import permutation, uniform

CLASSES = 4


@pytest.mark.parametrize("cls", [SimMatch, CoMatch])
def test_the_loss_is_that_of_the_loops_on_the_hosts_own_pseudo_labels(cls: type[SimMatch | CoMatch]) -> None:
    torch.manual_seed(0)
    problem, count = make_problem(CLASSES, num_labeled=8), 9
    inner = cls(Answers(CLASSES, CLASSES), problem, Passing(CLASSES), threshold=0.7, warmup_steps=2)
    method, alone = Mix(inner, problem, weight=0.6), copy.deepcopy(inner)
    generator, masks = torch.Generator().manual_seed(1), []
    for step in range(4):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        counts = [3] + [count] * len(inner.views.unlabeled)
        x, *views = (random_answers(generator, size, CLASSES, CLASSES) for size in counts)
        batch = make_batch(x, labels, *views, step=step)
        outcome, plain = method(batch), alone(batch)
        for loss, value in plain.losses.items():
            assert torch.equal(outcome.losses[loss], value), loss  # what the host minimizes stays what it is

        on_weak, top, mask = told(views[0], CLASSES)[0], plain.pseudo.labels.tolist(), plain.pseudo.mask.tolist()
        kept = [max(share, 1 - share) for share in uniform(batch.seed, count, salt=4).tolist()]
        total = 0.0
        for b, partner in enumerate(permutation(batch.seed, count, salt=3).tolist()):
            logits = mix(kept[b], on_weak[b], on_weak[partner])  # this network is linear
            total += kept[b] * mask[b] * cross_entropy(hard(top[b], CLASSES), logits)
            total += (1 - kept[b]) * mask[partner] * cross_entropy(hard(top[partner], CLASSES), logits)
        masks += mask
        assert outcome.losses["mixed"].item() == pytest.approx(0.6 * total / count, rel=1e-4)
        method.update(outcome.memory)
        alone.update(plain.memory)
        for name, buffer in alone.named_buffers():
            assert torch.equal(inner.get_buffer(name), buffer), name
    assert 0 in masks
    assert 1 in masks


def test_the_mixture_is_one_of_weak_views_and_leaves_running_statistics_alone() -> None:
    torch.manual_seed(0)
    net, batch = SmallNet().train(), image_batch(0, num_views=2)
    problem = make_problem(labeled_batch=6, unlabeled_batch=9)
    alone = FixMatch(copy.deepcopy(net), problem, threshold=0.3)
    method, seen = Mix(FixMatch(net, problem, threshold=0.3), problem), record_inputs(net)
    outcome = method(batch)
    alone(batch)
    assert torch.equal(seen[1], cut_mix(batch.unlabeled[0], batch.seed).images)
    for name, buffer in alone.net.named_buffers():
        assert torch.equal(net.get_buffer(name), buffer), name
    outcome.losses["mixed"].backward()
    assert net.head.weight.grad.any()


def test_a_wrapper_around_it_sees_the_host() -> None:
    inner = FixMatch(Answers(3), make_problem(), threshold=0.3)
    method = ABC(Mix(inner, make_problem()), make_problem())
    assert method.host is inner
    assert method.views == FixMatch.views


class Silent(FixMatch):
    def forward(self, batch: Batch) -> Outcome:
        return super().forward(batch)._replace(pseudo=None)


def test_what_cannot_be_mixed_is_refused() -> None:
    problem = make_problem()
    with pytest.raises(InputError, match="InfoMatch mixes its images already: wrap another method"):
        Mix(InfoMatch(Answers(3), problem), problem)
    with pytest.raises(InputError, match="weak and strong views"):
        Mix(MixMatch(Answers(3), problem), problem)
    batch = make_batch(torch.zeros(2, 4), torch.tensor([0, 1]), torch.zeros(3, 4), torch.zeros(3, 4))
    with pytest.raises(InputError, match="Silent says nothing of its pseudo-labels"):
        Mix(Silent(Answers(3), problem), problem)(batch)
