"""MATLAB 5 files, as far as data sets use them: arrays of numbers, and tables of numbers and texts.

SciPy reads them too, but one wrong bit in a file can end its process, which no error message survives. This reader also
hands out large arrays block by block, so that they need no memory beside that of their final place.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from ....errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

_HEADER = 128  # bytes of text, version and byte order at the beginning of every file
_MATRIX, _COMPRESSED = 14, 15  # kinds of elements
_STRUCT, _CHAR = 2, 4  # classes of arrays
_NUMBERS = range(6, 16)  # from double to uint64
_KINDS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8"}
_ENDIAN = {"<": "le", ">": "be"}
_LONGEST_LABEL = 2**16  # bytes of dimensions, names and the like: more of them means a damaged file
_LONGEST_TABLE = 2**26  # bytes of a table: that of ImageNet has about one million


class _Damaged(Exception):
    """What is wrong with a file, to stand behind its name and a colon."""


class _Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


class _Inflated:
    """The content of `size` compressed bytes of a file, unpacked no further than asked for."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left, self._unpack = file, size, zlib.decompressobj()

    def read(self, count: int, /) -> bytes:
        parts: list[bytes] = []
        while count and not self._unpack.eof:
            packed = self._unpack.unconsumed_tail
            if not packed:
                packed = self._file.read(min(self._left, 2**16))
                self._left -= len(packed)
            part = self._unpack.decompress(packed, count)
            if not packed and not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def finish(self) -> None:
        """Pass over the padding; zlib compares its checksum at the end."""
        self.read(8)
        if not self._unpack.eof:
            raise _Damaged("its compressed data does not end where it should")


@dataclass(frozen=True)
class Variable:
    """An array in a file, known by its description; its content is read when it is asked for."""

    path: Path
    name: str
    shape: tuple[int, ...]
    number: int  # the class of the array
    order: str  # of bytes: "<" or ">"
    start: int  # of its element in the file
    size: int
    compressed: bool

    def blocks(self, count: int) -> Iterator[Array]:
        """The numbers in the order of the file, the first dimension running fastest, `count` at a time."""
        with _explained(self.path), self.path.open("rb") as file:
            source = self._open(file)
            if self.number not in _NUMBERS:
                raise _Damaged(f"its variable '{self.name}' holds no numbers")
            kind, size, short = _tag(source, self.order)
            if kind not in _KINDS:
                raise _Damaged(f"its variable '{self.name}' holds numbers of the unknown kind {kind}")
            number = np.dtype(f"{self.order}{_KINDS[kind]}")
            whole = math.prod(self.shape)
            if size != whole * number.itemsize:
                raise _Damaged(
                    f"its variable '{self.name}' has {size:,} bytes where the shape {self.shape} needs "
                    f"{whole * number.itemsize:,}"
                )
            data = source if short is None else io.BytesIO(short)
            for first in range(0, whole, count):
                yield np.frombuffer(_exactly(data, min(count, whole - first) * number.itemsize), number)
            if isinstance(source, _Inflated):
                source.finish()

    def table(self) -> list[dict[str, Any]]:
        """The rows of a struct array: texts and arrays of numbers by their fields, None for other values."""
        with _explained(self.path), self.path.open("rb") as file:
            source = self._open(file)
            if self.number != _STRUCT:
                raise _Damaged(f"its variable '{self.name}' is not a table")
            length = int(np.frombuffer(_exactly(io.BytesIO(_data(source, self.order)), 4), f"{self.order}i4")[0])
            names = _data(source, self.order)
            if length < 1 or not names:
                raise _Damaged(f"the fields of its variable '{self.name}' have no names")
            starts = range(0, len(names), length)
            fields = [names[start : start + length].split(b"\0")[0].decode("latin-1") for start in starts]
            rest = io.BytesIO(source.read(_LONGEST_TABLE))
            if isinstance(source, _Inflated):
                source.finish()
            return [{field: _cell(rest, self.order) for field in fields} for _ in range(math.prod(self.shape))]

    def _open(self, file: BinaryIO) -> _Source:
        """The bytes behind the description."""
        file.seek(self.start)
        source: _Source = file
        if self.compressed:
            source = _Inflated(file, self.size)
            _tag(source, self.order)
        _describe(source, self.order)
        return source


def list_variables(path: Path) -> dict[str, Variable]:
    """The variables in the file at `path` by their names."""
    found = {}
    with _explained(path), path.open("rb") as file:
        end = file.seek(0, io.SEEK_END)
        file.seek(0)
        head = file.read(_HEADER)
        if len(head) < _HEADER or head[-2:] not in (b"IM", b"MI"):
            raise _Damaged("it does not begin like a MATLAB 5 file")
        order = "<" if head[-2:] == b"IM" else ">"
        if struct.unpack(f"{order}H", head[-4:-2]) != (0x0100,):
            raise _Damaged("its version is not 5, so it has to be saved again with '-v7'")
        start = _HEADER
        while start < end:
            file.seek(start)
            kind, size = struct.unpack(f"{order}II", _exactly(file, 8))
            start += 8
            if size > end - start:
                raise _Damaged(f"{size:,} bytes are expected after byte {start:,}, where {end - start:,} are left")
            source: _Source = file
            if compressed := kind == _COMPRESSED:
                source = _Inflated(file, size)
                kind = _tag(source, order)[0]
            if kind == _MATRIX:
                number, shape, name = _describe(source, order)
                if name.isascii() and name.isidentifier():  # MATLAB keeps things of its own without a name
                    found[name] = Variable(path, name, shape, number, order, start, size, compressed)
            start += size
    return found


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except _Damaged as error:
        raise InputError(f"'{path}' is damaged or no MATLAB 5 file: {error}.") from None
    except (OSError, zlib.error, MemoryError, UnicodeDecodeError) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise InputError(f"'{path}' cannot be read ({reason}): unpack or download it again.") from error


def _exactly(source: _Source, count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise _Damaged(f"{count:,} bytes are expected where {len(data):,} are left")
    return data


def _tag(source: _Source, order: str) -> tuple[int, int, bytes | None]:
    """Kind and size of an element, and its data where they are so few that they are a part of the tag."""
    head = _exactly(source, 8)
    kind, size = struct.unpack(f"{order}II", head)
    if kind < 2**16:
        return kind, size, None
    kind, size = kind % 2**16, kind >> 16
    if size > 4:
        raise _Damaged(f"a short element has {size} bytes instead of at most 4")
    return kind, size, head[4 : 4 + size]


def _element(source: _Source, order: str) -> tuple[int, bytes]:
    """Kind and data of an element that is not a large array, and the padding to a multiple of 8 bytes passed over."""
    kind, size, data = _tag(source, order)
    if data is None:
        if size > _LONGEST_LABEL:
            raise _Damaged(f"a description has {size:,} bytes instead of at most {_LONGEST_LABEL:,}")
        data = _exactly(source, size)
        _exactly(source, -size % 8)
    return kind, data


def _data(source: _Source, order: str) -> bytes:
    return _element(source, order)[1]


def _describe(source: _Source, order: str) -> tuple[int, tuple[int, ...], str]:
    """Class, shape and name of an array."""
    flags, sizes, name = (_data(source, order) for _ in range(3))
    if len(flags) != 8 or len(sizes) % 4 or len(sizes) < 8:
        raise _Damaged("an array has no description")
    shape = tuple(np.frombuffer(sizes, f"{order}i4").tolist())
    if min(shape) < 0:
        raise _Damaged(f"an array has the shape {shape}")
    return struct.unpack(f"{order}I", flags[:4])[0] % 256, shape, name.decode("latin-1")


def _cell(source: io.BytesIO, order: str) -> Any:
    """One value of a table: a text, an array of numbers, or None for anything else."""
    kind, size, _ = _tag(source, order)
    if kind != _MATRIX:
        raise _Damaged(f"a table has an element of kind {kind} instead of {_MATRIX}")
    inside = io.BytesIO(_exactly(source, size))
    if not size:
        return None
    number, _, _ = _describe(inside, order)
    if number not in _NUMBERS and number != _CHAR:
        return None
    kind, data = _element(inside, order)
    if number == _CHAR and kind in _TEXTS:
        return data.decode(f"{_TEXTS[kind]}-{_ENDIAN[order]}" if _TEXTS[kind] == "utf-16" else _TEXTS[kind])
    if number == _CHAR or kind not in _KINDS or len(data) % np.dtype(_KINDS[kind]).itemsize:
        raise _Damaged(f"a table has {len(data):,} bytes of kind {kind} where numbers or a text should be")
    return np.frombuffer(data, f"{order}{_KINDS[kind]}")
