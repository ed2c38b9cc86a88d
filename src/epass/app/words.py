"""Numbers as people say them."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """A length of time in the largest fitting unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def percent(share: float, digits: int = 2) -> str:
    """A fraction as people say it."""
    return f"{100 * share:.{digits}f} %"


def count_images(count: int) -> str:
    """A number of images."""
    return counted(count, "image")


def times(count: float) -> str:
    """How often; less than ten times with a decimal."""
    return f"{count:,.0f} times" if count >= 10 else f"{count:.1f} times"


def file_size(count: int) -> str:
    """Bytes in the largest fitting unit."""
    if count < 1000:
        return f"{count} byte{'s' * (count != 1)}"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' kMGT'[power]}B"


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def some(names: Sequence[str], most: int = 10) -> str:
    """The first few names, and how many there are besides."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
