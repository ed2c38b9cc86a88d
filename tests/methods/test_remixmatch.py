from __future__ import annotations

import copy
import math

import pytest
import torch
from problems import (
    Row,
    SmallNet,
    average_row,
    cross_entropy,
    dot,
    hard,
    image_batch,
    make_batch,
    make_problem,
    mix,
    record_inputs,
    scale_to_sum_one,
    softmax,
    train_steps,
)
from torch import Tensor, nn

from epass.errors import InputError
from epass.methods.remixmatch import ReMixMatch
from epass.networks.classifier import Prediction
from epass.parts.draws import permutation, uniform
from epass.parts.rotation import turn_at_random

CLASSES, SIZE = 3, 2
SETTINGS = {
    "temperature": 0.6,
    "mix_alpha": 0.5,
    "alignment_momentum": 0.7,
    "unlabeled_weight": 1.7,
    "unmixed_weight": 0.6,
    "rotation_weight": 0.4,
    "ramp": 0.4,
}


class Pictures(nn.Module):
    """A network whose logits are the first pixels of the channels, and whose features are all pixels."""

    num_features = CLASSES * SIZE * SIZE

    def forward(self, images: Tensor) -> Prediction:
        return Prediction(images[:, :, 0, 0], images.flatten(1))


def random_pictures(generator: torch.Generator, count: int) -> Tensor:
    scale = 4 * torch.rand(count, 1, 1, 1, generator=generator)
    return scale * torch.randn(count, CLASSES, SIZE, SIZE, generator=generator)


def logits_of(images: Tensor) -> list[Row]:
    return images[:, :, 0, 0].tolist()


class SlowAlignment:
    """Section 9.3 with a given target."""

    def __init__(self, wanted: Row, momentum: float) -> None:
        self.wanted, self.momentum = wanted, momentum
        self.found: Row | None = None

    def align(self, probs: list[Row]) -> list[Row]:
        mean = average_row(probs)
        self.found = mean if self.found is None else mix(self.momentum, self.found, mean)
        factors = [(w + 1e-6) / (f + 1e-6) for w, f in zip(self.wanted, self.found, strict=True)]
        return [scale_to_sum_one([p * factor for p, factor in zip(row, factors, strict=True)]) for row in probs]


def quarter_turn(image: list[list[float]]) -> list[list[float]]:
    size = len(image)
    return [[image[column][size - 1 - row] for column in range(size)] for row in range(size)]


def rotation_loss(images: Tensor, turns: list[int], head: nn.Linear) -> float:
    weights, biases, total = head.weight.tolist(), head.bias.tolist(), 0.0
    for image, turn in zip(images.tolist(), turns, strict=True):
        for _ in range(turn):
            image = [quarter_turn(channel) for channel in image]
        pixels = [pixel for channel in image for row in channel for pixel in row]
        said = [dot(row, pixels) + bias for row, bias in zip(weights, biases, strict=True)]
        total += cross_entropy(hard(turn, 4), said)
    return total / len(turns)


def mean_cross_entropy(targets: list[Row], logits: list[Row]) -> float:
    return sum(cross_entropy(target, row) for target, row in zip(targets, logits, strict=True)) / len(logits)


def test_steps_are_those_of_the_loops() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    method = ReMixMatch(Pictures(), make_problem(CLASSES, num_labeled=4, steps=10), **SETTINGS)
    slow = SlowAlignment([0.5, 0.25, 0.25], 0.7)  # the classes of the four labeled images
    all_turns = set[int]()
    for step in range(7):  # the ramp is 0 at first and 1 from step 4 on
        labels = torch.randint(CLASSES, (3,), generator=generator)
        x, weak, strong, other = views = [random_pictures(generator, count) for count in (3, 5, 5, 5)]
        batch = make_batch(x, labels, weak, strong, other, step=step)
        outcome = method(batch)

        aligned = slow.align([softmax(row) for row in logits_of(weak)])
        guesses = [scale_to_sum_one([p ** (1 / 0.6) for p in row]) for row in aligned]
        share = math.sin(math.pi / 2 * uniform(batch.seed, salt=0).item()) ** 2
        share, order = max(share, 1 - share), permutation(batch.seed, 18, salt=1).tolist()
        logits = [row for view in (x, strong, other, weak) for row in logits_of(view)]
        targets = [hard(label, CLASSES) for label in labels.tolist()] + 3 * guesses
        logits = [mix(share, row, logits[partner]) for row, partner in zip(logits, order, strict=True)]
        targets = [mix(share, row, targets[partner]) for row, partner in zip(targets, order, strict=True)]
        turns = [int(4 * number) for number in uniform(batch.seed, 5, salt=2).tolist()]
        all_turns |= set(turns)
        ramp = min(step / 4, 1)
        wanted = {
            "labeled": mean_cross_entropy(targets[:3], logits[:3]),
            "unlabeled": 1.7 * ramp * mean_cross_entropy(targets[3:], logits[3:]),
            "unmixed": 0.6 * ramp * mean_cross_entropy(guesses, logits_of(strong)),
            "rotation": 0.4 * rotation_loss(strong, turns, method.rotation_head),  # no ramp
        }
        assert {name: loss.item() for name, loss in outcome.losses.items()} == pytest.approx(wanted, rel=1e-4)
        torch.testing.assert_close(outcome.pseudo.probs, torch.tensor(guesses), rtol=1e-4, atol=1e-6)
        assert outcome.pseudo.labels.tolist() == [guess.index(max(guess)) for guess in guesses]
        assert outcome.pseudo.mask.tolist() == [1.0] * 5
        assert [len(view) for view in views] == [3, 5, 5, 5]

        method.update(outcome.memory)
        torch.testing.assert_close(method.alignment.found, torch.tensor(slow.found), rtol=1e-4, atol=1e-6)
    assert all_turns == {0, 1, 2, 3}


@pytest.mark.parametrize("rotation_weight", [0.0, 0.4])
def test_no_gradient_flows_through_guesses(rotation_weight: float) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(2)
    settings = SETTINGS | {"rotation_weight": rotation_weight}
    method = ReMixMatch(Pictures(), make_problem(CLASSES, num_labeled=4, steps=10), **settings)
    labels = torch.tensor([0, 2, 1])
    views = [random_pictures(generator, count).requires_grad_() for count in (3, 5, 5, 5)]
    batch = make_batch(views[0], labels, *views[1:], step=8)
    outcome = method(batch)
    found = torch.autograd.grad(outcome.loss, views)

    # the same losses with the guesses as numbers
    x, weak, strong, other = views
    guess = torch.tensor(outcome.pseudo.probs.tolist())
    targets = torch.cat([torch.eye(3)[labels], guess, guess, guess])
    mixed, targets = method.mixture(torch.cat([x, strong, other, weak]), targets, batch.seed)
    terms = -(targets * mixed[:, :, 0, 0].log_softmax(1)).sum(1)
    loss = terms[:3].mean() + 1.7 * terms[3:].mean()
    loss = loss - 0.6 * (guess * strong[:, :, 0, 0].log_softmax(1)).sum(1).mean()
    if rotation_weight:
        turned, turns = turn_at_random(strong, batch.seed, salt=2)
        loss = loss + rotation_weight * nn.functional.cross_entropy(method.rotation_head(turned.flatten(1)), turns)
    assert outcome.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    for ours, theirs in zip(found, torch.autograd.grad(loss, views), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_guesses_follow_the_classes_of_the_labeled_images() -> None:
    counts = make_problem(CLASSES, num_labeled=7).label_counts
    method = ReMixMatch(Pictures(), make_problem(CLASSES, num_labeled=7))
    assert counts == (3, 2, 2)
    torch.testing.assert_close(method.alignment.wanted, torch.tensor([3 / 7, 2 / 7, 2 / 7]))
    # in the published code the target is float64, and with it all that is computed from it
    outcome = method(make_batch(*make_views()))
    assert outcome.pseudo.probs.dtype == outcome.loss.dtype == torch.float32


def make_views() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    x, *unlabeled = (random_pictures(generator, 4) for _ in range(4))
    return x, torch.tensor([0, 1, 2, 0]), *unlabeled


def test_the_average_counts_the_batch_at_hand_and_is_written_by_update() -> None:
    method = ReMixMatch(Pictures(), make_problem(CLASSES))
    outcome = method(make_batch(*make_views()))
    assert not method.alignment.started
    mean = make_views()[2][:, :, 0, 0].softmax(1).mean(0)
    torch.testing.assert_close(outcome.memory["mean_probs"], mean)
    method.update(outcome.memory)
    torch.testing.assert_close(method.alignment.found, mean)


def test_only_the_first_chunk_of_the_mixture_moves_running_statistics() -> None:
    torch.manual_seed(0)
    net, batch = SmallNet().train(), image_batch(0, num_views=3)
    method, seen = ReMixMatch(net, make_problem(labeled_batch=6, unlabeled_batch=9)), record_inputs(net)
    plain = copy.deepcopy(net)
    method(batch)
    (x,), (weak, strong, other) = batch.labeled, batch.unlabeled
    assert [len(images) for images in seen] == [9, 6, 6, 6, 6, 6, 3, 9, 9]
    assert torch.equal(seen[0], weak)
    mixed, _ = method.mixture(torch.cat([x, strong, other, weak]), torch.zeros(33, 3), batch.seed)
    assert torch.equal(torch.cat(seen[1:7]), mixed)
    assert torch.equal(seen[7], strong)
    assert torch.equal(seen[8], turn_at_random(strong, batch.seed, salt=2)[0])
    plain(mixed[:6])
    for name, buffer in plain.norm.named_buffers():
        torch.testing.assert_close(net.norm.get_buffer(name), buffer, msg=name)


def test_every_pass_normalizes_by_its_own_batch() -> None:
    torch.manual_seed(0)
    batch = image_batch(900, num_views=3)
    method = ReMixMatch(SmallNet().train(), make_problem(labeled_batch=6, unlabeled_batch=9))
    net = copy.deepcopy(method.net)
    outcome = method(batch)
    _, (weak, strong, _) = batch.labeled, batch.unlabeled
    probs = net(weak).logits.softmax(1)
    guess = method.alignment(probs, probs.mean(0)).square()
    guess = (guess / guess.sum(1, keepdim=True)).detach()
    torch.testing.assert_close(outcome.pseudo.probs, guess)
    unmixed = -0.5 * (guess * net(strong).logits.log_softmax(1)).sum(1).mean()
    assert outcome.losses["unmixed"].item() == pytest.approx(unmixed.item(), rel=1e-4)
    turned, turns = turn_at_random(strong, batch.seed, salt=2)
    rotation = 0.5 * nn.functional.cross_entropy(method.rotation_head(net(turned).features), turns)
    assert outcome.losses["rotation"].item() == pytest.approx(rotation.item(), rel=1e-4)


def test_without_the_rotation_task_images_need_not_be_square() -> None:
    problem = make_problem(labeled_batch=6, unlabeled_batch=9)
    batch = image_batch(0, num_views=3)
    batch = batch._replace(
        labeled=tuple(view[:, :, :4] for view in batch.labeled),
        unlabeled=tuple(view[:, :, :4] for view in batch.unlabeled),
    )
    with pytest.raises(InputError, match="Only square images"):
        ReMixMatch(SmallNet(), problem)(batch)
    method = ReMixMatch(SmallNet(), problem, rotation_weight=0.0)
    assert set(method(batch).losses) == {"labeled", "unlabeled", "unmixed"}
    assert {name.split(".")[0] for name, _ in method.named_parameters()} == {"net"}


def test_it_trains() -> None:
    torch.manual_seed(0)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9, steps=60)
    losses = train_steps(ReMixMatch(SmallNet(), problem), 60)
    assert sum(step["labeled"] for step in losses[-10:]) < 0.8 * sum(step["labeled"] for step in losses[:10])


def test_defaults_are_the_published_ones() -> None:
    method = ReMixMatch(Pictures(), make_problem(CLASSES, steps=6400))
    assert (method.temperature, method.ramp_steps, method.mixture.shares.alpha) == (0.5, 100, 0.75)
    assert (method.unlabeled_weight, method.unmixed_weight, method.rotation_weight) == (1.5, 0.5, 0.5)
    assert method.alignment.momentum == 0.999
    assert method.rotation_head.weight.shape == (4, 12)
    assert method.views == (("weak",), ("weak", "strong", "strong"))


@pytest.mark.parametrize(("setting", "message"), [("temperature", "temperature"), ("mix_alpha", "alpha of a mixture")])
def test_impossible_settings_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReMixMatch(Pictures(), make_problem(CLASSES), **{setting: 0.0})
