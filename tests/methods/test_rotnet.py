from __future__ import annotations

import pytest
import torch
from problems import Row, SmallNet, cross_entropy, hard, image_batch, make_problem, only_unlabeled, softmax
from torch import Tensor, nn

from epass.errors import InputError
from epass.method import Batch
from epass.methods.rotnet import RotNet
from epass.parts.rotation import TURNS

BATCH, SIDE = 5, 3


class Pixels(nn.Module):
    """Its features are the pixels, so that a loop can follow them, and it has a linear layer to freeze."""

    num_features = SIDE * SIDE

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, images: Tensor) -> object:
        return type("Answer", (), {"features": images.flatten(1)})


def batch_of(images: Tensor) -> Batch:
    return only_unlabeled(image_batch(0, num_views=1))._replace(unlabeled=(images,))


def turned(image: list[Row], turns: int) -> list[Row]:
    """Quarter turns against the clock: the last column becomes the first row."""
    for _ in range(turns):
        image = [[image[column][SIDE - 1 - row] for column in range(SIDE)] for row in range(SIDE)]
    return image


def test_the_loss_and_its_pull_are_those_of_the_loops() -> None:
    torch.manual_seed(0)
    method, images = RotNet(Pixels(), make_problem()), torch.randn(BATCH, 1, SIDE, SIDE)
    outcome = method(batch_of(images))
    outcome.loss.backward()

    weights, biases = method.rotation_head.weight.tolist(), method.rotation_head.bias.tolist()
    losses, right, pull = [], [], [[0.0] * SIDE**2 for _ in range(TURNS)]
    for (image,) in images.tolist():
        for turns in range(TURNS):
            pixels = [pixel for row in turned(image, turns) for pixel in row]
            logits = [
                bias + sum(w * pixel for w, pixel in zip(row, pixels, strict=True))
                for row, bias in zip(weights, biases, strict=True)
            ]
            losses.append(cross_entropy(hard(turns, TURNS), logits))
            right.append(float(max(range(TURNS), key=logits.__getitem__) == turns))
            for turn, probability in enumerate(softmax(logits)):
                for place, pixel in enumerate(pixels):
                    pull[turn][place] += (probability - (turn == turns)) * pixel / (BATCH * TURNS)

    assert list(outcome.losses) == ["rotation"]
    assert outcome.losses["rotation"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert outcome.metrics["turns_found"].item() == pytest.approx(sum(right) / len(right))
    assert 0 < sum(right) < len(right)
    torch.testing.assert_close(method.rotation_head.weight.grad, torch.tensor(pull), rtol=1e-4, atol=1e-6)


def test_it_learns_which_way_is_up() -> None:
    torch.manual_seed(1)
    images = torch.rand(64, 3, 8, 8)
    images[:, :, :4] += 2  # the sky is bright
    method = RotNet(SmallNet(), make_problem()).train()
    optimizer = torch.optim.SGD([weight for weight in method.parameters() if weight.requires_grad], 0.5)
    for _ in range(100):
        outcome = method(batch_of(images))
        optimizer.zero_grad()
        outcome.loss.backward()
        optimizer.step()
    assert outcome.metrics["turns_found"] > 0.95


def test_the_linear_layer_stays_as_it_is_and_no_view_is_labeled() -> None:
    method = RotNet(SmallNet(), make_problem())
    assert not any(weight.requires_grad for weight in method.net.head.parameters())
    assert method.views.labeled == ()
    assert method.projector is None


def test_images_that_are_not_square_are_refused() -> None:
    with pytest.raises(InputError, match=r"^Only square images can be rotated by quarter turns, not 6 x 4 pixels"):
        RotNet(SmallNet(), make_problem())(batch_of(torch.zeros(2, 3, 4, 6)))
