"""The views of an image that are embedded, made with Pillow.

On a CPU one image at a time is twenty times faster there than the batched operations of `augment`, which do all of them
to every image. The operations are equal bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..augment import CUTOUT_COLOR, OPERATIONS

if TYPE_CHECKING:
    from PIL.Image import Image

Random = np.random.Generator
VIEWS = 1  # to be raised when the same seed gives other views than before: what was embedded is then embedded again
WEAK_AREA, STRONG_AREA = (0.6, 1.0), (0.25, 1.0)  # of the window over the image
RATIO = 4 / 3  # of its longer to its shorter side, at most
NUM_OPERATIONS, CUTOUT = 3, 0.5
_TRIES = 10  # to draw a window that fits


def weak(image: Image, random: Random) -> Image:
    """A window of the image at full size, mirrored with a chance of one half."""
    return _window(image, WEAK_AREA, random)


def strong(image: Image, random: Random) -> Image:
    """A smaller window, then RandAugment, then Cutout, as in `augment.Strong`."""
    view, names = _window(image, STRONG_AREA, random), list(OPERATIONS)
    for number in random.integers(0, len(names), NUM_OPERATIONS):
        low, high = OPERATIONS[names[number]]
        view = PILLOW[names[number]](view, random.uniform(low, high))
    return _cut_out(view, CUTOUT * random.random(), random.random(2))


def _window(image: Image, area: tuple[float, float], random: Random) -> Image:
    from PIL import Image as Pillow

    width, height = image.size
    box = (0.0, 0.0, float(width), float(height))
    for _ in range(_TRIES):
        share, ratio = random.uniform(*area), math.exp(random.uniform(-1, 1) * math.log(RATIO))
        w, h = math.sqrt(share * width * height * ratio), math.sqrt(share * width * height / ratio)
        if w <= width and h <= height:
            left, top = random.random() * (width - w), random.random() * (height - h)
            box = (left, top, left + w, top + h)
            break
    view = image.resize(image.size, Pillow.Resampling.BILINEAR, box=box)
    return view.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else view


def _affine(image: Image, matrix: Sequence[float]) -> Image:
    from PIL import Image as Pillow

    return image.transform(image.size, Pillow.Transform.AFFINE, matrix)


def _enhance(kind: str) -> Callable[[Image, float], Image]:
    def apply(image: Image, value: float) -> Image:
        from PIL import ImageEnhance

        return cast("Image", getattr(ImageEnhance, kind)(image).enhance(value))

    return apply


def _tone(kind: str, *values: Callable[[float], Any]) -> Callable[[Image, float], Image]:
    def apply(image: Image, value: float) -> Image:
        from PIL import ImageOps

        return cast("Image", getattr(ImageOps, kind)(image, *(convert(value) for convert in values)))

    return apply


PILLOW: dict[str, Callable[[Any, float], Any]] = {
    "auto_contrast": _tone("autocontrast"),
    "brightness": _enhance("Brightness"),
    "color": _enhance("Color"),
    "contrast": _enhance("Contrast"),
    "equalize": _tone("equalize"),
    "identity": lambda image, _: image,
    "posterize": _tone("posterize", lambda value: max(1, math.floor(value))),
    "rotate": lambda image, angle: image.rotate(angle),
    "sharpness": _enhance("Sharpness"),
    "shear_x": lambda image, shear: _affine(image, (1, shear, 0, 0, 1, 0)),
    "shear_y": lambda image, shear: _affine(image, (1, 0, 0, shear, 1, 0)),
    "solarize": _tone("solarize", float),
    "translate_x": lambda image, share: _affine(image, (1, 0, share * image.width, 0, 1, 0)),
    "translate_y": lambda image, share: _affine(image, (1, 0, 0, 0, 1, share * image.height)),
}


def _cut_out(image: Image, fraction: float, center: np.ndarray[Any, Any]) -> Image:
    from PIL import ImageDraw

    side = fraction * image.width
    top, left = (max(0.0, place * size - side / 2) for place, size in zip(center, image.size[::-1], strict=True))
    top, left = math.floor(top), math.floor(left)
    image = image.copy()  # an operation may have returned what others see, too
    ImageDraw.Draw(image).rectangle((left, top, left + side, top + side), CUTOUT_COLOR)
    return image
