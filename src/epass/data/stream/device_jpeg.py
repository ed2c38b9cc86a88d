"""JPEG files decoded and scaled on a CUDA device, by torchvision and nvJPEG.

The pixels are not those of Pillow, which rounds otherwise within a JPEG, so they are never mixed within a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..read.decode import square_before
from ..read.jpeg_header import Encoded

Decoder = Literal["auto", "cpu", "device"]
Decode = Callable[[list[Tensor]], list[Tensor]]  # bytes of JPEG files in, uint8 (3, H, W) on the device out
TOGETHER = 2**26  # pixels that are decoded at a time, which take some fifteen times as many bytes on the device
_NO_MEMORY = ": 5"  # how nvJPEG says it
_TURNS: dict[str, Callable[[Tensor], Tensor]] = {  # as Pillow calls them
    "FLIP_LEFT_RIGHT": lambda image: image.flip(-1),
    "ROTATE_180": lambda image: image.flip(-1, -2),
    "FLIP_TOP_BOTTOM": lambda image: image.flip(-2),
    "TRANSPOSE": lambda image: image.transpose(-1, -2),
    "ROTATE_270": lambda image: image.rot90(3, (-2, -1)),
    "TRANSVERSE": lambda image: image.transpose(-1, -2).flip(-1, -2),
    "ROTATE_90": lambda image: image.rot90(1, (-2, -1)),
}


class DeviceDecoder:
    """Makes squares of JPEG files on a device, beside whatever else it does; to be used by one thread.

    Args:
        device: Where.
        decode: Decodes several files; what it does with bytes that it cannot decode is a RuntimeError.
    """

    def __init__(self, device: torch.device, decode: Decode) -> None:
        self.device, self.decode = device, decode
        self._weights = lru_cache(32)(filter_weights)  # its own: they belong to its stream
        # A step keeps a device busy: what is wanted for the next one goes first.
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What is computed inside is there at the end."""
        if self._stream is None:
            yield
            return
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield
            self._stream.synchronize()

    def squares(self, images: Sequence[Encoded], size: int) -> tuple[list[int], Tensor]:
        """The upright central squares as uint8 (N, 3, size, size), of the images with these numbers.

        They are in some order, and those that this device cannot decode are missing.
        """
        numbers: list[int] = []
        made: list[Tensor] = []
        for start, some in _portions(images):
            for group, squares in self._squares(some, size):
                numbers += [start + number for number in group]
                made.append(squares)
        if len(made) == 1:
            return numbers, made[0].contiguous()
        nothing = torch.empty(0, 3, size, size, dtype=torch.uint8, device=self.device)
        return numbers, torch.cat([nothing, *made])

    def _squares(self, images: list[Encoded], size: int) -> Iterator[tuple[list[int], Tensor]]:
        groups: dict[Cut, tuple[list[int], list[Tensor]]] = {}  # of those that are scaled and turned alike
        for number, (image, pixels) in enumerate(zip(images, self._decoded(images), strict=True)):
            if pixels is not None:
                cut, place = find_cut(image.turn, image.frame.height, image.frame.width, size)
                numbers, places = groups.setdefault(cut, ([], []))
                numbers.append(number)
                places.append(pixels[place])
        for cut, (numbers, places) in groups.items():
            down, across = (self._weights(span, size, self.device) for span in (cut.rows, cut.columns))
            whole = torch.stack(places)
            scaled = whole if cut.rows.used == size else scale(whole, down, across)
            yield numbers, _TURNS[cut.turn](scaled) if cut.turn else scaled

    def _decoded(self, images: list[Encoded]) -> list[Tensor | None]:
        try:
            return self._checked(images)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:  # which of them it cannot decode is not said
            if len(images) > 1:
                return [pixels for image in images for pixels in self._decoded([image])]
            if _NO_MEMORY in str(problem).partition("\n")[0]:  # another decoder in its place would mix both
                raise torch.OutOfMemoryError("The GPU has too little memory to decode a JPEG file.") from problem
            return [None]

    def _checked(self, images: list[Encoded]) -> list[Tensor | None]:
        if self._stream is not None:
            # torchvision writes at once into memory that earlier work on this stream may still have to read.
            self._stream.synchronize()
        found = self.decode([torch.from_numpy(image.data) for image in images])
        shapes = [(3, image.frame.height, image.frame.width) for image in images]
        return [pixels if pixels.shape == shape else None for pixels, shape in zip(found, shapes, strict=True)]


def _portions(images: Sequence[Encoded]) -> Iterator[tuple[int, list[Encoded]]]:
    """As many as may be decoded at a time, and the number of the first of them."""
    some: list[Encoded] = []
    start, pixels = 0, 0
    for image in images:
        own = image.frame.width * image.frame.height
        if some and pixels + own > TOGETHER:
            yield start, some
            start, some, pixels = start + len(some), [], 0
        some.append(image)
        pixels += own
    if some:
        yield start, some


class Span(NamedTuple):
    """A part of the rows or columns of an image: those that are used, and what Pillow looks at on both sides."""

    length: int
    start: int  # of those that are used
    used: int

    @classmethod
    def around(cls, start: int, used: int, length: int, size: int) -> Span:
        """Those `used` of `length`, from `start` on, which are to be scaled to `size`."""
        beside = 0 if used == size else ceil(max(1.0, used / size))
        before, after = min(start, beside), min(length - start - used, beside)
        return cls(before + used + after, before, used)


class Cut(NamedTuple):
    """What is done with a decoded image."""

    rows: Span
    columns: Span
    turn: str


@lru_cache(1024)
def find_cut(turn: tuple[str, bool, bool], height: int, width: int, size: int) -> tuple[Cut, tuple[slice, ...]]:
    """How an image becomes a square, and which part of it does."""
    top, left, side = square_before(turn, height, width)
    rows, columns = Span.around(top, side, height, size), Span.around(left, side, width, size)
    starts = (top - rows.start, left - columns.start)
    place = (slice(start, start + span.length) for start, span in zip(starts, (rows, columns), strict=True))
    return Cut(rows, columns, turn[0]), (slice(None), *place)


def scale(images: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Images (N, 3, H, W) as Pillow scales them: along rows, then along columns, and rounded both times.

    A level less 128 is exact in half precision, and so is what is between levels to a thirtieth.
    """
    wide = (images.to(across.dtype) - 128) @ across.T
    whole = down @ (wide + 0.5).floor()
    return ((whole + 0.5).floor() + 128).byte()


def filter_weights(span: Span, size: int, device: torch.device) -> Tensor:
    """(size, length) what each pixel of a span counts in each of the scaled ones: Pillow's bilinear filter."""
    step = span.used / size
    width = max(1.0, step)
    center = span.start + step * (torch.arange(size, dtype=torch.float64, device=device) + 0.5)
    place = torch.arange(span.length, dtype=torch.float64, device=device) + 0.5
    weights = (1 - (place - center[:, None]).abs() / width).clamp(min=0)
    # A GPU is made for products in half precision: the step beside it would feel slower ones.
    return (weights / weights.sum(1, keepdim=True)).to(torch.float16 if device.type == "cuda" else torch.float32)


def find_decoder(device: torch.device) -> DeviceDecoder | str:
    """A decoder on this device, or why there is none."""
    if device.type != "cuda":
        return f"it is no CUDA device but '{device.type}'"
    if device.index is None:  # what is current in this thread need not be so in others
        device = torch.device("cuda", torch.cuda.current_device())
    try:
        from PIL import Image

        with warnings.catch_warnings(action="ignore"):
            from torchvision.io import ImageReadMode, decode_jpeg

        def decode(images: list[Tensor]) -> list[Tensor]:
            found: list[Tensor] = decode_jpeg(images, mode=ImageReadMode.RGB, device=device)
            return found

        example = BytesIO()
        Image.new("RGB", (32, 16), "white").save(example, "JPEG")
        pixels = decode([torch.from_numpy(np.frombuffer(example.getvalue(), np.uint8).copy())])[0]
        if pixels.shape != (3, 16, 32) or int(pixels.min()) < 250:
            return "torchvision decodes a white image to something else"
    except Exception as problem:  # whatever is wrong with another library: Pillow decodes
        return f"torchvision does not decode here: {str(problem).partition(chr(10))[0]}"
    return DeviceDecoder(device, decode)
