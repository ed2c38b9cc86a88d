from __future__ import annotations

import pytest
import torch

from epass.errors import InputError
from epass.parts.rotation import TURNS, turn_at_random


def turned(image: list[list[float]], turns: int) -> list[list[float]]:
    """Quarter turns against the clock: the last column becomes the first row."""
    size = len(image)
    for _ in range(turns):
        image = [[image[column][size - 1 - row] for column in range(size)] for row in range(size)]
    return image


def test_every_image_is_turned_as_its_number_says() -> None:
    images = torch.randn(40, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    rotated, turns = turn_at_random(images, torch.tensor(7), salt=2)
    assert turns.dtype == torch.int64
    assert set(turns.tolist()) == set(range(TURNS))
    for image, found, turn in zip(images, rotated, turns.tolist(), strict=True):
        wanted = torch.tensor([turned(channel, turn) for channel in image.tolist()])
        torch.testing.assert_close(found, wanted)


def test_turns_are_uniform_and_follow_seed_and_salt() -> None:
    images = torch.zeros(4000, 1, 2, 2)
    _, turns = turn_at_random(images, torch.tensor(3), salt=2)
    counts = [turns.tolist().count(turn) for turn in range(TURNS)]
    assert all(abs(count - 1000) < 120 for count in counts)
    assert torch.equal(turns, turn_at_random(images, torch.tensor(3), salt=2)[1])
    assert not torch.equal(turns, turn_at_random(images, torch.tensor(4), salt=2)[1])
    assert not torch.equal(turns, turn_at_random(images, torch.tensor(3), salt=0)[1])


def test_images_that_are_not_square_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"not 6 x 4 pixels.*data.image_size.*rotation_weight=0"):
        turn_at_random(torch.zeros(2, 3, 4, 6), torch.tensor(0), salt=2)
