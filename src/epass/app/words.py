"""Numbers as people say them."""

from __future__ import annotations


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
    return f"{count:,} image{'s' * (count != 1)}"


def times(count: float) -> str:
    """How often; less than ten times with a decimal."""
    return f"{count:,.0f} times" if count >= 10 else f"{count:.1f} times"
