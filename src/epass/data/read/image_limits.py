"""What an image takes to decode, told by its header: bytes and time are limited before either is spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_DECODED = 7 * 2**27  # bytes that the images which are decoded at the same time may take
LARGEST_JPEG = 2**29  # bytes: it is looked through for its scans
MOST_SCANNED = 2**29  # pixels, counted again in every scan of a JPEG: some seconds
FEW_SCANS = 16  # which a photo of any size may have: those that are sent coarse first have ten
SLOWLY_DECODED = 2**21  # pixels in kinds of PPM that Pillow decodes in Python
PIECE = 2**20  # bytes of a JPEG that are looked through at a time
LEFT_TO_SCALE = 2  # a JPEG decodes to 1/8, 1/4 or 1/2, as long as so many times the side that is asked for are left
_SCAN = 0xDAFF  # the two bytes that begin a scan, and nothing else in the data of one, as a number
_WEBP = 17  # bytes for every pixel: its decoder keeps three copies
_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # of a pixel; of other modes 4
_SMALL_BLOCK = 2**24  # bytes of a TIFF's tile: programs write tiles of one size, however small the image is
_TIFF_TILE, _TIFF_ROWS, _TIFF_SAMPLES, _TIFF_BITS = (322, 323), 278, 277, 258


class Room:
    """Memory for several threads: each waits until there is enough for what it begins."""

    def __init__(self, size: int) -> None:
        self._free, self._size, self._changed = size, size, Condition()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        amount = min(amount, self._size)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= amount)
            self._free -= amount
        try:
            yield
        finally:
            with self._changed:
                self._free += amount
                self._changed.notify_all()


ROOM = Room(LARGEST_DECODED)


def check_pixels(image: Image) -> None:
    """Refuse what a small file can blow up to: Pillow itself only warns, up to twice its limit."""
    from PIL import Image as Pillow

    limit = Pillow.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ValueError(f"{image.width} x {image.height} pixels are more than the {limit:,} that are decoded")


def prepare(image: Image, stream: IO[bytes], side: int) -> int:
    """Choose the resolution of an open image that is to be scaled to `side`, and say how many bytes that takes.

    What would take too many, or too long, is a ValueError.
    """
    coefficients = _check_jpeg(image, stream) if image.format in ("JPEG", "MPO") else 0
    # A photo is decoded at the coarsest resolution that still leaves the antialiasing something to do. With less than
    # twice the side, pixels get several times as far from those of the whole photo (benchmarks/decoding.py).
    image.draft(None, (LEFT_TO_SCALE * side, LEFT_TO_SCALE * side))
    check_pixels(image)
    pixels = image.width * image.height
    if image.format == "PPM" and image.tile and image.tile[0][0] != "raw" and pixels > SLOWLY_DECODED:  # type: ignore[attr-defined]
        raise ValueError(f"of this kind of PPM, {SLOWLY_DECODED:,} pixels are decoded at most")
    own = _BYTES.get(image.mode, 4)
    decoded = _WEBP if image.format == "WEBP" else own
    turned, converted = own, 0 if image.mode == "RGB" else 4
    needed = pixels * (decoded + turned + converted) + coefficients
    if image.format == "TIFF":
        block = _tiff_block(image)
        if block > max(_SMALL_BLOCK, 8 * pixels):
            raise ValueError("its tiles are far larger than the image")
        needed += block
    if needed > LARGEST_DECODED:
        raise ValueError(f"decoding it would take {needed:,} bytes, more than {LARGEST_DECODED:,}")
    return needed


def _check_jpeg(image: Image, stream: IO[bytes]) -> int:
    """Refuse a JPEG of too many scans; returns the bytes of what is kept of one between its scans."""
    pixels, place = image.width * image.height, stream.tell()
    most, scans, last = max(FEW_SCANS, MOST_SCANNED // pixels), 0, b""
    if stream.seek(0, 2) > LARGEST_JPEG:
        raise ValueError(f"it has more than {LARGEST_JPEG:,} bytes")
    stream.seek(0)
    while piece := stream.read(PIECE):
        scans += count_scans(last + piece)
        last = piece[-1:]
    stream.seek(place)
    if scans > most:
        raise ValueError(f"{scans:,} scans are more than the {most:,} that are decoded at its size")
    return 2 * pixels * len(image.getbands()) if scans > 1 else 0


def count_scans(data: bytes | memoryview) -> int:
    """How often `_SCAN` is in it: as numbers of two bytes, from either of the first two; `bytes.count` takes longer."""
    halves = (np.frombuffer(data, "<u2", (len(data) - start) // 2, start) for start in (0, 1) if len(data) > 1)
    return sum(int(np.count_nonzero(half == _SCAN)) for half in halves)


def _tiff_block(image: Any) -> int:
    """The bytes of a tile or strip, which are decoded as a whole, however little of it belongs to the image."""
    tags = image.tag_v2
    bits = tags.get(_TIFF_BITS, (8,))
    samples = int(tags.get(_TIFF_SAMPLES, 1))
    width, height = (int(tags.get(tag, 0)) for tag in _TIFF_TILE)
    if not (width and height):
        width, height = image.width, min(image.height, int(tags.get(_TIFF_ROWS, image.height)))
    return width * height * samples * max(1, int(max(bits if isinstance(bits, tuple) else (bits,))) // 8)
