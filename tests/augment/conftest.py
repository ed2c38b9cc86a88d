"""Real images, crops of the photos and digits that scikit-learn ships, and what Pillow makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pictures import from_pillow, to_pillow
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from epass.augment import CUTOUT_COLOR


def crops(width: int, height: int) -> Tensor:
    """Crops of both photos, from details to the whole view, (8, 3, height, width)."""
    pictures = []
    for photo in load_sample_images().images:
        image = Image.fromarray(photo)
        for left, top, side in ((0, 0, 400), (250, 120, 32), (300, 40, 150), (480, 300, 90)):
            box = (left, top, left + side, top + side)
            pictures.append(np.asarray(image.crop(box).resize((width, height), Image.Resampling.BILINEAR)))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="session")
def photos() -> Tensor:
    return crops(32, 32)


@pytest.fixture(scope="session")
def digits() -> Tensor:
    """Gray images (8, 1, 8, 8), among them levels 0 and 255."""
    images = load_digits().images[:8] * (255 / 16)
    return torch.from_numpy(images.astype(np.uint8))[:, None]


@pytest.fixture(scope="session")
def real_images(photos: Tensor, digits: Tensor) -> dict[str, Tensor]:
    """The kinds of image the operations must agree with Pillow on."""
    gray = [np.asarray(Image.fromarray(photo.permute(1, 2, 0).numpy()).convert("L")) for photo in photos]
    margin = digits[:, :, :, :1]
    return {
        "photos": photos,
        "wide": crops(47, 33),
        "tall": crops(33, 47),
        "large": crops(96, 96),
        "halves": crops(50, 30),  # round fractions of these sizes end on half a pixel
        "gray": torch.from_numpy(np.stack(gray))[:, None],
        "digits": digits,
        "blank": torch.cat([margin, 255 - margin]),  # one level only, too narrow to smooth
    }


def affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "auto_contrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "identity": lambda image, _: image,
    "posterize": lambda image, v: ImageOps.posterize(image, max(1, math.floor(v))),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: affine(image, (1, v, 0, 0, 1, 0)),
    "shear_y": lambda image, v: affine(image, (1, 0, 0, v, 1, 0)),
    "solarize": lambda image, v: ImageOps.solarize(image, v),
    "translate_x": lambda image, v: affine(image, (1, 0, v * image.width, 0, 1, 0)),
    "translate_y": lambda image, v: affine(image, (1, 0, 0, 0, 1, v * image.height)),
}


@pytest.fixture(scope="session")
def pillow_operation() -> Callable[[str, Tensor, float], Tensor]:
    return lambda name, pixels, value: from_pillow(PILLOW[name](to_pillow(pixels), value))


@pytest.fixture(scope="session")
def pillow_cutout() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The published code, with the drawn numbers handed in."""
    gray = from_pillow(Image.new("RGB", (1, 1), CUTOUT_COLOR).convert("L")).item()

    def cut_out(pixels: Tensor, fraction: Tensor, center: Tensor) -> Tensor:
        image = to_pillow(pixels)
        side = (fraction * image.width).item()
        left = int(max(0.0, (center[1] * image.width).item() - side / 2))
        top = int(max(0.0, (center[0] * image.height).item() - side / 2))
        corners = (left, top, min(image.width, left + side), min(image.height, top + side))
        ImageDraw.Draw(image).rectangle(corners, CUTOUT_COLOR if image.mode == "RGB" else gray)
        return from_pillow(image)

    return cut_out
