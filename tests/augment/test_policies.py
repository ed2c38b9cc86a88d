"""Drawing is seeded and fair, applying is pure, batched and never waits for the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from epass.augment import (
    OPERATIONS,
    POLICIES,
    Crop,
    Policy,
    Strong,
    Weak,
    make_policies,
    normalize,
    reflect_padding,
)
from epass.errors import InputError

NAMES = list(OPERATIONS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_row_18_reflect_padding():
    assert [reflect_padding(32, 0.875), reflect_padding(96, 0.875), reflect_padding(32, 0.95)] == [4, 12, 1]


def test_reflect_padding_survives_binary_fractions():
    assert [reflect_padding(100, 0.9), reflect_padding(10, 0.7), reflect_padding(224, 1.0)] == [10, 3, 0]


@pytest.mark.parametrize("kind", ["photos", "wide", "digits"])
def test_weak_is_pad_crop_flip(kind: str, real_images: dict[str, Tensor]):
    images = real_images[kind].repeat(8, 1, 1, 1)
    height, width = images.shape[-2:]
    policy = Weak(padding=4, vertical_flip=True)
    draws = policy.draw(len(images), seeded(7))
    expected = []
    for image, (top, left), (upside_down, mirrored) in zip(images.numpy(), *map(Tensor.tolist, draws), strict=True):
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), mode="reflect")
        window = padded[:, top : top + height, left : left + width]
        window = window[:, :, ::-1] if mirrored else window
        expected.append(window[:, ::-1] if upside_down else window)
    assert torch.equal(policy.apply(images, draws), torch.from_numpy(np.stack(expected)))


def test_padding_must_fit_into_the_image(digits: Tensor):
    fits, too_large = Weak(padding=7), Weak(padding=8)
    assert fits.apply(digits, fits.draw(len(digits), seeded())).shape == digits.shape
    with pytest.raises(InputError, match=r"padding of 8 pixels.* 8 x 8"):
        too_large.apply(digits, too_large.draw(len(digits), seeded()))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"padding": -1}, "padding"), ({"num_operations": -1}, "operations"), ({"cutout": 1.5}, "square")],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], word: str):
    with pytest.raises(InputError, match=word):
        make_policies(**{"padding": 4, **wrong})


def test_the_keywords_of_make_policies_are_those_of_all_policies_and_the_views():
    known = dict(inspect.signature(make_policies).parameters)
    views = {name: known.pop(name).default for name in ("weak", "strong", "crop")}
    assert views == {"weak": "weak", "strong": "strong", "crop": "crop"}
    assert set(known) == {name for policy in POLICIES.values() for name in inspect.signature(policy).parameters}
    policies = make_policies(
        padding=3, horizontal_flip=False, vertical_flip=True, color=False, num_operations=2, cutout=0.25
    )
    weak, strong, crop = policies["weak"], policies["strong"], policies["crop"]
    assert isinstance(weak, Weak)
    assert isinstance(strong, Strong)
    assert isinstance(crop, Crop)
    assert (vars(crop.flips), crop.color) == ({**vars(weak), "padding": 0}, False)
    assert vars(weak) == vars(strong.weak) == {"padding": 3, "horizontal_flip": False, "vertical_flip": True}
    assert (len(strong.operations), strong.num_operations, strong.cutout) == (9, 2, 0.25)


def test_the_medium_view_is_the_strong_one_with_a_single_operation_or_half_of_the_noise():
    for number, fewer in ((3, 1), (1, 1), (0, 0)):
        policies = make_policies(padding=3, color=False, num_operations=number, cutout=0.25)
        strong, medium = (vars(policies[name]) for name in ("strong", "medium"))
        same = {"operations": strong["operations"], "cutout": 0.25, "num_operations": fewer}
        assert {key: medium[key] for key in same} == same
        assert vars(medium["weak"]) == vars(strong["weak"])
    vectors = make_policies(
        weak="weak-noise",
        strong="strong-noise",
        crop="strong-noise",
        center=[0.0],
        spread=[1.0],
        noise=0.4,
        dropout=0.2,
    )
    found = {
        name: (vars(vectors[name])["noise"], vars(vectors[name])["dropout"]) for name in ("weak", "medium", "strong")
    }
    assert found == {"weak": (0.2, 0.1), "medium": (0.4, 0.2), "strong": (0.8, 0.4)}


@pytest.mark.parametrize("name", ["weak", "strong", "crop"])
def test_the_seed_decides_the_draws(name: str):
    policy = make_policies(padding=4)[name]
    first, again, other = policy.draw(64, seeded(1)), policy.draw(64, seeded(1)), policy.draw(64, seeded(2))
    for one, same, different in zip(first, again, other, strict=True):
        assert one.shape[0] == 64
        assert torch.equal(one, same)
        assert not torch.equal(one, different)


def test_strong_draws_are_uniform():
    draws = Strong(padding=4, vertical_flip=True).draw(20000, seeded(3))
    for side in draws.offset.unbind(1):
        shares = torch.bincount(side, minlength=9) / len(side)
        assert shares.shape == (9,)
        assert (shares - 1 / 9).abs().max() < 0.01
    assert ((draws.flip.float().mean(0) - 0.5).abs() < 0.02).all()
    assert abs(draws.flip.all(1).float().mean().item() - 0.25) < 0.02
    assert draws.operation.shape == draws.magnitude.shape == (20000, 3)
    for stage in draws.operation.unbind(1):
        shares = torch.bincount(stage, minlength=14) / len(stage)
        assert shares.shape == (14,)
        assert (shares - 1 / 14).abs().max() < 0.01
    # With replacement: two stages agree as often as independent dice with 14 sides.
    assert abs((draws.operation[:, 0] == draws.operation[:, 1]).float().mean().item() - 1 / 14) < 0.01
    for number, (low, high) in enumerate(OPERATIONS.values()):
        magnitude = draws.magnitude[draws.operation == number]
        assert low <= magnitude.min()
        assert magnitude.max() <= high
        assert abs(magnitude.mean().item() - (low + high) / 2) <= 0.02 * (high - low)
        assert magnitude.max() - magnitude.min() >= 0.98 * (high - low)
    assert draws.hole_fraction.min() >= 0
    assert 0.49 < draws.hole_fraction.max() < 0.5
    assert 0 <= draws.hole_center.min() < 0.01 < 0.99 < draws.hole_center.max() < 1


def test_without_color_only_the_reduced_list_is_drawn():
    draws = Strong(padding=1, color=False).draw(2000, seeded(4))
    drawn = {NAMES[number] for number in draws.operation.unique().tolist()}
    assert drawn == {
        *("brightness", "equalize", "identity", "rotate", "sharpness"),
        *("shear_x", "shear_y", "translate_x", "translate_y"),
    }
    rotations = draws.magnitude[draws.operation == NAMES.index("rotate")]
    assert rotations.min() < -25
    assert rotations.max() > 25


@pytest.mark.parametrize(("horizontal", "vertical"), [(True, False), (False, True), (False, False)])
def test_flips_that_are_off_never_happen(horizontal: bool, vertical: bool, photos: Tensor):
    policy = Weak(padding=0, horizontal_flip=horizontal, vertical_flip=vertical)
    images = photos.repeat(8, 1, 1, 1)
    views = policy.apply(images, policy.draw(len(images), seeded(5)))
    variants = {"same": images, "mirrored": images.flip(3), "upside_down": images.flip(2)}
    counts = {name: (views == variant).flatten(1).all(1).sum().item() for name, variant in variants.items()}
    assert sum(counts.values()) == len(images)
    assert (counts["mirrored"] > 0) is horizontal
    assert (counts["upside_down"] > 0) is vertical


def test_strong_is_weak_then_operations_then_cutout(
    photos: Tensor, pillow_operation: Callable[..., Tensor], pillow_cutout: Callable[..., Tensor]
):
    images = photos.repeat(25, 1, 1, 1)
    policy = Strong(padding=4)
    draws = policy.draw(len(images), seeded(6))
    views = policy.apply(images, draws)
    weak = policy.weak.apply(images, draws[:2])
    for view, expected, operation, magnitude, fraction, center in zip(views, weak, *draws[2:], strict=True):
        for number, value in zip(operation.tolist(), magnitude.tolist(), strict=True):
            expected = pillow_operation(NAMES[number], expected, value)
        assert torch.equal(view, pillow_cutout(expected, fraction, center))


def test_strong_without_operations_and_cutout_is_weak(photos: Tensor):
    policy = Strong(padding=4, num_operations=0, cutout=0.0)
    draws = policy.draw(len(photos), seeded(8))
    assert torch.equal(policy.apply(photos, draws), policy.weak.apply(photos, draws[:2]))


@pytest.mark.parametrize("kind", ["photos", "digits"])
@pytest.mark.parametrize("name", ["weak", "strong", "crop"])
def test_rows_are_independent_of_the_batch(name: str, kind: str, real_images: dict[str, Tensor]):
    policy: Policy = make_policies(padding=2, vertical_flip=True)[name]
    images = real_images[kind].repeat(8, 1, 1, 1)
    before = images.clone()
    draws = policy.draw(len(images), seeded(9))
    together = policy.apply(images, draws)
    for row in range(len(images)):
        alone = policy.apply(images[row : row + 1], tuple(part[row : row + 1] for part in draws))
        assert torch.equal(together[row], alone[0])
    every_third = policy.apply(images[1::3], tuple(part[1::3] for part in draws))
    assert torch.equal(together[1::3], every_third)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", ["strong", "crop"])
def test_views_of_other_memory_layouts_are_the_same(name: str, photos: Tensor):
    policy = make_policies(padding=4)[name]
    draws = policy.draw(len(photos), seeded(10))
    assert torch.equal(policy.apply(photos.to(memory_format=torch.channels_last), draws), policy.apply(photos, draws))


class NoHostSync(TorchDispatchMode):
    """Fails where a CUDA device would have to be waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "bincount", "masked_select", "equal", "unique"), name
        if name in ("index", "index_put", "index_put_"):
            assert all(index is None or index.dtype != torch.bool for index in args[1]), f"boolean {name}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["weak", "strong", "crop"])
def test_nothing_waits_for_the_device(name: str, photos: Tensor):
    policy = make_policies(padding=4)[name]
    policy.draw(1, seeded())
    with NoHostSync():
        policy.apply(photos, policy.draw(len(photos), seeded()))


def test_the_sync_guard_bites():
    with NoHostSync(), pytest.raises(AssertionError):
        torch.arange(3)[torch.arange(3) > 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strong", "crop"])
def test_a_policy_compiles_to_one_graph(name: str, photos: Tensor):
    policy = make_policies(padding=4)[name]
    draws = policy.draw(len(photos), seeded(11))
    compiled = torch.compile(policy.apply, fullgraph=True, backend="eager")
    assert torch.equal(compiled(photos, draws), policy.apply(photos, draws))
    plain = tuple(draws)
    assert torch.equal(compiled(photos, plain), policy.apply(photos, type(draws)(*plain)))


def test_normalize(photos: Tensor):
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.25, 2.0])
    normalized = normalize(photos, mean, std)
    expected = (photos.numpy() / 255 - mean.view(3, 1, 1).numpy()) / std.view(3, 1, 1).numpy()
    assert normalized.dtype == torch.float32
    assert torch.allclose(normalized, torch.from_numpy(expected).float(), atol=1e-6)
