"""What a stranger wrote: how much of it is read, how it is parsed, and how it is shown to people."""

from __future__ import annotations

import json
import math
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from unicodedata import category

from .errors import InputError

LARGEST_RECIPE = 2**15  # bytes: files of the package have a tenth of it; Python's TOML reader slows with the square
LARGEST_JSON = 2**28  # bytes: a split file that names every image of ImageNet is smaller

GROWTH = 100  # arrays and pictures hardly shrink so much when they are packed
SMALL = 2**28  # bytes that may come out of any archive, however small

_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # the order of letters
_DIGITS = 300  # of a whole number: with a few more, it cannot be made a float
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_limited(path: Path, most: int) -> bytes:
    """The content of a plain file of at most `most` bytes: a pipe would be waited for, and a device may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' is not a plain file: put a copy of one in its place.")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"'{path}' has more than {most:,} bytes, which no file of its kind needs: do not use it.")
    return data


def check_growth(path: Path, growth: int = GROWTH) -> None:
    """Refuse a zip archive that says of itself that it unpacks to more than `growth` times its size."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > max(SMALL, growth * path.stat().st_size):
        raise InputError(f"'{path}' would unpack to {unpacked:,} bytes, far more than it should: do not use it.")


def parse_json(data: bytes) -> Any:
    """The value in JSON; a ValueError says why there is none."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_countable)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The table in TOML; a ValueError says why there is none."""
    if len(text) > LARGEST_RECIPE:
        raise ValueError(f"it has more than {LARGEST_RECIPE:,} letters")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def printable(text: str) -> str:
    """Text without the characters by which a name could write all over a terminal, or read from right to left."""
    if text.isprintable():  # all of these are not, and to ask for each letter of a million names takes seconds
        return text
    return "".join("\ufffd" if _is_control(letter) else letter for letter in text)


def spreadsheet_text(text: str) -> str:
    """Text as a cell that a spreadsheet shows: one that would be a formula gets an apostrophe in front."""
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def spreadsheet_path(path: str) -> str:
    """A relative path as a cell that a spreadsheet shows, and that still leads to the file."""
    return f"./{path}" if path.startswith(_FORMULA) else path


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which JSON does not know")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("it holds a number that is too large")
    return number


def _countable(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("it holds a number that is too large")
    return int(text)


def _is_control(letter: str) -> bool:
    return category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _TURNING


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
