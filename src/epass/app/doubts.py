"""What somebody may not have meant, seen in data that were opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..data.read.kinds import passed_over
from .events import Caution

if TYPE_CHECKING:
    from ..data import Dataset


def doubts_about(dataset: Dataset) -> Iterator[Caution]:
    """What nobody should miss before a data set is used."""
    yield from not_read(dataset.passed_over)


def not_read(kinds: Mapping[str, int]) -> Iterator[Caution]:
    """That image files of other kinds were passed over, if there were any."""
    if kinds:
        yield Caution(passed_over(kinds))
