from __future__ import annotations

import copy
import math

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
    STRONG,
    WEAK,
    Answers,
    Row,
    SmallNet,
    answers,
    average_row,
    cross_entropy,
    hard,
    image_batch,
    make_batch,
    make_problem,
    mix,
    random_answers,
    record_inputs,
    scale_to_sum_one,
    soft_gradient,
    softmax,
    told,
    train_steps,
)

from epass.errors import InputError
from epass.method import Batch
from epass.methods.mixmatch import MixMatch
from epass.parts.draws import permutation, uniform
from epass.parts.mixing import sharpen

CLASSES = 4


def test_conformance_row_13() -> None:
    method = MixMatch(Answers(3), make_problem())
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    wanted = torch.tensor([0.934262, 0.051422, 0.014316])
    torch.testing.assert_close(outcome.pseudo.probs[0], wanted, rtol=1e-4, atol=1e-6)
    assert outcome.pseudo.labels.tolist() == [0, 0, 1]
    assert outcome.pseudo.mask.tolist() == [1, 1, 1]


def arcsine_share(batch: Batch) -> float:
    """The step's share for alpha = 0.5, whose law has a formula."""
    share = math.sin(math.pi / 2 * uniform(batch.seed, salt=0).item()) ** 2
    return max(share, 1 - share)


def squared_error(targets: list[Row], logits: list[Row]) -> float:
    """mean_b mean_c (softmax(l)_c - t_c)^2."""
    total = 0.0
    for target, row in zip(targets, logits, strict=True):
        total += sum((p - t) ** 2 for p, t in zip(softmax(row), target, strict=True)) / len(row)
    return total / len(logits)


def squared_error_gradient(targets: list[Row], logits: list[Row], weight: float) -> list[Row]:
    gradient = []
    for target, row in zip(targets, logits, strict=True):
        probs = softmax(row)
        gaps = [p - t for p, t in zip(probs, target, strict=True)]
        pull = sum(p * gap for p, gap in zip(probs, gaps, strict=True))
        scale = 2 * weight / len(logits) / len(row)
        gradient.append([scale * p * (gap - pull) for p, gap in zip(probs, gaps, strict=True)])
    return gradient


def unmixed_gradient(gradient: list[Row], share: float, order: list[int]) -> list[Row]:
    """From mixed rows back to the rows they were mixed from."""
    total = [[share * value for value in row] for row in gradient]
    for row, partner in zip(gradient, order, strict=True):
        total[partner] = [value + (1 - share) * part for value, part in zip(total[partner], row, strict=True)]
    return total


def test_steps_are_those_of_the_loops() -> None:
    generator = torch.Generator().manual_seed(1)
    settings = {"temperature": 0.6, "mix_alpha": 0.5, "unlabeled_weight": 7.0, "ramp": 0.4}
    method = MixMatch(Answers(CLASSES), make_problem(CLASSES, steps=10), **settings)
    shares = []
    for step in range(7):  # the ramp is 0 at first and 1 from step 4 on
        labels = torch.randint(CLASSES, (3,), generator=generator)
        views = [random_answers(generator, count, CLASSES, 2).requires_grad_() for count in (3, 5, 5)]
        batch = make_batch(views[0], labels, *views[1:], step=step)
        outcome = method(batch)

        on_x, on_weak, on_other = (told(view, CLASSES)[0] for view in views)
        guesses = []
        for one, two in zip(on_weak, on_other, strict=True):
            mean = average_row([softmax(one), softmax(two)])
            guesses.append(scale_to_sum_one([p ** (1 / 0.6) for p in mean]))
        share, order = arcsine_share(batch), permutation(batch.seed, 13, salt=1).tolist()
        shares.append(share)
        logits = on_x + on_weak + on_other  # this network is linear: the logits of a mixture are mixed logits
        targets = [hard(label, CLASSES) for label in labels.tolist()] + guesses + guesses
        logits = [mix(share, row, logits[partner]) for row, partner in zip(logits, order, strict=True)]
        targets = [mix(share, row, targets[partner]) for row, partner in zip(targets, order, strict=True)]
        weight = 7.0 * min(step / 4, 1)
        labeled = sum(cross_entropy(t, row) for t, row in zip(targets[:3], logits[:3], strict=True)) / 3
        assert outcome.losses["labeled"].item() == pytest.approx(labeled, rel=1e-4)
        unlabeled = weight * squared_error(targets[3:], logits[3:])
        assert outcome.losses["unlabeled"].item() == pytest.approx(unlabeled, rel=1e-4)
        torch.testing.assert_close(outcome.pseudo.probs, torch.tensor(guesses))
        assert outcome.pseudo.labels.tolist() == [guess.index(max(guess)) for guess in guesses]

        # gradients reach images through their mixtures, never through guesses
        outcome.loss.backward()
        gradient = soft_gradient(targets[:3], logits[:3], [1.0] * 3, 1.0)
        gradient += squared_error_gradient(targets[3:], logits[3:], weight)
        found = torch.cat([view.grad[:, :CLASSES] for view in views])
        wanted = torch.tensor(unmixed_gradient(gradient, share, order))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert min(shares) < 0.9 < max(shares)


def test_guesses_come_first_and_the_mixture_follows_in_chunks_of_the_labeled_batch() -> None:
    net, batch = SmallNet().train(), image_batch(0, num_views=2)
    method, seen = MixMatch(net, make_problem(labeled_batch=6, unlabeled_batch=9)), record_inputs(net)
    method(batch)
    (x,), (weak, other) = batch.labeled, batch.unlabeled
    assert [len(images) for images in seen] == [9, 9, 6, 6, 6, 6]
    assert torch.equal(seen[0], weak)
    assert torch.equal(seen[1], other)
    everything = torch.cat([x, weak, other])
    mixed, _ = method.mixture(everything, torch.zeros(24, 3), batch.seed)
    assert torch.equal(torch.cat(seen[2:]), mixed)


def test_passes_normalize_by_their_batch_and_only_the_first_chunk_is_remembered() -> None:
    torch.manual_seed(0)
    net, batch = SmallNet().train(), image_batch(LATE_STEP, num_views=2)
    method = MixMatch(net, make_problem(labeled_batch=6, unlabeled_batch=9), unlabeled_weight=3.0)
    plain = copy.deepcopy(net)
    outcome = method(batch)

    (x,), (weak, other) = batch.labeled, batch.unlabeled
    probs = (copy.deepcopy(plain)(weak).logits.softmax(1) + copy.deepcopy(plain)(other).logits.softmax(1)) / 2
    guess = sharpen(probs.detach(), 0.5)
    torch.testing.assert_close(outcome.pseudo.probs, guess)
    labels = torch.eye(3)[batch.labels]
    mixed, target = method.mixture(torch.cat([x, weak, other]), torch.cat([labels, guess, guess]), batch.seed)
    logits = plain(mixed[:6]).logits
    for name, buffer in plain.norm.named_buffers():
        torch.testing.assert_close(net.norm.get_buffer(name), buffer.clone(), msg=name)
    rest = torch.cat([plain(chunk).logits for chunk in mixed[6:].split(6)])
    assert outcome.losses["labeled"].item() == pytest.approx(torch.sum(-target[:6] * logits.log_softmax(1)).item() / 6)
    wanted = 3 * (rest.softmax(1) - target[6:]).square().mean().item()
    assert outcome.losses["unlabeled"].item() == pytest.approx(wanted, rel=1e-4)


LATE_STEP = 900  # of the 1000 steps of `make_problem`: the ramp is over


def test_it_trains() -> None:
    torch.manual_seed(0)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9, steps=60)
    losses = train_steps(MixMatch(SmallNet(), problem, unlabeled_weight=10.0), 60)
    assert sum(step["labeled"] for step in losses[-10:]) < 0.8 * sum(step["labeled"] for step in losses[:10])


def test_defaults_are_the_published_ones() -> None:
    method = MixMatch(Answers(3), make_problem(steps=1000))
    assert (method.temperature, method.unlabeled_weight, method.ramp_steps) == (0.5, 100.0, 400)
    assert method.mixture.shares.alpha == 0.5
    assert method.views == (("weak",), ("weak", "weak"))


@pytest.mark.parametrize(("setting", "message"), [("temperature", "temperature"), ("mix_alpha", "alpha of a mixture")])
def test_impossible_settings_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MixMatch(Answers(3), make_problem(), **{setting: 0.0})
