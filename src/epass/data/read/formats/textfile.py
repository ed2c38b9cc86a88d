"""Text files that come with data sets: lists of classes, labels, positions and images."""

from __future__ import annotations

from pathlib import Path

from ....errors import InputError
from ....untrusted import read_limited

LONGEST_LIST = 2**26  # bytes: that of all images of ImageNet is smaller


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without the white space around them; empty ones at the end do not count."""
    try:
        text = read_limited(path, LONGEST_LIST).decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read as a text file ({error}): download it again.") from error
    lines = [line.strip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        if not line.replace("\t", " ").isprintable():  # messages quote lines, and a terminal obeys some characters
            raise InputError(f"Line {number} of '{path}' has characters that are not text: download the file again.")
    return lines


def whole_number(text: str, path: Path, line: int, smallest: int, largest: int) -> int:
    """The number in `text`, which stands in a line of the file at `path`."""
    # A look at the characters first: Python also takes 1_000, digits of other scripts, and thousands of digits slowly.
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and smallest <= int(text) <= largest:
        return int(text)
    raise InputError(
        f"Line {line} of '{path}' says '{text[:40]}' where a number from {smallest} to {largest} is expected: "
        "download the file again."
    )
