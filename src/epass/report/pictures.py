"""Thumbnails as text that goes into a page."""

from __future__ import annotations

import io
from base64 import b64encode
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SMALL = 16  # pixels of a side up to which an image is better enlarged in squares than blurred
HEAVY, HEAVY_SHEET = 20_000, 200_000  # bytes from which on a photo, or a sheet of them, is compressed with loss
HOPELESS = 2  # times as heavy in haste: what takes five times as long would not make it light enough

Pixels = NDArray[np.uint8]


class Sprite(NamedTuple):
    """Many thumbnails side by side in one picture."""

    address: str  # a data URI
    columns: int
    rows: int
    height: int  # of one, in pixels
    width: int


class Pictures:
    """All pictures of a page, each stored once: whoever shows one has its class."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.style = ""

    def name(self, address: str, side: int) -> str:
        """The class of the picture at a data URI, which shows images of `side` pixels."""
        key = sha256(address.encode()).hexdigest()
        if key not in self.names:
            self.names[key] = f"picture-{len(self.names)}"
            crisp = "; image-rendering: pixelated" if side <= SMALL else ""
            self.style += f".{self.names[key]} {{ background-image: url({address}){crisp}; }}\n"
        return self.names[key]


def address_of(pixels: Pixels, heavy: int = HEAVY) -> str:
    """A data URI of one image (C, h, w)."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    buffer, kind = io.BytesIO(), "png"
    image.save(buffer, "PNG", compress_level=1)
    if buffer.tell() <= HOPELESS * heavy:
        buffer = io.BytesIO()
        image.save(buffer, "PNG", optimize=True)
    if buffer.tell() > heavy:
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
    address = address_of(sheet.reshape(channels, rows * height, columns * width), HEAVY_SHEET)
    return Sprite(address, columns, rows, height, width)
