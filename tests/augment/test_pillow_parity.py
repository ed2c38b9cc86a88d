"""Every operation does to real images what Pillow does, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from epass.augment import CUTOUT_COLOR, OPERATIONS, apply_operations, cut_out

KINDS = ("photos", "wide", "tall", "large", "halves", "gray", "digits", "blank")


def apply_operation(pixels: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    return apply_operations(pixels, operation[:, None], magnitude[:, None])


def test_the_table_is_the_list_of_the_specification():
    first_half = ("auto_contrast", "brightness", "color", "contrast", "equalize", "identity", "posterize")
    second_half = ("rotate", "sharpness", "shear_x", "shear_y", "solarize", "translate_x", "translate_y")
    assert tuple(OPERATIONS) == first_half + second_half
    assert {OPERATIONS[name] for name in ("auto_contrast", "equalize", "identity")} == {(0, 0)}
    assert CUTOUT_COLOR == (125, 123, 114)
    assert OPERATIONS["posterize"] == (4, 8)
    assert OPERATIONS["rotate"] == (-30, 30)
    assert OPERATIONS["solarize"] == (0, 256)
    assert {OPERATIONS[name] for name in ("brightness", "color", "contrast", "sharpness")} == {(0.05, 0.95)}
    assert {OPERATIONS[name] for name in ("shear_x", "shear_y", "translate_x", "translate_y")} == {(-0.3, 0.3)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_equals_pillow(
    name: str, kind: str, real_images: dict[str, Tensor], pillow_operation: Callable[..., Tensor]
):
    images = real_images[kind]
    low, high = OPERATIONS[name]
    # Round numbers as people write them, and numbers between them as they are drawn.
    grid = torch.cat([torch.linspace(low, high, 13), torch.rand(12, generator=torch.Generator().manual_seed(5))])
    grid[13:] = low + grid[13:] * (high - low)
    grid = grid if high > low else grid[:1]
    batch = images.repeat_interleave(len(grid), dim=0)
    magnitude = grid.repeat(len(images))
    operation = torch.full((len(batch),), list(OPERATIONS).index(name))

    ours = apply_operation(batch, operation, magnitude)
    pairs = zip(batch, magnitude.tolist(), strict=True)
    theirs = torch.stack([pillow_operation(name, pixels, value) for pixels, value in pairs])

    assert ours.dtype == torch.uint8
    assert ours.shape == batch.shape
    different = (ours != theirs).float().mean().item()
    assert different == 0, f"{name} on {kind}: {different:.4%} of the pixels differ"


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "identity"])
def test_every_operation_shows_on_a_photo(name: str, photos: Tensor):
    magnitude = torch.full((len(photos),), OPERATIONS[name][0])
    changed = apply_operation(photos, torch.full((len(photos),), list(OPERATIONS).index(name)), magnitude)
    assert (changed != photos).flatten(1).any(1).sum() >= len(photos) // 2


def test_auto_contrast_agrees_for_all_extremes(pillow_operation: Callable[..., Tensor]):
    """Every seventh pair of extremes, because Pillow's rounding in double precision decides many entries."""
    levels = torch.arange(256)
    low, high = torch.triu_indices(256, 256, offset=1)
    rows = torch.stack([low, high], dim=1)[::7]
    batch = torch.minimum(torch.maximum(levels, rows[:, :1]), rows[:, 1:]).to(torch.uint8)[:, None, None, :]
    ours = apply_operation(batch, torch.zeros(len(batch), dtype=torch.long), torch.zeros(len(batch)))
    theirs = torch.stack([pillow_operation("auto_contrast", pixels, 0.0) for pixels in batch])
    assert torch.equal(ours, theirs)


def test_equalize_agrees_where_counts_are_exact_multiples(pillow_operation: Callable[..., Tensor]):
    """Steps of 98 pixels: the double nearest to 1/98 is too small, so a product with it falls short of the integer."""
    counts = torch.full((256,), 98)
    counts[0], counts[254] = 49, 98 + 49
    batch = torch.arange(256).repeat_interleave(counts).to(torch.uint8)[None, None, None]
    ours = apply_operation(batch, torch.tensor([list(OPERATIONS).index("equalize")]), torch.zeros(1))
    assert torch.equal(ours[0], pillow_operation("equalize", batch[0], 0.0))


def test_posterize_keeps_at_least_one_bit(photos: Tensor, pillow_operation: Callable[..., Tensor]):
    posterize = torch.full((len(photos),), list(OPERATIONS).index("posterize"))
    ours = apply_operation(photos, posterize, torch.full((len(photos),), 0.5))
    assert torch.equal(ours, torch.stack([pillow_operation("posterize", pixels, 1.0) for pixels in photos]))


def test_other_numbers_of_channels_pass(photos: Tensor):
    four = torch.cat([photos, photos[:, :1]], dim=1)
    for number in range(len(OPERATIONS)):
        count = len(four)
        assert apply_operation(four, torch.full((count,), number), torch.full((count,), 0.2)).shape == four.shape
    assert cut_out(four, torch.full((len(four),), 0.5), torch.full((len(four), 2), 0.5)).shape == four.shape


@pytest.mark.parametrize("kind", ["photos", "wide", "tall", "gray", "digits"])
def test_cutout_equals_pillow(kind: str, real_images: dict[str, Tensor], pillow_cutout: Callable[..., Tensor]):
    generator = torch.Generator().manual_seed(3)
    images = real_images[kind].repeat(40, 1, 1, 1)
    fraction = 0.5 * torch.rand(len(images), generator=generator)
    center = torch.rand((len(images), 2), generator=generator)
    fraction[:40], center[40:80, 0], center[80:120, 1] = 0.5, 0.0, 0.999
    expected = [pillow_cutout(*each) for each in zip(images, fraction, center, strict=True)]
    assert torch.equal(cut_out(images, fraction, center), torch.stack(expected))


def test_cutout_box_is_measured_from_the_clamped_corner():
    black = torch.zeros(3, 3, 10, 10, dtype=torch.uint8)
    center = torch.tensor([[0.0, 0.5], [0.99, 0.99], [0.5, 0.5]])
    painted = cut_out(black, torch.tensor([0.4, 0.4, 0.0]), center)[:, 0] == CUTOUT_COLOR[0]
    assert painted[0].nonzero().aminmax(dim=0).max.tolist() == [4, 7]  # moved down, not shortened; 4 pixels + 1
    assert painted[0].sum() == 25
    assert painted[1].nonzero().amin(0).tolist() == [7, 7]
    assert painted[1].sum() == 9
    assert painted[2].sum() == 0
