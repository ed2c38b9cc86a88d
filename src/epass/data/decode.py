"""Image files of every kind to square uint8 RGB pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .resize import central_square

if TYPE_CHECKING:
    from PIL.Image import Image

Progress = Callable[[int, int], None]  # (images done, images in all)


def decode_all(paths: Sequence[Path], image_size: int, progress: Progress | None = None) -> Tensor:
    """The images at `paths` as uint8 (N, 3, image_size, image_size), decoded by a few threads."""
    pixels = torch.empty(len(paths), 3, image_size, image_size, dtype=torch.uint8)
    # Pillow lets other threads run while it decodes; more than a few of them only wait for each other.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done, image in enumerate(pool.map(lambda path: decode(path, image_size), paths)):
            pixels[done] = image
            if progress is not None:
                progress(done + 1, len(paths))
    return pixels


def decode(path: Path, image_size: int) -> Tensor:
    """The central square of the image at `path`, upright, in RGB, scaled to `image_size`: uint8 (3, S, S)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            # A photo is decoded at the coarsest resolution that still leaves the antialiasing below something to do.
            file.draft(None, (4 * image_size, 4 * image_size))
            file.load()
            upright = ImageOps.exif_transpose(file)
    except Exception as error:  # on a damaged file Pillow's decoders raise nearly anything
        raise InputError(f"The image '{path}' cannot be read ({_reason(error)}): replace or remove it.") from error
    if upright.mode == "F":
        raise InputError(f"The image '{path}' has floating-point pixels: convert it to 8 bits per channel.")
    top, left, side = central_square(upright.height, upright.width)
    box = (left, top, left + side, top + side)
    square = _to_rgb(upright).resize((image_size, image_size), Image.Resampling.BILINEAR, box=box)
    return torch.from_numpy(np.array(square).transpose(2, 0, 1))


def _to_rgb(image: Image) -> Image:
    from PIL import Image as Pillow

    if image.mode.startswith("I"):  # Pillow would clip 16-bit gray at 255, which turns most of it white
        levels = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Pillow.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:  # what lies under transparent pixels is arbitrary, often black on black
        image = image.convert("RGBA")
        image = Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    # Pillow's own text repeats the path here.
    return "not an image" if isinstance(error, UnidentifiedImageError) else str(error).rstrip(".")
