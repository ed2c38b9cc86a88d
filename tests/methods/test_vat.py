from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from problems import (
    LABELED,
    LABELS,
    WEAK,
    Answers,
    Row,
    SmallNet,
    answers,
    dot,
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    softmax,
    told,
    train_steps,
)
from torch import Tensor

from epass.methods.vat import VAT
from epass.parts.draws import normal

CLASSES, WIDTH = 4, 2
SETTINGS = {"radius": 1.5, "probe_length": 0.5, "unlabeled_weight": 0.7, "entropy_weight": 0.2, "ramp": 0.25}


def slow_unit(row: Row) -> Row:
    return [value / math.sqrt(dot(row, row)) for value in row]


def slow_attack(images: list[Row], noise: list[Row], *, radius: float, probe_length: float) -> list[Row]:
    """For a network whose images are its logits: the gradient of KL(p || softmax(l + d)) is softmax(l + d) - p."""
    attacks = []
    for image, draw in zip(images, noise, strict=True):
        probed = [value + probe_length * step for value, step in zip(image, slow_unit(draw), strict=True)]
        before, after = softmax(image[:CLASSES]), softmax(probed[:CLASSES])
        gradient = [p - q for p, q in zip(after, before, strict=True)]
        attacks.append([radius * value for value in slow_unit(gradient)])
    return attacks


def slow_divergence(target: Row, probs: Row) -> float:
    return sum(q * (math.log(q) - math.log(p)) for q, p in zip(target, probs, strict=True))


def slow_entropy(probs: Row) -> float:
    return -sum(p * math.log(p) for p in probs)


@pytest.mark.parametrize("step", [0, 1, 5, 10, 39])
def test_losses_and_gradients_are_those_of_the_loops(step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    method = VAT(Answers(CLASSES), make_problem(CLASSES, steps=40), **SETTINGS)
    labels = torch.randint(CLASSES, (3,), generator=generator)
    x, weak = (random_answers(generator, count, CLASSES, WIDTH) for count in (3, 6))
    batch = make_batch(x, labels, weak.requires_grad_(), step=step)
    outcome = method(batch)
    outcome.loss.backward()

    weight = 0.7 * min(step / 10, 1)
    noise = normal(batch.seed, 6, CLASSES + WIDTH, salt=0).tolist()
    attacks = slow_attack(weak.tolist(), noise, radius=1.5, probe_length=0.5)
    divergence, entropy, gradient = 0.0, 0.0, []
    for logits, attack in zip(told(weak, CLASSES)[0], attacks, strict=True):
        probs = softmax(logits)
        attacked = softmax([value + change for value, change in zip(logits, attack, strict=True)])
        divergence += slow_divergence(probs, attacked) / 6
        entropy += slow_entropy(probs) / 6
        # Neither the target nor the attack have a gradient; the entropy has.
        gradient.append(
            [
                (weight * (q - p) - 0.2 * p * (math.log(p) + slow_entropy(probs))) / 6
                for p, q in zip(probs, attacked, strict=True)
            ]
        )
    assert set(outcome.losses) == {"labeled", "unlabeled", "entropy"}
    wanted = labeled_loss(told(x, CLASSES)[0], labels.tolist())
    assert outcome.losses["labeled"].item() == pytest.approx(wanted, rel=1e-5)
    assert outcome.losses["unlabeled"].item() == pytest.approx(weight * divergence, rel=1e-4)
    assert outcome.losses["entropy"].item() == pytest.approx(0.2 * entropy, rel=1e-5)
    torch.testing.assert_close(weak.grad[:, :CLASSES], torch.tensor(gradient), rtol=1e-4, atol=1e-6)
    assert not weak.grad[:, CLASSES:].any()


def test_conformance_row_14_entropy() -> None:
    method = VAT(Answers(3), make_problem(), entropy_weight=1.0)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK)))
    assert outcome.losses["entropy"].item() == pytest.approx(0.631289, rel=1e-4)
    assert outcome.losses["labeled"].item() == pytest.approx(0.479525, rel=1e-4)


def trained() -> VAT:
    torch.manual_seed(0)
    method = VAT(SmallNet(), make_problem(), radius=0.5, probe_length=0.1, ramp=0.0)
    train_steps(method, 10)
    return method


def passes(net: SmallNet) -> list[Tensor]:
    """A list that receives the images of every pass but those inside the inner gradient, which are nobody's to keep."""
    seen: list[Tensor] = []

    def keep(_net: SmallNet, inputs: tuple[Tensor, ...]) -> None:
        if not torch._C._functorch.is_gradtrackingtensor(inputs[0]):
            seen.append(inputs[0].detach().clone())

    net.register_forward_pre_hook(keep)
    return seen


def test_weights_learn_from_an_attack_that_is_constant() -> None:
    method, batch = trained(), image_batch(20, num_views=1)
    net, seen = copy.deepcopy(method.net), passes(method.net)
    method.zero_grad(set_to_none=True)
    outcome = method(batch)
    assert all(weight.grad is None for weight in method.parameters())  # the inner gradient left nothing behind
    outcome.loss.backward()

    x, weak, attacked = seen
    assert torch.equal(weak, batch.unlabeled[0])
    torch.testing.assert_close((attacked - weak).flatten(1).norm(dim=1), torch.full((len(weak),), 0.5))
    on_weak = net(weak).logits
    target = on_weak.softmax(1).detach()
    divergence = (target * (target.log() - net(attacked).logits.log_softmax(1))).sum(1).mean()
    entropy = -(on_weak.softmax(1) * on_weak.log_softmax(1)).sum(1).mean()
    (F.cross_entropy(net(x).logits, batch.labels) + divergence + 0.06 * entropy).backward()
    for (name, found), wanted in zip(method.net.named_parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_gradients_of_an_earlier_backward_pass_survive() -> None:
    method, batch = trained(), image_batch(20, num_views=1)
    for weight in method.parameters():
        weight.grad = torch.ones_like(weight)
    method(batch)
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in method.parameters())


def test_the_attack_changes_predictions_more_than_noise_of_its_length() -> None:
    method, batch = trained(), image_batch(20, num_views=1)
    attack = method(batch).losses["unlabeled"].item()
    weak = batch.unlabeled[0]
    target = method.net(weak).logits.softmax(1)
    for _ in range(20):
        noise = torch.randn_like(weak)
        noise = 0.5 * noise / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        divergence = F.kl_div(method.net(weak + noise).logits.log_softmax(1), target, reduction="batchmean")
        assert attack > 2 * divergence.item()


def direction(method: VAT, images: Tensor, seed: Tensor) -> Tensor:
    """What the network passes from its second to its third look at the images differ by."""
    images = images.to(method.net.head.weight.dtype)
    seen = passes(method.net)
    x = images[:3]
    method(make_batch(x, torch.tensor([0, 1, 2]), images)._replace(seed=seed))
    return (seen[2] - seen[1]).flatten(1) / method.radius


def test_the_published_probe_is_lost_in_rounding() -> None:
    """With 1e-6 the direction has little to do with the one that exact arithmetic finds; a longer probe finds it."""
    single, images, seed = trained(), image_batch(20, num_views=1).unlabeled[0], torch.tensor(5)
    exact = copy.deepcopy(single).double()
    exact.probe_length = 1e-6
    wanted = direction(exact, images, seed)
    cosine = {}
    for probe_length in (1e-6, 0.1):
        twin = copy.deepcopy(single)
        twin.probe_length = probe_length
        cosine[probe_length] = (direction(twin, images, seed) * wanted).sum(1).mean().item()
    assert cosine[0.1] > 0.98
    assert cosine[1e-6] < 0.8


def test_the_probe_is_drawn_from_the_seed_of_the_batch() -> None:
    method, images = trained(), image_batch(20, num_views=1).unlabeled[0]
    once, again, other = (direction(copy.deepcopy(method), images, torch.tensor(seed)) for seed in (5, 5, 6))
    assert torch.equal(once, again)
    assert not torch.allclose(once, other)


def test_only_labeled_images_move_the_running_statistics() -> None:
    net, (x, weak) = SmallNet(), torch.randn(2, 4, 3, 6, 6)
    alone = copy.deepcopy(net)
    VAT(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak))
    alone(x)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, alone.get_buffer(name)), name


def test_defaults_are_the_published_ones_but_for_the_probe() -> None:
    method = VAT(Answers(3), make_problem(steps=1000))
    assert (method.radius, method.unlabeled_weight, method.entropy_weight) == (6.0, 1.0, 0.06)
    assert (method.probe_length, method.ramp_steps) == (1.0, 400)
    assert method.views == (("weak",), ("weak",))
