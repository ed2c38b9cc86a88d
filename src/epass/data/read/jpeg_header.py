"""What the header of a JPEG file says, and whether it is of the kind that a GPU decodes: a rule about bytes alone."""

from __future__ import annotations

import os
import struct
from io import BytesIO
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .decode import FORMATS, turn_of
from .image_limits import count_scans

LARGEST_BYTES = 2**23  # of a file that a GPU gets: those of the coming steps wait in main memory
LARGEST_PIXELS = 2**25  # it decodes them all, where Pillow decodes every second, fourth or eighth of a large photo
MOST_SEGMENTS = 64  # of a header: a file that consists of them would take long to look through
TAIL = 4096  # bytes in which the file must end: one that was cut off is left to Pillow, which says so
_START, _END, _FRAME, _SCAN, _TABLES = 0xD8, b"\xff\xd9", 0xC0, 0xDA, {0xC4, 0xDB, 0xDD}
_APPLICATIONS, _COMMENT = range(0xE0, 0xF0), 0xFE
_METADATA, _MORE_PICTURES, _ADOBE = 0xE1, (0xE2, b"MPF\0"), (0xEE, b"Adobe")
_YCC = 1  # in Adobe's segment: the colors are those that all cameras write
# Of brightness beside colors: as many columns and rows of it, twice as many columns, or also twice as many rows.
_SAMPLINGS = {0x11, 0x21, 0x22}


class Frame(NamedTuple):
    """A JPEG image that a GPU decodes."""

    width: int
    height: int
    has_metadata: bool  # which may say that it has to be turned


class Encoded(NamedTuple):
    """The bytes of such an image, and where its central square lies in it."""

    data: NDArray[np.uint8]
    frame: Frame
    turn: tuple[str, bool, bool]  # what makes it upright, as `turn_of` says it


def read_encoded(path: Path) -> Encoded | None:
    """The bytes of a file for a GPU; None if it is one for Pillow, or for nobody: which is for Pillow to say."""
    from PIL import Image

    try:
        facts = os.stat(path)
        if not S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:  # a pipe would be waited for
            return None
        data = np.empty(facts.st_size, np.uint8)
        with open(path, "rb", buffering=0) as file:  # one call of the system, during which other threads run
            frame = read_frame(data.data) if file.readinto(data.data) == len(data) else None
        if frame is None:
            return None
        turn = ("", False, False)
        if frame.has_metadata:
            with Image.open(BytesIO(data.data), formats=FORMATS) as image:
                turn = turn_of(image)
    except Exception:  # on a damaged file Pillow raises nearly anything, and will again
        return None
    return Encoded(data, frame, turn)


def read_frame(data: memoryview) -> Frame | None:
    """The frame of a plain JPEG file: 8 bits, gray or YCbCr, one scan, whole. None of any other."""
    if bytes(data[:2]) != bytes([0xFF, _START]) or _END not in bytes(data[-TAIL:]):
        return None
    place, frame, components, has_metadata = 2, None, 0, False
    for _ in range(MOST_SEGMENTS):
        if place + 4 > len(data):
            return None
        fill, kind, length = struct.unpack_from(">BBH", data, place)
        content = data[place + 4 : place + 2 + length]
        if fill != 0xFF or length < 2 or len(content) != length - 2:
            return None
        if kind == _FRAME and frame is None:
            found = _read_components(content)
            if found is None:
                return None
            frame, components = found
        elif kind == _SCAN:
            whole = bool(content) and content[0] == components and count_scans(data[place:]) == 1
            return Frame(*frame, has_metadata) if frame is not None and whole else None
        elif kind in _APPLICATIONS or kind == _COMMENT:
            if kind == _MORE_PICTURES[0] and bytes(content[:4]) == _MORE_PICTURES[1]:
                return None
            if kind == _ADOBE[0] and bytes(content[:5]) == _ADOBE[1] and (len(content) < 12 or content[11] != _YCC):
                return None
            has_metadata |= kind == _METADATA
        elif kind not in _TABLES:  # another kind of frame (progressive, lossless, arithmetic), or nonsense
            return None
        place += 2 + length
    return None


def _read_components(content: memoryview) -> tuple[tuple[int, int], int] | None:
    """Width and height and the number of components, if they are of a usual kind."""
    if len(content) < 6:
        return None
    bits, height, width, count = struct.unpack_from(">BHHB", content)
    if bits != 8 or not height or not width or height * width > LARGEST_PIXELS or len(content) != 6 + 3 * count:
        return None
    parts = [(content[6 + 3 * part], content[7 + 3 * part]) for part in range(count)]
    samplings = [sampling for _, sampling in parts]
    if count == 1:
        return ((width, height), 1) if samplings == [0x11] else None
    usual = [name for name, _ in parts] == [1, 2, 3] and samplings[0] in _SAMPLINGS and samplings[1:] == [0x11, 0x11]
    return ((width, height), 3) if usual else None
