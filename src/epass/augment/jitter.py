"""Color jitter, grayscale and blur of contrastive learning, for every image its own. All but the blur equal Pillow."""

from __future__ import annotations

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from epass.augment.tone import luminance, mean_level, per_image, to_bytes

# Operation -> how far it strays, and from which neutral value; the position in this table is its number.
JITTER: Final[dict[str, tuple[float, float]]] = {
    "brightness": (0.4, 1.0),
    "contrast": (0.4, 1.0),
    "saturation": (0.4, 1.0),
    "hue": (0.1, 0.0),
}
BLUR: Final = (0.1, 2.0)  # standard deviation in pixels, of images at least BLUR_SIZE pixels wide and high
BLUR_SIZE: Final = 64


def color_jitter(pixels: Tensor, order: Tensor, jitter: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, in an order of its own.

    Brightness, contrast and saturation are `ImageEnhance` of Pillow with factors on both sides of one. The hue is that
    of Pillow's "HSV" images, turned by a share of the circle in whole steps of 1/255, rounded towards zero. Less than
    one step leaves an image alone, although Pillow's way to HSV and back does not. Only RGB images have a hue.

    Args:
        pixels: (N, C, H, W) uint8 images.
        order: (N, 4) permutations of the positions in JITTER.
        jitter: (N, 4) a value for each entry of JITTER; (1, 1, 1, 0) is neutral.

    Returns:
        (N, C, H, W) uint8 images.
    """
    stages, hue = range(len(JITTER)), list(JITTER).index("hue")
    turned_at = order.argsort(1)[:, hue]
    # The hue takes longer than all the rest, so it is turned once, between what comes before it and what comes after.
    for i in stages[:-1]:
        pixels = _blend_one(pixels, torch.where(i < turned_at, order[:, i], hue), jitter)
    if pixels.shape[1] == 3:
        pixels = _turn_hue(pixels, jitter[:, hue])
    for i in stages[1:]:
        pixels = _blend_one(pixels, torch.where(i > turned_at, order[:, i], hue), jitter)
    return pixels


def grayscale(pixels: Tensor, chosen: Tensor) -> Tensor:
    """Give all channels of the `chosen` (N,) images the gray value of Pillow's `convert("L")`."""
    return torch.where(per_image(chosen), luminance(pixels).to(torch.uint8), pixels)


def gaussian_blur(pixels: Tensor, sigma: Tensor) -> Tensor:
    """Blur each image with a Gaussian of its own, edges repeated, cut off at three times the largest deviation.

    Pillow's `GaussianBlur` replaces the Gaussian by three boxes; this is the Gaussian itself. Images of less than
    BLUR_SIZE pixels are blurred less, in proportion, because their details are only a few pixels wide: those of 32
    pixels by at most one pixel, those of 8 pixels not to be seen.

    Args:
        pixels: (N, C, H, W) uint8 images.
        sigma: (N,) from 0, which leaves an image alone, to the larger number of BLUR, for images of BLUR_SIZE pixels.

    Returns:
        (N, C, H, W) uint8 images.
    """
    scale = min(1.0, min(pixels.shape[-2:]) / BLUR_SIZE)
    radius = math.ceil(3 * scale * BLUR[1])
    distance = torch.arange(-radius, radius + 1, device=pixels.device)
    sharpest = 1e-3  # a Gaussian so narrow is one pixel exactly, and zero could not divide
    kernel = torch.exp(-0.5 * (distance / (scale * sigma).clamp(min=sharpest)[:, None]) ** 2)
    weights = [per_image(weight) for weight in (kernel / kernel.sum(1, keepdim=True)).unbind(1)]
    blurred = pixels.float()
    for dim, margins in ((2, (0, 0, radius, radius)), (3, (radius, radius, 0, 0))):
        padded, blurred = F.pad(blurred, margins, mode="replicate"), torch.zeros_like(blurred)
        for i, weight in enumerate(weights):
            blurred.addcmul_(padded.narrow(dim, i, pixels.shape[dim]), weight)
    return to_bytes(blurred.add_(0.5))


def _blend_one(pixels: Tensor, number: Tensor, jitter: Tensor) -> Tensor:
    """Blend each image with black, its mean gray level or its gray image, whichever has this `number` in JITTER."""
    brightness, contrast, saturation = (torch.where(number == k, jitter[:, k], 1.0) for k in range(3))
    original, gray = pixels.to(torch.int16), luminance(pixels)
    flat = (gray * per_image(saturation != 1)).add_(mean_level(gray) * per_image(contrast != 1))
    # Pillow's degenerate + factor * (original - degenerate), rounded at the same places, and cut off beyond the range.
    factor = per_image(brightness * contrast * saturation)
    return to_bytes((original - flat).float().mul_(factor).add_(flat).clamp_(0, 255))


def _turn_hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of RGB images by shares of the circle, with Pillow's mixture of single and double precision."""
    steps = (turn * 255).to(torch.int32)
    level = pixels.to(torch.int32)
    red, green, blue = level.unbind(1)
    value, least = level.amax(1), level.amin(1)
    span = (value - least).clamp(min=1).float()
    from_red, from_green, from_blue = (((value - part).float() / span).double() for part in (red, green, blue))
    sixth = torch.where(
        red == value,
        from_blue - from_green,
        torch.where(green == value, 2 + from_red - from_blue, 4 + from_green - from_red),
    )
    hue = (torch.fmod(sixth.float().double() / 6 + 1, 1.0).float().double() * 255).to(torch.int32)
    saturation = ((span / value.clamp(min=1)).double() * 255).to(torch.int32)

    hue = (hue + steps[:, None, None]) & 255  # a byte overruns
    sector = torch.div(hue * 6, 255, rounding_mode="floor")
    rest = (hue.double() * 6 / 255 - sector).float().double()
    share = (saturation.double() / 255).float().double()
    low = _round_half_up(value * (1 - share))
    falling = _round_half_up(value * (1 - share * rest))
    rising = _round_half_up(value * (1 - share * (1 - rest)))
    # What red is in the six sectors; green is two sectors behind, blue four.
    story = torch.stack([value, falling, low, low, rising, value], 1)
    turned = torch.cat([story.gather(1, ((sector + ahead) % 6)[:, None].long()) for ahead in (0, 4, 2)], 1)
    colored = (value > least) & (saturation > 0)
    return torch.where((colored & (steps != 0)[:, None, None])[:, None], turned.to(torch.uint8), pixels)


def _round_half_up(value: Tensor) -> Tensor:
    return torch.floor(value + 0.5).to(torch.int32)
