"""Views of an image: drawn by seed, image and number, with operations that are those of `augment`, bit by bit."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from epass.augment import OPERATIONS, apply_operations, cut_out
from epass.features.embed import make_views
from epass.features.views import PILLOW, RATIO, STRONG_AREA, WEAK_AREA, _cut_out, _window, strong, weak


@pytest.fixture(scope="module", params=[(40, 40), (47, 33)], ids=["square", "wide"])
def photo(request: pytest.FixtureRequest) -> Image.Image:
    return Image.fromarray(load_sample_image("china.jpg")).resize(request.param)


def to_tensor(*images: Image.Image) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_that_of_augment(name: str, photo: Image.Image) -> None:
    low, high = OPERATIONS[name]
    magnitude = low + (high - low) * torch.rand(20, generator=torch.Generator().manual_seed(0))
    theirs = to_tensor(*(PILLOW[name](photo, value) for value in magnitude.tolist()))
    operation = torch.full((20, 1), list(OPERATIONS).index(name))
    assert torch.equal(theirs, apply_operations(to_tensor(photo).repeat(20, 1, 1, 1), operation, magnitude[:, None]))


def test_every_operation_has_its_pillow_version() -> None:
    assert list(PILLOW) == list(OPERATIONS)


def test_cutout_is_that_of_augment(photo: Image.Image) -> None:
    generator = torch.Generator().manual_seed(0)
    # sixty-fourths, so that float32 and Python's floats are the same numbers
    fraction = torch.randint(1, 33, (40,), generator=generator) / 64
    center = torch.randint(0, 64, (40, 2), generator=generator) / 64
    center[:2], fraction[:2] = torch.tensor([[0.0, 0.0], [63 / 64, 63 / 64]]), 0.5
    before = np.asarray(photo).copy()
    pairs = zip(fraction.tolist(), center.numpy(), strict=True)
    theirs = to_tensor(*(_cut_out(photo, side, place) for side, place in pairs))
    assert torch.equal(theirs, cut_out(to_tensor(photo).repeat(40, 1, 1, 1), fraction, center))
    assert np.array_equal(np.asarray(photo), before)  # what others see is left alone


def test_a_view_is_a_function_of_seed_image_and_number() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    first = make_views(pixels, b"one", 2, 0)
    assert first.shape == (4, 24, 24, 3)
    assert np.array_equal(first, make_views(pixels, b"one", 2, 0))
    assert len({view.tobytes() for view in (*first, pixels)}) == 5
    more = make_views(pixels, b"one", 3, 0)
    assert np.array_equal(more[[0, 1, 3, 4]], first)  # whatever else is drawn
    for other in (make_views(pixels, b"two", 2, 0), make_views(pixels, b"one", 2, 1)):
        assert not any(np.array_equal(here, there) for here, there in zip(first, other, strict=True))


def test_weak_and_strong_views_are_drawn_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[float] = []

    def noted(image: Image.Image, random: np.random.Generator) -> Image.Image:
        draws.append(random.random())
        return image

    for name in ("weak", "strong"):
        monkeypatch.setattr(sys.modules[make_views.__module__], name, lambda *arguments: noted(*arguments))
    make_views(np.zeros((4, 4, 3), np.uint8), b"one", 2, 0)
    assert len(set(draws)) == 4


def test_without_views_there_is_the_plain_one() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert np.array_equal(make_views(pixels, b"one", 0, 0), pixels[None])


class Recorder:
    """Stands for an image and writes down which window of it is asked for."""

    def __init__(self, width: int, height: int) -> None:
        self.size = self.width, self.height = width, height
        self.boxes: list[tuple[float, float, float, float]] = []
        self.mirrored = 0

    def resize(self, size: tuple[int, int], _: Any, *, box: tuple[float, float, float, float]) -> Recorder:
        assert size == self.size
        self.boxes.append(box)
        return self

    def transpose(self, _: Any) -> Recorder:
        self.mirrored += 1
        return self


@pytest.mark.parametrize("area", [WEAK_AREA, STRONG_AREA])
@pytest.mark.parametrize("size", [(224, 224), (60, 45)])
def test_windows_lie_inside_of_the_image(size: tuple[int, int], area: tuple[float, float]) -> None:
    image, random = Recorder(*size), np.random.default_rng(0)
    for _ in range(400):
        _window(image, area, random)
    left, top, right, bottom = np.array(image.boxes).T
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= size[0]
    assert bottom.max() <= size[1]
    share, ratio = (right - left) * (bottom - top) / math.prod(size), (right - left) / (bottom - top)
    whole = share == 1
    assert whole.mean() < 0.05  # where none of the tries fits
    assert area[0] <= share.min() < area[0] + 0.05
    assert share.max() <= 1
    assert 1 / RATIO - 1e-9 <= ratio[~whole].min() < ratio[~whole].max() <= RATIO + 1e-9
    assert 150 < image.mirrored < 250


def test_an_image_that_no_window_fits_is_taken_whole() -> None:
    image, random = Recorder(400, 4), np.random.default_rng(0)
    for _ in range(20):
        _window(image, WEAK_AREA, random)
    assert set(image.boxes) == {(0.0, 0.0, 400.0, 4.0)}


def test_a_weak_view_keeps_colors_and_a_strong_one_does_not() -> None:
    flat = Image.new("RGB", (32, 32), (200, 100, 50))
    for number in range(20):
        assert weak(flat, np.random.default_rng(number)).getcolors() == [(1024, (200, 100, 50))]
    changed = [
        strong(flat, np.random.default_rng(number)).getcolors() != [(1024, (200, 100, 50))] for number in range(20)
    ]
    assert all(changed)  # at least a square is painted over
