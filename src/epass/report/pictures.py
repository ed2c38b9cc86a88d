"""Thumbnails as text that goes into a page."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SMALL = 16  # pixels of a side up to which an image is better enlarged in squares than blurred
HEAVY = 200_000  # bytes from which on a photo is compressed with loss

Pixels = NDArray[np.uint8]


class Sprite(NamedTuple):
    """Many thumbnails side by side in one picture."""

    address: str  # a data URI
    columns: int
    rows: int
    height: int  # of one, in pixels
    width: int


def address_of(pixels: Pixels) -> str:
    """A data URI of one image (C, h, w)."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    buffer, kind = io.BytesIO(), "png"
    image.save(buffer, "PNG", optimize=True)
    if buffer.tell() > HEAVY:
        buffer, kind = io.BytesIO(), "jpeg"
        image.save(buffer, "JPEG", quality=85, subsampling=0)
    return f"data:image/{kind};base64,{b64encode(buffer.getvalue()).decode()}"


def sprite_of(thumbnails: Pixels) -> Sprite:
    """All images (n, C, h, w) in one picture, row by row."""
    count, channels, height, width = thumbnails.shape
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    tiles = np.zeros((rows * columns, channels, height, width), dtype=np.uint8)
    tiles[:count] = thumbnails
    sheet = tiles.reshape(rows, columns, channels, height, width).transpose(2, 0, 3, 1, 4)
    return Sprite(address_of(sheet.reshape(channels, rows * height, columns * width)), columns, rows, height, width)
