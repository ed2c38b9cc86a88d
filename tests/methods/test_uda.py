from __future__ import annotations

import math

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
    cross_entropy,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    soft_gradient,
    softmax,
    told,
)

from epass.errors import InputError
from epass.method import Outcome
from epass.methods.uda import UDA

CLASSES = 4


def on_common_inputs(temperature: float) -> Outcome:
    method = UDA(Answers(3), make_problem(), threshold=0.8, temperature=temperature)
    return method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))


def test_conformance_row_3_sharpened() -> None:
    outcome = on_common_inputs(0.4)
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.259719, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    # The divergence is the cross-entropy less the entropy of the targets, a constant.
    target = [softmax([value / 0.4 for value in row]) for row in WEAK.tolist()]
    entropy = sum(m * -sum(t * math.log(t) for t in row) for m, row in zip([1, 0, 1], target, strict=True)) / 3
    assert outcome.losses["unlabeled"].item() - entropy == pytest.approx(0.243044, rel=1e-4)


def test_conformance_row_3_as_published_without_sharpening() -> None:
    assert on_common_inputs(1.0).losses["unlabeled"].item() == pytest.approx(0.350716, rel=1e-4)


@pytest.mark.parametrize(("temperature", "weight"), [(0.4, 1.0), (1.0, 1.0), (0.7, 10.0)])
@pytest.mark.parametrize("threshold", [0.4, 0.8])
def test_losses_are_those_of_the_loops(threshold: float, temperature: float, weight: float) -> None:
    generator = torch.Generator().manual_seed(1)
    settings = {"threshold": threshold, "temperature": temperature, "unlabeled_weight": weight}
    method = UDA(Answers(CLASSES), make_problem(CLASSES), **settings)
    masks = []
    for step in range(4):
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (3, 6, 6))
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        total = 0.0
        for weak_logits, strong_logits in zip(on_weak, on_strong, strict=True):
            masks.append(1.0 if max(softmax(weak_logits)) >= threshold else 0.0)
            target = softmax([value / temperature for value in weak_logits])
            total += masks[-1] * cross_entropy(target, strong_logits)
        assert outcome.pseudo.mask.tolist() == masks[-6:]
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in on_weak]
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-5)
        assert outcome.losses["unlabeled"].item() == pytest.approx(weight * total / 6, rel=1e-5)
    assert 0 in masks
    assert 1 in masks


def slow_limit(annealing: str, progress: float) -> float:
    if annealing == "linear":
        share = progress
    elif annealing == "exp":
        share = math.exp(5 * (progress - 1))
    else:
        share = 1 - math.exp(-5 * progress)
    return share * (1 - 1 / CLASSES) + 1 / CLASSES


@pytest.mark.parametrize("annealing", ["linear", "exp", "log"])
def test_annealing_leaves_out_labeled_images_that_are_too_confident(annealing: str) -> None:
    generator = torch.Generator().manual_seed(2)
    method = UDA(Answers(CLASSES), make_problem(CLASSES, steps=100), annealing=annealing)
    kept_in_run = []
    for step in (0, 5, 20, 50, 75, 90, 99):
        labels = torch.randint(CLASSES, (12,), generator=generator)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2) for count in (12, 6, 6))
        x = x.requires_grad_()
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        on_x, _ = told(x, CLASSES)
        kept = [1.0 if max(softmax(row)) <= slow_limit(annealing, step / 100) else 0.0 for row in on_x]
        kept_in_run.append(sum(kept))
        targets = [hard(label, CLASSES) for label in labels.tolist()]
        terms = [k * cross_entropy(target, row) for k, target, row in zip(kept, targets, on_x, strict=True)]
        # Those left out count in the mean.
        assert outcome.losses["labeled"].item() == pytest.approx(sum(terms) / 12, rel=1e-5)
        outcome.losses["labeled"].backward()
        wanted = torch.tensor(soft_gradient(targets, on_x, kept, 1.0))
        torch.testing.assert_close(x.grad[:, :CLASSES], wanted, rtol=1e-4, atol=1e-6)
    assert kept_in_run[0] == 0
    assert any(0 < count < 12 for count in kept_in_run)


def test_annealing_teaches_images_of_which_nothing_is_known_from_the_first_step_on() -> None:
    method = UDA(Answers(CLASSES), make_problem(CLASSES, steps=100), annealing="linear")
    x, weak, strong = (answers(torch.zeros(2, CLASSES)) for _ in range(3))
    outcome = method(make_batch(x, torch.tensor([0, 3]), weak, strong, step=0))
    assert outcome.losses["labeled"].item() == pytest.approx(math.log(CLASSES))  # 1 / C is at the limit, not above


@pytest.mark.parametrize("step", [0, 999])
def test_without_annealing_every_labeled_image_counts(step: int) -> None:
    sure = torch.tensor([[50.0, 0, 0], [0, 50, 0]])  # the right one and a wrong one, both with a probability of 1
    batch = make_batch(answers(sure), torch.tensor([0, 2]), answers(WEAK), answers(STRONG), step=step)
    assert UDA(Answers(3), make_problem())(batch).losses["labeled"].item() == pytest.approx(25)


def test_gradients_reach_the_strong_view_only() -> None:
    x, weak, strong = answers(LABELED), answers(WEAK).requires_grad_(), answers(STRONG).requires_grad_()
    method = UDA(Answers(3), make_problem(), unlabeled_weight=2.0)
    method(make_batch(x, LABELS, weak, strong)).loss.backward()
    assert not weak.grad.any()
    targets = [softmax([value / 0.4 for value in row]) for row in WEAK.tolist()]
    wanted = soft_gradient(targets, STRONG.tolist(), [1.0, 0.0, 1.0], 2.0)
    torch.testing.assert_close(strong.grad[:, :3], torch.tensor(wanted))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    UDA(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_sharpen_as_the_paper_does() -> None:
    method = UDA(Answers(3), make_problem())
    assert (method.threshold, method.temperature, method.annealing, method.unlabeled_weight) == (0.8, 0.4, "none", 1.0)
    assert method.views == (("weak",), ("weak", "strong"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown annealing 'linea': did you mean 'linear'"):
        UDA(Answers(3), make_problem(), annealing="linea")
    with pytest.raises(InputError, match="temperature that sharpens targets must be above 0, not 0"):
        UDA(Answers(3), make_problem(), temperature=0)
