"""What people do while they label, as steps that can be written down and undone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unicodedata import normalize

from ..errors import InputError, one_of, shortened
from ..untrusted import printable

MARKS = ("skip", "unsure", "none")  # in the order of their numbers, from 1
NUMBERS = {mark: number for number, mark in enumerate(MARKS, 1)}
NOTHING = -1  # said about an image; a label is the number of its class, a mark is -1 minus its own number
LONGEST_NAME = 100  # letters of a class


class Conflict(InputError):
    """Somebody else was faster; `rows` are the images that are no longer what was seen."""

    def __init__(self, said: str, rows: Sequence[int] = ()) -> None:
        super().__init__(said)
        self.rows = list(rows)


class Change(NamedTuple):
    """What a tab says about an image, and what it showed before."""

    id: int
    label: int | None
    mark: str | None
    seen_label: int | None
    seen_mark: str | None


class ClassFacts(NamedTuple):
    """A class as people see it."""

    id: int
    name: str
    key: str
    count: int  # type: ignore[assignment]  # of labels; nobody counts in such a tuple


class Known(NamedTuple):
    """What is kept of a class."""

    name: str
    key: str
    folders: tuple[str, ...] = ()  # class folders whose images have this label as long as nobody says otherwise


@dataclass(frozen=True)
class Step:
    """Something that somebody did, with what was before, so that it can be undone."""

    said: str
    tab: str | None  # "" if anybody may undo it, None if nobody
    images: Sequence[tuple[str, int, int]] = ()  # name, what was said about it before, and now
    classes: Sequence[tuple[int, Known | None, Known | None]] = ()  # None where there is no such class
    keys: Sequence[tuple[str, str, str]] = ()  # of actions
    undoes: int | None = None

    def __bool__(self) -> bool:
        return bool(self.images or self.classes or self.keys)

    def record(self, n: int) -> dict[str, Any]:
        """As JSON."""
        fields = {"images": self.images, "classes": self.classes, "keys": self.keys, "undoes": self.undoes}
        head = {"n": n, "at": round(time.time(), 3), "tab": self.tab, "said": self.said}
        return head | {name: value for name, value in fields.items() if value not in (None, ())}

    @classmethod
    def read(cls, record: dict[str, Any]) -> Step:
        """A step that was written; anything else raises one of several errors."""
        tab, undoes = record["tab"], record.get("undoes")
        if not isinstance(tab, str | None) or not isinstance(undoes, int | None):
            raise TypeError("a tab is a text")
        return cls(
            str(record["said"]),
            tab,
            [(str(name), int(was), int(now)) for name, was, now in record.get("images", ())],
            [(int(id), read_known(was), read_known(now)) for id, was, now in record.get("classes", ())],
            [(str(action), str(was), str(now)) for action, was, now in record.get("keys", ())],
            undoes,
        )


def read_known(value: Any) -> Known | None:
    """What was written of a class."""
    return None if value is None else Known(str(value[0]), str(value[1]), tuple(map(str, value[2])))


def code_of(label: int | None, mark: str | None) -> int:
    """A label or a mark as one number."""
    if label is not None and mark is not None:
        raise InputError("An image has a label or a mark, not both: give one of them.")
    if mark is not None:
        one_of("mark", mark, MARKS)
        return NOTHING - 1 - MARKS.index(mark)
    if label is not None and label < 0:
        raise InputError(f"There is no class {label}: a class has a number from 0 on.")
    return NOTHING if label is None else label


def clean_name(text: str) -> str:
    """The name of a class as it is kept, if it can be one."""
    name = normalize("NFC", text).strip()
    if not name:
        raise InputError("A class needs a name: type one.")
    if len(name) > LONGEST_NAME:
        raise InputError(f"'{shortened(name)}' has {len(name)} letters: use {LONGEST_NAME} at most.")
    if printable(name) != name:
        raise InputError(f"'{printable(name)}' holds letters that cannot be shown: leave them out.")
    return name
