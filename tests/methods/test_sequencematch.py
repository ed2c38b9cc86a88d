from __future__ import annotations

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
    cross_entropy,
    divergence,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    sharpened,
    soft_gradient,
    softmax,
    told,
)

from epass.errors import InputError
from epass.methods.flexmatch import FlexMatch
from epass.methods.refixmatch import ReFixMatch
from epass.methods.sequencematch import SequenceMatch

CLASSES = 4


def slow_teach(milder: list[Row], stronger: list[Row], threshold: float, temperature: float) -> float:
    """KL_c(a -> b) of section N8."""
    total = 0.0
    for a, b in zip(milder, stronger, strict=True):
        if max(softmax(a)) >= threshold:
            total += divergence(sharpened(a, temperature), b)
    return total / len(milder)


@pytest.mark.parametrize("class_thresholds", [True, False])
@pytest.mark.parametrize(("threshold", "temperature", "weight"), [(0.8, 0.5, 1.0), (0.6, 2.0, 3.0)])
def test_losses_are_those_of_the_loops(
    threshold: float, temperature: float, weight: float, class_thresholds: bool
) -> None:
    generator, count = torch.Generator().manual_seed(1), 8
    settings = {"threshold": threshold, "temperature": temperature, "unlabeled_weight": weight}
    own = {"class_thresholds": class_thresholds, "doubtful_weight": 0.3, "threshold_warmup": False}
    method = SequenceMatch(Answers(CLASSES), make_problem(CLASSES), **settings, **own)
    last_class: dict[int, int] = {}
    masks, sure_masks = [], []
    for step in range(5):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, *views = (random_answers(generator, size, CLASSES, 2) for size in (3, count, count, count))
        outcome = method(make_batch(x, labels, *views, step=step))
        method.update(outcome.memory)

        on_x, on_weak, on_medium, on_strong = (told(view, CLASSES)[0] for view in (x, *views))
        given = [list(last_class.values()).count(c) for c in range(CLASSES)]
        learned = [number / max(*given, 1) for number in given]
        unlabeled = doubtful = 0.0
        for row, (weak, strong) in enumerate(zip(on_weak, on_strong, strict=True)):
            probs = softmax(weak)
            label = probs.index(max(probs))
            bent = threshold * learned[label] / (2 - learned[label]) if class_thresholds else threshold
            masks.append(1.0 if max(probs) >= bent else 0.0)
            sure_masks.append(1.0 if max(probs) >= threshold else 0.0)
            unlabeled += masks[-1] * cross_entropy(hard(label, CLASSES), strong)
            doubtful += (1 - masks[-1]) * divergence(sharpened(weak, temperature), strong)
            if sure_masks[-1]:
                last_class[row] = label
        pairs = [(on_weak, on_medium), (on_medium, on_strong), (on_weak, on_strong)]
        sequence = sum(slow_teach(milder, stronger, threshold, temperature) for milder, stronger in pairs)
        assert outcome.pseudo.mask.tolist() == masks[-count:]
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in on_weak]
        losses = {name: loss.item() for name, loss in outcome.losses.items()}
        assert losses["labeled"] == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert losses["unlabeled"] == pytest.approx(weight * unlabeled / count, rel=1e-4)
        assert losses["sequence"] == pytest.approx(weight * sequence, rel=1e-4)
        assert losses["doubtful"] == pytest.approx(0.3 * doubtful / count, rel=1e-4)
    assert 0 in masks
    assert (masks != sure_masks) == class_thresholds


def test_hard_labels_are_those_of_flexmatch_and_the_option_that_of_refixmatch() -> None:
    medium = answers(STRONG.flip(0))
    problem, pair = make_problem(), make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG))
    triple = pair._replace(unlabeled=(answers(WEAK), medium, answers(STRONG)))
    flex, sequence = FlexMatch(Answers(3), problem, threshold=0.8), SequenceMatch(Answers(3), problem, threshold=0.8)
    for _ in range(2):
        ours, theirs = sequence(triple), flex(pair)
        assert ours.losses["unlabeled"] == theirs.losses["unlabeled"]
        assert torch.equal(ours.pseudo.mask, theirs.pseudo.mask)
        sequence.update(ours.memory)
        flex.update(theirs.memory)
    plain = SequenceMatch(Answers(3), problem, threshold=0.8, class_thresholds=False, doubtful_weight=1.0)
    refix = ReFixMatch(Answers(3), problem, threshold=0.8)(pair).losses
    ours = plain(triple).losses
    assert {name: ours[name] for name in refix} == refix
    assert "doubtful" not in sequence(triple).losses
    assert not list(plain.buffers())


def test_every_view_teaches_the_stronger_ones_and_none_the_milder() -> None:
    medium_logits = torch.tensor([[3.0, 0, 0], [0.1, 0, 0.2], [0.5, 0.4, 0]])  # the first row alone is confident
    x, weak = answers(LABELED), answers(WEAK).requires_grad_()
    medium, strong = answers(medium_logits).requires_grad_(), answers(STRONG).requires_grad_()
    method = SequenceMatch(Answers(3), make_problem(), threshold=0.8, unlabeled_weight=2.0)
    method(make_batch(x, LABELS, weak, medium, strong)).losses["sequence"].backward()
    assert weak.grad is None or not weak.grad.any()
    of_weak, of_medium = ([sharpened(row, 0.5) for row in logits.tolist()] for logits in (WEAK, medium_logits))
    on_medium = torch.tensor(soft_gradient(of_weak, medium_logits.tolist(), [1.0, 0.0, 1.0], 2.0))
    torch.testing.assert_close(medium.grad[:, :3], on_medium)
    on_strong = torch.tensor(soft_gradient(of_weak, STRONG.tolist(), [1.0, 0.0, 1.0], 2.0))
    on_strong += torch.tensor(soft_gradient(of_medium, STRONG.tolist(), [1.0, 0.0, 0.0], 2.0))
    torch.testing.assert_close(strong.grad[:, :3], on_strong)


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, medium, strong) = SmallNet(), torch.randn(4, 4, 3, 6, 6)
    seen = record_inputs(net)
    SequenceMatch(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, medium, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, medium, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = SequenceMatch(Answers(3), make_problem())
    assert (method.threshold, method.temperature, method.unlabeled_weight) == (0.95, 0.5, 1.0)
    assert method.doubtful_weight == 0
    assert method.last_class is not None
    assert method.threshold_warmup
    assert method.views == (("weak",), ("weak", "medium", "strong"))


def test_a_temperature_of_0_is_refused() -> None:
    with pytest.raises(InputError, match="temperature is a number above 0, not 0"):
        SequenceMatch(Answers(3), make_problem(), temperature=0)
