from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from epass.data import with_channels


def color(count: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 3, 9, 7), dtype=np.uint8))


def test_color_becomes_the_gray_of_pillow() -> None:
    pixels = color()

    gray = with_channels(pixels, 1)

    assert (gray.shape, gray.dtype) == ((3, 1, 9, 7), torch.uint8)
    for image, found in zip(pixels, gray, strict=True):
        expected = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
        assert np.array_equal(found[0].numpy(), np.asarray(expected))


def test_every_gray_level_survives_being_repeated() -> None:
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)

    repeated = with_channels(levels, 3)

    assert all(torch.equal(repeated[:, channel], levels[:, 0]) for channel in range(3))
    assert torch.equal(with_channels(repeated, 1), levels)


def test_what_fits_is_not_copied() -> None:
    pixels = color()

    assert with_channels(pixels, 3) is pixels


def test_no_image_at_all_can_be_converted() -> None:
    assert with_channels(color(0), 1).shape == (0, 1, 9, 7)
