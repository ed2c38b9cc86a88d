from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from problems import (
    Answers,
    Passing,
    Row,
    SmallNet,
    cross_entropy,
    dot,
    hard,
    image_batch,
    make_batch,
    make_problem,
    random_answers,
    softmax,
    told,
    train_steps,
)
from torch import Tensor

from epass.errors import InputError
from epass.method import Batch, Method, Outcome, Problem, Views
from epass.methods import WRAPPERS
from epass.methods.abc_wrapper import ABC, LABELED_DRAW, UNLABELED_DRAW
from epass.methods.comatch import CoMatch
from epass.methods.fixmatch import FixMatch
from epass.methods.shrink_wrapper import Shrink
from epass.methods.simmatch import SimMatch
from epass.methods.supervised import Supervised
from epass.networks import Classifier, Small
from epass.parts.draws import uniform
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average

CLASSES, WIDTH = 4, 3
COUNTS = (40, 10, 8, 4)  # labeled images per class
KEEP = [0.1, 0.4, 0.5, 1.0]


def long_tail(counts: tuple[int, ...] = COUNTS, steps: int = 8) -> Problem:
    return replace(make_problem(len(counts), steps=steps), label_counts=counts, num_labeled=sum(counts))


def test_row_15_keep_probability() -> None:
    method = ABC(FixMatch(SmallNet(), make_problem()), long_tail((10, 5, 1), steps=256))
    assert method.keep.tolist() == pytest.approx([0.1, 0.2, 1])
    assert method.fading(torch.tensor(64) / 256).tolist() == pytest.approx([0.775, 0.8, 1], rel=1e-4)


# --- The equations in loops ------------------------------------------------------------------------------------------


def said(head: torch.nn.Linear, features: list[Row]) -> list[Row]:
    weight, bias = head.weight.tolist(), head.bias.tolist()
    return [[dot(row, w) + b for w, b in zip(weight, bias, strict=True)] for row in features]


def host(name: str, problem: Problem) -> Method:
    net = Answers(CLASSES, WIDTH)
    if name == "fixmatch":
        return FixMatch(net, problem, threshold=0.6)
    return {"simmatch": SimMatch, "comatch": CoMatch}[name](net, problem, Passing(WIDTH), threshold=0.6, warmup_steps=2)


@pytest.mark.parametrize("name", ["fixmatch", "simmatch", "comatch"])
def test_steps_are_those_of_the_loops_and_the_hosts_own_losses_stay(name: str) -> None:
    torch.manual_seed(0)
    problem, threshold, weight = long_tail(), 0.5, 0.7
    inner = host(name, problem)
    method, alone = ABC(inner, problem, threshold=threshold, weight=weight), copy.deepcopy(inner)
    with torch.no_grad():
        method.head.weight.mul_(4)
    generator = torch.Generator().manual_seed(2)
    drawn_x, drawn_u, sure = [], [], []
    for step in range(8):  # that is all of the run
        labels = torch.randint(CLASSES, (9,), generator=generator)
        num_views = len(inner.views.unlabeled)
        x, weak, strong, *other = (random_answers(generator, 9, CLASSES, WIDTH) for _ in range(1 + num_views))
        for view in (x, weak, strong):
            view.requires_grad_()
        batch = make_batch(x, labels, weak, strong, *other, step=step)
        outcome, plain = method(batch), alone(batch)
        assert list(outcome.losses) == [*plain.losses, "balanced_labeled", "balanced_unlabeled"]
        for loss, value in plain.losses.items():
            assert torch.equal(outcome.losses[loss], value), loss
        assert torch.equal(outcome.pseudo.mask, plain.pseudo.mask)

        on_x, on_weak, on_strong = (said(method.head, told(view, CLASSES)[1]) for view in (x, weak, strong))
        luck_x, luck_u = (uniform(batch.seed, 9, salt=salt).tolist() for salt in (LABELED_DRAW, UNLABELED_DRAW))
        labeled = unlabeled = 0.0
        targets, masks = [], []
        for b in range(9):
            drawn_x.append(1.0 if luck_x[b] < KEEP[labels[b]] else 0.0)
            labeled += drawn_x[-1] * cross_entropy(hard(labels[b].item(), CLASSES), on_x[b])
            probs = softmax(on_weak[b])
            guess = probs.index(max(probs))
            drawn_u.append(1.0 if luck_u[b] < 1 - step / 8 * (1 - KEEP[guess]) else 0.0)
            sure.append(1.0 if max(probs) >= threshold else 0.0)
            targets.append(hard(guess, CLASSES))
            masks.append(sure[-1] * drawn_u[-1])
            unlabeled += masks[-1] * cross_entropy(targets[-1], on_strong[b])
        assert outcome.losses["balanced_labeled"].item() == pytest.approx(weight * labeled / 9, rel=1e-4)
        assert outcome.losses["balanced_unlabeled"].item() == pytest.approx(weight * unlabeled / 9, rel=1e-4)
        assert outcome.metrics["balanced_coverage"].item() == pytest.approx(sum(masks) / 9)

        (outcome.losses["balanced_labeled"] + outcome.losses["balanced_unlabeled"]).backward()
        assert not weak.grad.any()  # the weak view only teaches
        assert not strong.grad[:, :CLASSES].any()  # the host's own classifier does not take part
        pulls = []
        for target, m, row in zip(targets, masks, on_strong, strict=True):
            error = [weight / 9 * m * (p - t) for p, t in zip(softmax(row), target, strict=True)]
            pulls.append([dot(error, column) for column in method.head.weight.T.tolist()])
        torch.testing.assert_close(strong.grad[:, CLASSES:], torch.tensor(pulls), rtol=1e-4, atol=1e-6)
        assert x.grad[:, CLASSES:].any()

        method.update(outcome.memory)
        alone.update(plain.memory)
        for state, buffer in alone.named_buffers():
            assert torch.equal(inner.get_buffer(state), buffer), state
    assert {*drawn_x} == {*drawn_u} == {*sure} == {0.0, 1.0}


def test_balanced_labels_keep_every_image() -> None:
    torch.manual_seed(0)
    method = ABC(FixMatch(Answers(CLASSES, WIDTH), long_tail()), long_tail((5, 5, 5, 5)), threshold=0.0)
    generator = torch.Generator().manual_seed(0)
    for step in range(8):
        x, weak, strong = (random_answers(generator, 9, CLASSES, WIDTH) for _ in range(3))
        labels = torch.randint(CLASSES, (9,), generator=generator)
        outcome = method(make_batch(x, labels, weak, strong, step=step))
        on_x, on_weak, on_strong = (method.head(view[:, CLASSES:]) for view in (x, weak, strong))
        torch.testing.assert_close(outcome.losses["balanced_labeled"], F.cross_entropy(on_x, labels))
        torch.testing.assert_close(outcome.losses["balanced_unlabeled"], F.cross_entropy(on_strong, on_weak.argmax(1)))


def test_images_are_kept_as_often_as_they_should_be() -> None:
    keep = torch.tensor(KEEP).repeat(500)
    for salt in (LABELED_DRAW, UNLABELED_DRAW):
        drawn = torch.stack([ABC.draw(keep, torch.tensor(seed), salt) for seed in range(20)])
        torch.testing.assert_close(drawn.view(-1, 4).mean(0), torch.tensor(KEEP), rtol=0, atol=0.02)
        assert drawn.view(-1, 4)[:, 3].all()
    labeled, unlabeled = (ABC.draw(keep, torch.tensor(3), salt) for salt in (LABELED_DRAW, UNLABELED_DRAW))
    assert not torch.equal(labeled, unlabeled)


# --- What is evaluated -----------------------------------------------------------------------------------------------


def embedding_method() -> ABC:
    projector = ProjectorEnsemble(16, 5, size=3)
    problem = long_tail((4, 2, 1))
    inner = SimMatch(Classifier(Small(in_channels=3, width=4), 3), problem, projector, threshold=0.5)
    return ABC(inner, problem, threshold=0.4, feature="embedding")


def backbone_method() -> ABC:
    problem = long_tail((4, 2, 1))
    return ABC(FixMatch(Classifier(Small(in_channels=3, width=4), 3), problem, threshold=0.5), problem, threshold=0.4)


def test_the_balanced_logits_are_evaluated() -> None:
    method, images = backbone_method().eval(), torch.randn(5, 3, 8, 8)
    own = method.method.net(images)
    found = method.net(images)
    torch.testing.assert_close(found.logits, method.head(own.features))
    assert torch.equal(found.features, own.features)
    assert not torch.allclose(found.logits, own.logits)


def test_on_the_embedding_the_projector_stands_between() -> None:
    method, images = embedding_method().eval(), torch.randn(5, 3, 8, 8)
    own = method.method.net(images)
    assert method.head.in_features == 5
    torch.testing.assert_close(method.net(images).logits, method.head(method.method.projector(own.features)))
    batch = image_batch(0, num_views=2)
    outcome = method(batch)
    embedding = method.method.projector(outcome.features.labeled)
    wanted = F.cross_entropy(method.head(embedding), batch.labels, reduction="none")
    kept = ABC.draw(method.keep[batch.labels], batch.seed, LABELED_DRAW)
    torch.testing.assert_close(outcome.losses["balanced_labeled"], (kept * wanted).mean())
    outcome.losses["balanced_labeled"].backward()
    assert method.method.projector.heads[0][0].weight.grad.any()  # gradients go through the projector


@pytest.mark.parametrize("make", [backbone_method, embedding_method])
def test_nothing_is_registered_twice(make: type[ABC]) -> None:
    method = make()
    tops = {name.partition(".")[0] for name in method.state_dict()}
    assert tops == {"method", "head", "keep"}
    parameters = [*method.parameters()]
    assert len({id(parameter) for parameter in parameters}) == len(parameters) == len(dict(method.named_parameters()))
    evaluated = {id(parameter) for parameter in method.net.parameters()}
    assert evaluated <= {id(parameter) for parameter in parameters}


@pytest.mark.parametrize("make", [backbone_method, embedding_method])
def test_the_average_follows_net_and_head(make: type[ABC]) -> None:
    torch.manual_seed(0)
    method = make()
    average = Average(method.net, 0.5)
    before = {name: weight.clone() for name, weight in average.module.named_parameters()}
    assert "head.weight" in before
    with torch.no_grad():
        for weight in method.parameters():
            weight.add_(1)
    average.follow(method.net)
    for name, weight in average.module.named_parameters():
        torch.testing.assert_close(weight, before[name] + 0.5)


@pytest.mark.parametrize("make", [backbone_method, embedding_method])
def test_a_finished_model_goes_into_an_adapted_network(make: type[ABC]) -> None:
    torch.manual_seed(0)
    method, images = make(), torch.randn(5, 3, 8, 8)
    average = Average(method.net).module
    projector = ProjectorEnsemble(16, 5, size=3) if make is embedding_method else None
    fresh = ABC.adapt(Classifier(Small(in_channels=3, width=4), 3), projector=projector).eval()
    fresh.load_state_dict(average.state_dict())
    assert torch.equal(fresh(images).logits, average(images).logits)


def test_asking_for_the_network_leaves_modes_alone() -> None:
    method = backbone_method()
    assert method.net.training
    method.eval()
    assert not method.net.training
    method.train()
    _ = method.net
    assert all(module.training for module in method.modules())


def test_training_lowers_both_balanced_losses() -> None:
    torch.manual_seed(0)
    problem = replace(make_problem(steps=60), label_counts=(3, 3, 2))
    method = ABC(FixMatch(SmallNet(), problem, threshold=0.6), problem, threshold=0.6)
    losses = train_steps(method, 60)
    early, late = ([sum(step["balanced_labeled"] for step in part)] for part in (losses[:10], losses[-10:]))
    assert late < early
    assert any(step["balanced_unlabeled"] > 0 for step in losses)


# --- Methods that it cannot wrap -------------------------------------------------------------------------------------


class Silent(FixMatch):
    def forward(self, batch: Batch) -> Outcome:
        return super().forward(batch)._replace(features=None)


class WeakOnly(FixMatch):
    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))


@pytest.mark.parametrize("cls", [Supervised, WeakOnly])
def test_a_method_without_the_views_is_refused_at_once(cls: type[Method]) -> None:
    with pytest.raises(InputError, match=rf"^ABC builds on weak and strong views .* {cls.__name__} does not have"):
        ABC(cls(SmallNet(), make_problem()), make_problem())


def test_a_method_without_features_is_a_sentence_in_the_first_step() -> None:
    method = ABC(Silent(SmallNet(), make_problem()), make_problem())
    with pytest.raises(InputError, match="ABC builds on features, and Silent exports none"):
        method(image_batch(0, num_views=2))


def test_an_embedding_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="FixMatch has no embedding for ABC to read"):
        ABC(FixMatch(SmallNet(), make_problem()), make_problem(), feature="embedding")


def test_a_class_without_labels_is_an_error() -> None:
    with pytest.raises(InputError, match="every class needs a labeled image"):
        ABC(FixMatch(SmallNet(), make_problem()), long_tail((4, 0, 2)))


def test_a_misspelled_choice_is_an_error() -> None:
    with pytest.raises(InputError, match="did you mean 'embedding'"):
        ABC(FixMatch(SmallNet(), make_problem()), make_problem(), feature="embeding")


# --- Wrappers in general ---------------------------------------------------------------------------------------------


def test_wrappers_have_names() -> None:
    assert {name: wrapper.__name__ for name, wrapper in WRAPPERS.items()} == {
        "abc": "ABC",
        "mix": "Mix",
        "shrink": "Shrink",
    }


def test_wrappers_go_around_wrappers() -> None:
    projector = ProjectorEnsemble(8, 4)
    inner = CoMatch(SmallNet(), make_problem(), projector)
    method = ABC(Shrink(inner, make_problem()), make_problem(), feature="embedding")
    assert method.host is inner
    assert method.projector is projector
    assert method.views == CoMatch.views
    outcome = method(image_batch(0, num_views=3))
    assert list(outcome.losses)[-3:] == ["shrink", "balanced_labeled", "balanced_unlabeled"]
    seen = method.method.shrinking.started
    assert not seen
    method.update(outcome.memory)
    assert seen
    assert inner.seen.pushed == 15


def test_defaults_are_the_published_ones() -> None:
    method = ABC(FixMatch(SmallNet(), make_problem()), make_problem())
    assert (method.threshold, method.weight, method.feature) == (0.95, 1.0, "backbone")


def test_the_head_of_the_published_runs_is_as_wide_as_the_features() -> None:
    """They give the embedding the width of the features; here any width will do."""
    for width in (5, 8):
        inner = SimMatch(SmallNet(), make_problem(), ProjectorEnsemble(8, width))
        head = ABC(inner, make_problem(), feature="embedding").head
        assert isinstance(head.weight, Tensor)
        assert head.weight.shape == (3, width)
