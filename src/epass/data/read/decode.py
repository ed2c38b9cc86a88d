"""Image files of every kind to square uint8 RGB pixels."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...errors import InputError
from .image_limits import ROOM, prepare
from .kinds import is_not_read
from .square import central_square

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # no others: for EPS, Pillow would start a program
DECODER = 3  # to be raised when the same file gives other pixels than before: cached pixels are then decoded again
ADVICE = ": replace or remove it"  # the end of what is said about an image that cannot be read
_BAND = 2**20  # pixels that are converted at a time
_ORIENTATION = 0x0112  # the number of this entry in EXIF data
_TURNS = {  # by this entry: what makes an image upright, and whether its columns and rows then run the other way
    2: ("FLIP_LEFT_RIGHT", True, False),
    3: ("ROTATE_180", True, True),
    4: ("FLIP_TOP_BOTTOM", False, True),
    5: ("TRANSPOSE", False, False),
    6: ("ROTATE_270", False, True),
    7: ("TRANSVERSE", True, True),
    8: ("ROTATE_90", True, False),
}
_TOGETHER, _UNPACKED = 8, 2**18  # images that a thread is given at a time, or bytes of those out of an archive
ProgressCallback = Callable[[int, int], None]  # (images done, images in all)


@dataclass(frozen=True)
class Packed:
    """The bytes of an image file that is no file of its own."""

    name: str  # in messages
    data: bytes
    problem: str = ""  # why it could not be unpacked

    def __str__(self) -> str:
        return self.name

    def open(self, _mode: Literal["rb"]) -> BytesIO:
        if self.problem:
            raise ValueError(self.problem)
        return BytesIO(self.data)


Numbered = tuple[int, Path | Packed]  # an image and its position
Decoded = tuple[int, Path | Packed, "Pixels | InputError"]


def decode_all(
    images: Iterable[Numbered], count: int, image_size: int, progress: ProgressCallback | None = None
) -> tuple[Pixels, dict[int, str]]:
    """Images with their positions as uint8 (count, 3, image_size, image_size), and why some cannot be read.

    They are decoded by a few threads. `images` is asked for the next one only when a thread will soon be free, so that
    it may read them one by one. The rows of images that cannot be read hold anything.
    """
    pixels = np.empty((count, 3, image_size, image_size), np.uint8)
    reasons: dict[int, str] = {}
    with _silent(), closing(_in_threads(images, image_size)) as decoding:
        for done, (position, source, image) in enumerate(decoding, 1):
            if isinstance(image, InputError):
                reasons[position] = without_name(image, source)
            else:
                pixels[position] = image
            if progress is not None:
                progress(done, count)
    return pixels, reasons


def decode_readable(images: Iterable[Numbered], image_size: int) -> tuple[dict[int, Pixels], dict[int, str]]:
    """The images that can be read, as uint8 (3, image_size, image_size), and why the others cannot, by position."""
    readable: dict[int, Pixels] = {}
    reasons: dict[int, str] = {}
    with _silent(), closing(_in_threads(images, image_size)) as decoding:
        for position, source, image in decoding:
            if isinstance(image, InputError):
                reasons[position] = without_name(image, source)
            else:
                readable[position] = image
    return readable, reasons


def without_name(problem: InputError, source: Path | Packed) -> str:
    """What `decode` says about an image, to be put behind its name."""
    return str(problem).removeprefix(f"The image '{source}' ").rstrip(".")


def _silent() -> warnings.catch_warnings[None]:
    """What Pillow only warns of, such as odd EXIF data, changes no pixel."""
    return warnings.catch_warnings(action="ignore")


def _in_threads(images: Iterable[Numbered], image_size: int) -> Generator[Decoded]:
    """Images on their way through `decode`, in their order; Pillow lets other threads run while it decodes."""
    threads = min(8, os.cpu_count() or 1)  # more than a few only wait for each other
    waiting: deque[Future[list[Decoded]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for group in _grouped(images):
            if len(waiting) == 4 * threads:
                yield from waiting.popleft().result()
            waiting.append(pool.submit(_decode_group, group, image_size))
        while waiting:
            yield from waiting.popleft().result()


def _grouped(images: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    """A few images at a time: handing one to a thread takes as long as decoding a tiny one."""
    group: list[Numbered] = []
    unpacked = 0
    for position, image in images:
        group.append((position, image))
        unpacked += len(image.data) if isinstance(image, Packed) else 0
        if len(group) == _TOGETHER or unpacked > _UNPACKED:
            yield group
            group, unpacked = [], 0
    if group:
        yield group


def _decode_group(group: list[Numbered], image_size: int) -> list[Decoded]:
    decoded: list[Decoded] = []
    for position, image in group:
        try:
            decoded.append((position, image, decode(image, image_size)))
        except InputError as problem:
            decoded.append((position, image, problem))
    return decoded


def decode(source: Path | Packed, image_size: int) -> Pixels:
    """The central square of an encoded image, upright, in RGB, scaled to `image_size`: uint8 (3, S, S)."""
    with _loaded(source, image_size) as (image, whole):
        return to_square(image, image_size, whole)


def decode_whole(source: Path | Packed, side: int) -> Image:
    """An encoded image, upright and in RGB, with pixels enough to scale it down to `side`."""
    with _loaded(source, side) as (image, _):
        upright = _turned(_to_rgb(image), turn_of(image)[0])
        return upright.copy() if upright is image else upright


@contextmanager
def _loaded(source: Path | Packed, side: int) -> Iterator[tuple[Image, tuple[int, int]]]:
    """An image that is decoded at a resolution for `side`, and the size that it has in its file.

    Whatever is wrong with it is an InputError.
    """
    from PIL import Image

    try:
        if isinstance(source, Path) and not source.is_file():  # a pipe would be waited for
            raise ValueError("no plain file" if source.exists() else "there is no such file")
        with source.open("rb") as stream, Image.open(stream, formats=FORMATS) as file:
            whole = file.size
            needed = prepare(file, stream, side)
            with ROOM.taken(needed):
                file.load()
                yield file, whole
    except Exception as error:  # on a damaged file Pillow's decoders raise nearly anything
        raise InputError(f"The image '{source}' cannot be read ({_reason(error, source)}){ADVICE}.") from error


def to_square(image: Image, image_size: int, whole: tuple[int, int] | None = None) -> Pixels:
    """The central square of an open image as uint8 (3, S, S).

    Args:
        image: It may have been decoded at a half, a quarter or an eighth of its size.
        image_size: S.
        whole: Width and height in its file, if these are others.
    """
    from PIL import Image as Pillow

    turn = turn_of(image)
    width, height = whole or image.size
    top, left, side = square_before(turn, height, width)
    # Its edges may lie in the middle of decoded pixels: whole ones would move the picture by a part of a pixel.
    scale = round(width / image.width)
    box = (left / scale, top / scale, (left + side) / scale, (top + side) / scale)
    square = _to_rgb(image).resize((image_size, image_size), Pillow.Resampling.BILINEAR, box=box)
    return np.array(_turned(square, turn[0])).transpose(2, 0, 1)  # turned while it is small, which takes less time


def to_gray(pixels: Pixels) -> Pixels:
    """RGB images (N, 3, H, W) as Pillow's gray (N, 1, H, W)."""
    red, green, blue = (pixels[:, channel].astype(np.int32) for channel in range(3))
    levels: Pixels = ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)
    return levels[:, None]


def square_before(turn: tuple[str, bool, bool], height: int, width: int) -> tuple[int, int, int]:
    """Top, left and side of what becomes the central square of an image once it is upright."""
    _, from_right, from_below = turn
    top, left, side = central_square(height, width)
    return height - side - top if from_below else top, width - side - left if from_right else left, side


def turn_of(image: Image) -> tuple[str, bool, bool]:
    """What makes an image upright (one of _TURNS), by the data of its file."""
    upright = ("", False, False)
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1), upright)
    except Exception:  # cameras and editors write broken EXIF data, which says nothing about the pixels
        return upright


def _turned(image: Image, turn: str) -> Image:
    from PIL import Image as Pillow

    return image.transpose(Pillow.Transpose[turn]) if turn else image


def _to_rgb(image: Image) -> Image:
    """The same colors on white, a band after the other: what conversions make on their way has no need to be large."""
    from PIL import Image as Pillow

    if image.mode == "F":
        raise ValueError("floating-point pixels, where 8 bits per channel are needed")
    if image.mode == "I" and image.format == "TIFF":  # of other formats it is 16 bits, or was scaled to them
        raise ValueError("32-bit or signed pixels of no known range, where 8 or 16 bits per channel are needed")
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    rows = max(1, _BAND // image.width)
    if rows >= image.height:
        return _band_to_rgb(image)
    whole = Pillow.new("RGB", image.size)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        whole.paste(_band_to_rgb(band), (0, top))
    return whole


def _band_to_rgb(image: Image) -> Image:
    from PIL import Image as Pillow

    if image.mode.startswith("I"):  # Pillow would clip 16-bit gray at 255, which turns most of it white
        levels = np.asarray(image).astype(np.int32).clip(0, 65535)
        if isinstance(image.info.get("transparency"), int):
            levels[levels == image.info["transparency"]] = 65535
        image = Pillow.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:  # what lies under transparent pixels is arbitrary, often black on black
        image = image.convert("RGBA")
        image = Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _reason(error: Exception, source: Path | Packed) -> str:
    from PIL import UnidentifiedImageError

    # Pillow's own text repeats the path here.
    if isinstance(error, UnidentifiedImageError):
        return "of a kind that is not read, convert it to JPEG" if is_not_read(str(source)) else "not an image"
    return str(error).rstrip(".")
