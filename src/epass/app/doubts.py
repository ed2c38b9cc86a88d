"""What somebody may not have meant, seen in data that were opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from unicodedata import normalize

from ..data.read.kinds import passed_over
from ..errors import shortened
from .events import Caution
from .words import counted

if TYPE_CHECKING:
    from ..data import Dataset

# What people and programs write where they know nothing. 'na', 'Na' and 'none' are classes somewhere.
NO_CLASS = frozenset({"?", "??", "???", "-", "--", "NA", "N/A", "n/a", "NaN", "nan", "None", "NULL", "null"}) | {
    text
    for word in ("unknown", "unlabeled", "unlabelled", "unsorted", "tbd", "todo")
    for text in (word, word.title(), word.upper())
}


def doubts_about(dataset: Dataset) -> Iterator[Caution]:
    """What nobody should miss before a data set is used."""
    yield from not_read(dataset.passed_over)
    counts = Counter(label for label in dataset.train.labels.tolist() if label >= 0)
    yield from map(Caution, doubtful_classes({name: counts[number] for number, name in enumerate(dataset.classes)}))


def not_read(kinds: Mapping[str, int]) -> Iterator[Caution]:
    """That image files of other kinds were passed over, if there were any."""
    if kinds:
        yield Caution(passed_over(kinds))


def doubtful_classes(counts: Mapping[str, int]) -> Iterator[str]:
    """Classes that may be one and the same, and those that may be none; `counts` has the labels of each."""
    if sentence := alike(counts):
        yield sentence
    nothing = [name for name in counts if name.strip() in NO_CLASS]
    if nothing:
        yield (
            f"'{shortened(nothing[0])}' is taken for a class, with {counted(counts[nothing[0]], 'label')}"
            f"{_more(len(nothing))}: give no label where nobody knows."
        )


def alike(classes: Iterable[str]) -> str:
    """What to say of classes that are only written in several ways, "" if there are none."""
    from ..data.read.listing import quoted

    together: dict[str, list[str]] = {}
    for name in classes:
        together.setdefault(_core(name), []).append(name)
    found = [names for names in together.values() if len(names) > 1]
    if not found:
        return ""
    return (
        f"{quoted(found[0])} are {len(found[0])} classes that differ only in capital letters, blanks or the like"
        f"{_more(len(found))}: make them one if they are the same."
    )


def _core(name: str) -> str:
    """What is left of a name that people may write in several ways."""
    return " ".join(normalize("NFKC", name).casefold().split())


def _more(count: int) -> str:
    return f" (and {count - 1:,} more like this)" if count > 1 else ""
