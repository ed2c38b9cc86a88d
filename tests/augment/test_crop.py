"""The view of MoCo v2: its parts against Pillow, bit for bit but for the blur, and its draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pictures import from_pillow, to_pillow
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor

from epass.augment import JITTER, Crop, CropDraws, color_jitter, gaussian_blur, grayscale
from epass.augment.geometry import crop_window, resized_crop

KINDS = ("photos", "wide", "tall", "large", "gray", "digits", "blank")
NEUTRAL = torch.tensor([1.0, 1.0, 1.0, 0.0])
NAMES = list(JITTER)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def repeated(images: Tensor, times: int = 12) -> Tensor:
    return images.repeat(times, 1, 1, 1)


def turn_hue(image: Image.Image, turn: float) -> Image.Image:
    """The customary way by Pillow's HSV; a turn of less than one step is none."""
    steps = int(turn * 255)
    if image.mode != "RGB" or steps == 0:
        return image
    hue, saturation, value = image.convert("HSV").split()
    return Image.merge("HSV", (hue.point(lambda level: (level + steps) % 256), saturation, value)).convert("RGB")


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "hue": turn_hue,
}


def by_pillow(images: Tensor, *columns: Tensor, change: Callable[..., Image.Image]) -> Tensor:
    rows = zip(images, *(column.tolist() for column in columns), strict=True)
    return torch.stack([from_pillow(change(to_pillow(image), *values)) for image, *values in rows])


# --- Crop and scale --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_is_what_pillow_crops_and_scales(kind: str, real_images: dict[str, Tensor]) -> None:
    images = repeated(real_images[kind])
    height, width = images.shape[-2:]
    draws = Crop().draw(len(images), seeded(1))
    window = crop_window(height, width, area=draws.area, ratio=draws.ratio, position=draws.position)

    def cut(image: Image.Image, top: int, left: int, tall: int, wide: int) -> Image.Image:
        box = (left, top, left + wide, top + tall)
        return image.crop(box).resize(image.size, Image.Resampling.BILINEAR)

    expected = by_pillow(images, *window, change=cut)
    nowhere = torch.zeros_like(draws.flip)
    assert torch.equal(resized_crop(images, window, nowhere), expected)
    for flip, dims in (((True, False), (2,)), ((False, True), (3,)), ((True, True), (2, 3))):
        mirrored = resized_crop(images, window, nowhere | torch.tensor(flip))
        assert torch.equal(mirrored, expected.flip(dims))


def slow_window(
    height: int, width: int, areas: list[float], ratios: list[float], position: list[float]
) -> tuple[int, int, int, int]:
    for area, ratio in zip(areas, ratios, strict=True):
        wide = round(math.sqrt(area * height * width * ratio))
        tall = round(math.sqrt(area * height * width / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            break
    else:
        tall, wide = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
    return int(position[0] * (height - tall + 1)), int(position[1] * (width - wide + 1)), tall, wide


@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (33, 47), (96, 96), (20, 60)])
def test_the_window_is_the_first_candidate_that_fits(height: int, width: int) -> None:
    draws = Crop().draw(3000, seeded(2))
    area, ratio = draws.area[:, :2], draws.ratio[:, :2]  # two tries, so that some images have none that fits
    found = torch.stack(crop_window(height, width, area=area, ratio=ratio, position=draws.position), 1).tolist()
    rows = zip(area.tolist(), ratio.tolist(), draws.position.tolist(), strict=True)
    expected = [slow_window(height, width, *row) for row in rows]
    assert [tuple(row) for row in found] == expected
    whole = sum(tall == height or wide == width for _, _, tall, wide in expected)
    assert 0 < whole < len(expected)
    corners = [(top + tall, left + wide) for top, left, tall, wide in expected]
    assert max(corner[0] for corner in corners) == height
    assert max(corner[1] for corner in corners) == width
    assert min(min(row) for row in expected) == 0


def test_a_window_without_candidates_is_the_whole_square_image() -> None:
    too_wide = {"area": torch.ones(1, 3), "ratio": torch.full((1, 3), 1.3), "position": torch.full((1, 2), 0.99)}
    assert [part.item() for part in crop_window(32, 32, **too_wide)] == [0, 0, 32, 32]
    assert [part.item() for part in crop_window(20, 60, **too_wide)] == [0, 33, 20, 27]


# --- Colors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", JITTER)
def test_jitter_equals_pillow(name: str, kind: str, real_images: dict[str, Tensor]) -> None:
    reach, neutral = JITTER[name]
    images = repeated(real_images[kind])
    values = neutral + reach * torch.linspace(-1, 1, len(images))
    jitter = NEUTRAL.repeat(len(images), 1)
    jitter[:, NAMES.index(name)] = values
    order = torch.rand(len(images), 4, generator=seeded(3)).argsort(1)
    ours = color_jitter(images, order, jitter)
    assert ours.dtype == torch.uint8
    assert torch.equal(ours, by_pillow(images, values, change=PILLOW[name]))
    if kind == "photos":
        assert (ours != images).flatten(1).any(1).float().mean() > 0.9


def test_the_whole_circle_of_hues_equals_pillow() -> None:
    """Every turn on a grid of colors that has all corners and gray levels."""
    levels = torch.tensor([0, 1, 2, 31, 84, 127, 128, 170, 200, 254, 255], dtype=torch.uint8)
    grid = torch.cartesian_prod(levels, levels, levels).T.reshape(1, 3, 121, 11)
    turns = torch.linspace(-0.5, 0.5, 101)
    jitter = NEUTRAL.repeat(101, 1)
    jitter[:, 3] = turns
    images = repeated(grid, 101)
    ours = color_jitter(images, torch.arange(4).repeat(101, 1), jitter)
    assert torch.equal(ours, by_pillow(images, turns, change=turn_hue))


def test_jitter_goes_in_the_order_of_each_image(photos: Tensor) -> None:
    images = repeated(photos, 24)
    draws = Crop().draw(len(images), seeded(4))

    def change(image: Image.Image, order: list[int], values: list[float]) -> Image.Image:
        for number in order:
            if values[number] != NEUTRAL[number]:
                image = PILLOW[NAMES[number]](image, values[number])
        return image

    assert len(draws.order.unique(dim=0)) == 24
    expected = by_pillow(images, draws.order, draws.jitter, change=change)
    ours = color_jitter(images, draws.order, draws.jitter)
    assert torch.equal(ours, expected)
    backwards = color_jitter(images, draws.order.flip(1), draws.jitter)
    assert (backwards != ours).any()  # the order matters


@pytest.mark.parametrize("kind", KINDS)
def test_grayscale_equals_pillow(kind: str, real_images: dict[str, Tensor]) -> None:
    images = real_images[kind]
    chosen = torch.arange(len(images)) % 2 == 0
    gray = by_pillow(images, change=lambda image: image.convert("L").convert(image.mode))
    ours = grayscale(images, chosen)
    assert torch.equal(ours[chosen], gray[chosen])
    assert torch.equal(ours[~chosen], images[~chosen])


# --- Blur ------------------------------------------------------------------------------------------------------------


def slow_blur(image: Tensor, sigma: float, radius: int) -> Tensor:
    """The Gaussian as a sum over all pixels of a window, in double precision."""
    height, width = image.shape[-2:]
    weights = {d: math.exp(-(d**2) / (2 * sigma**2)) for d in range(-radius, radius + 1)}
    total = sum(weights.values())
    result = torch.zeros(image.shape, dtype=torch.float64)
    for down, first in weights.items():
        rows = (torch.arange(height) + down).clamp(0, height - 1)
        for right, second in weights.items():
            columns = (torch.arange(width) + right).clamp(0, width - 1)
            result += first / total * second / total * image[:, rows][:, :, columns].double()
    return result


@pytest.mark.parametrize(("kind", "scale", "radius"), [("large", 1.0, 6), ("photos", 0.5, 3), ("digits", 0.125, 1)])
def test_blur_is_a_gaussian(kind: str, scale: float, radius: int, real_images: dict[str, Tensor]) -> None:
    images = real_images[kind]
    sigma = torch.linspace(0.1, 2, len(images))
    ours = gaussian_blur(images, sigma)
    for blurred, image, width in zip(ours, images, sigma.tolist(), strict=True):
        assert (blurred.double() - slow_blur(image, scale * width, radius)).abs().max() <= 0.5 + 1e-3
    assert (ours != images).any() == (kind != "digits")  # a quarter of a pixel is less than a gray level


@pytest.mark.parametrize(("kind", "scale"), [("large", 1.0), ("photos", 0.5), ("wide", 33 / 64), ("gray", 0.5)])
def test_blur_is_near_the_boxes_of_pillow(kind: str, scale: float, real_images: dict[str, Tensor]) -> None:
    """Three levels of 255 on average over any image: Pillow's three boxes are not a Gaussian, above all narrow ones."""
    images = repeated(real_images[kind], 4)
    sigma = torch.linspace(0.1, 2, len(images))
    theirs = by_pillow(images, scale * sigma, change=lambda image, width: image.filter(ImageFilter.GaussianBlur(width)))
    ours = gaussian_blur(images, sigma)
    assert (ours.int() - theirs.int()).abs().float().flatten(1).mean(1).max() < 3
    assert (images.int() - theirs.int()).abs().float().flatten(1).mean(1).max() > 6


# --- The policy ------------------------------------------------------------------------------------------------------


def neutral_draws(count: int) -> CropDraws:
    return CropDraws(
        area=torch.ones(count, 10),
        ratio=torch.ones(count, 10),
        position=torch.full((count, 2), 0.5),
        flip=torch.zeros(count, 2, dtype=torch.bool),
        order=torch.arange(4).repeat(count, 1),
        jitter=NEUTRAL.repeat(count, 1),
        gray=torch.zeros(count, dtype=torch.bool),
        blur=torch.zeros(count),
    )


@pytest.mark.parametrize("kind", ["photos", "large", "gray", "digits"])
def test_neutral_draws_leave_images_alone(kind: str, real_images: dict[str, Tensor]) -> None:
    images = real_images[kind]
    assert torch.equal(Crop().apply(images, neutral_draws(len(images))), images)


def test_a_view_is_crop_jitter_gray_blur(photos: Tensor) -> None:
    images = repeated(photos)
    draws = Crop().draw(len(images), seeded(5))
    window = crop_window(32, 32, area=draws.area, ratio=draws.ratio, position=draws.position)
    expected = color_jitter(resized_crop(images, window, draws.flip), draws.order, draws.jitter)
    expected = gaussian_blur(grayscale(expected, draws.gray), draws.blur)
    assert torch.equal(Crop().apply(images, draws), expected)


@pytest.mark.parametrize("part", CropDraws._fields)
def test_every_draw_shows_in_the_view(part: str, photos: Tensor) -> None:
    images = repeated(photos)
    draws, other = (Crop(vertical_flip=True).draw(len(images), seeded(seed)) for seed in (6, 7))
    changed = draws._replace(**{part: getattr(other, part)})
    assert not torch.equal(Crop().apply(images, changed), Crop().apply(images, draws))


def test_draws_have_the_published_distributions() -> None:
    draws = Crop().draw(20_000, seeded(8))
    assert 0.2 <= draws.area.min() < 0.21 < 0.99 < draws.area.max() <= 1
    assert abs(draws.area.mean() - 0.6) < 0.01
    log_ratio = draws.ratio.log() / math.log(4 / 3)
    assert -1.0001 <= log_ratio.min() < -0.99
    assert 0.99 < log_ratio.max() <= 1.0001
    assert abs(log_ratio.mean()) < 0.01
    assert 0 <= draws.position.min() < 0.01 < 0.99 < draws.position.max() < 1
    shares = torch.bincount(draws.order @ torch.tensor([64, 16, 4, 1]))
    shares = shares[shares > 0] / 20_000
    assert len(shares) == 24
    assert (shares - 1 / 24).abs().max() < 0.01
    still = (draws.jitter == NEUTRAL).all(1)
    assert abs(still.float().mean() - 0.2) < 0.01
    for (reach, neutral), values in zip(JITTER.values(), draws.jitter[~still].unbind(1), strict=True):
        assert neutral - reach <= values.min() < neutral - 0.98 * reach
        assert neutral + 0.98 * reach < values.max() <= neutral + reach
        assert abs(values.mean() - neutral) < 0.02 * reach
    assert abs(draws.gray.float().mean() - 0.2) < 0.01
    blurred = draws.blur > 0
    assert abs(blurred.float().mean() - 0.5) < 0.01
    assert 0.1 <= draws.blur[blurred].min() < 0.11
    assert 1.98 < draws.blur.max() <= 2
    assert abs(draws.blur[blurred].mean() - 1.05) < 0.02
    assert JITTER == {"brightness": (0.4, 1), "contrast": (0.4, 1), "saturation": (0.4, 1), "hue": (0.1, 0)}


def test_windows_are_seldom_the_last_resort() -> None:
    draws = Crop().draw(20_000, seeded(9))
    _, _, tall, wide = crop_window(224, 224, area=draws.area, ratio=draws.ratio, position=draws.position)
    assert ((tall == 224) & (wide == 224)).float().mean() < 0.01
    assert (tall * wide / 224**2).min() < 0.21
    assert (tall / wide).max() < 1.36


@pytest.mark.parametrize(("horizontal", "vertical"), [(True, False), (False, True), (False, False)])
def test_flips_that_are_off_never_happen(horizontal: bool, vertical: bool) -> None:
    flip = Crop(horizontal_flip=horizontal, vertical_flip=vertical).draw(1000, seeded(10)).flip.float().mean(0)
    assert flip.tolist() == pytest.approx([0.5 * vertical, 0.5 * horizontal], abs=0.05)
    assert (flip[0] > 0, flip[1] > 0) == (vertical, horizontal)


def test_without_color_only_brightness_changes() -> None:
    draws = Crop(color=False).draw(1000, seeded(11))
    assert not draws.gray.any()
    assert (draws.jitter[:, 1:] == NEUTRAL[1:]).all()
    assert (draws.jitter[:, 0] != 1).float().mean() > 0.7
    assert (draws.blur > 0).any()


@pytest.mark.parametrize("channels", [1, 4])
def test_other_numbers_of_channels_pass(channels: int, photos: Tensor) -> None:
    images = torch.cat([photos, photos], 1)[:, :channels]
    views = Crop().apply(images, Crop().draw(len(images), seeded(12)))
    assert (views.shape, views.dtype) == (images.shape, torch.uint8)
