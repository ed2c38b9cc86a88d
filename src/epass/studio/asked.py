"""What a request says, by the types that are wanted; anything else is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError, one_of
from ..labeling.steps import MARKS, Change
from ..untrusted import parse_json

ROWS = 200  # that are described at once
LONGEST = 1000  # letters of a text
LARGEST_JSON = 2**16  # bytes
LARGEST_ANSWERS = 2**23  # bytes: labels for 100,000 images at once
LARGEST_FILE = 2**25  # bytes of labels to take in


class Asked:
    """The values of a query, of the path and of a body in JSON, by name."""

    def __init__(self, values: Mapping[str, Any], body: bytes = b"") -> None:
        self.values, self.body = values, body

    @classmethod
    def in_json(cls, values: Mapping[str, Any], body: bytes) -> Asked:
        """What a body says, and what the address says."""
        try:
            said = parse_json(body)
        except ValueError as problem:
            raise InputError(f"The request is not JSON ({problem}): send an object.") from None
        if not isinstance(said, dict):
            raise InputError("The request is no object of JSON: send one.")
        return cls({**said, **values}, body)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str) or len(value) > LONGEST:
            raise wrong(name, f"a text of at most {LONGEST:,} letters")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name, False)
        if value not in (True, False, "0", "1"):
            raise wrong(name, "true or false")
        return value in (True, "1")

    def whole(self, name: str) -> int:
        return whole(self.values.get(name), name)

    def numbers(self, *names: str) -> dict[str, int]:
        """Those of the names that are said."""
        return {name: self.whole(name) for name in names if name in self.values}

    def image(self, images: int) -> int:
        return image(self.values.get("id"), images)

    def images(self, images: int) -> list[int]:
        value = self.values.get("ids")
        if not isinstance(value, list) or len(value) > ROWS:
            raise wrong("ids", f"a list of at most {ROWS}")
        return [image(one, images) for one in value]

    def table(self, name: str) -> dict[str, Any]:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise wrong(name, "an object")
        return value

    def changes(self, images: int) -> list[Change]:
        """What a tab wants to change, and what it showed before."""
        value = self.values.get("changes")
        if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
            raise wrong("changes", "a list of objects, not empty")
        return [change(one, images) for one in value]


def change(said: dict[str, Any], images: int) -> Change:
    """One change of a list."""
    seen = said.get("seen")
    if not isinstance(seen, dict):
        raise wrong("seen", "an object with the label and the mark that was shown")
    return Change(image(said.get("id"), images), *answer(said), *answer(seen))


def answer(said: dict[str, Any]) -> tuple[int | None, str | None]:
    """A label, a mark or neither."""
    label, mark = said.get("label"), said.get("mark")
    if mark is not None:
        one_of("mark", mark if isinstance(mark, str) else "", MARKS)
    return None if label is None else whole(label, "label"), mark


def whole(value: Any, name: str) -> int:
    """A number of something, from JSON or from an address."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**31:
        raise wrong(name, "a whole number")
    return value


def image(value: Any, images: int) -> int:
    """The number of an image that there is."""
    number = whole(value, "id")
    if number >= images:
        raise InputError(f"There is no image {number:,}: reload the page.")
    return number


def wrong(name: str, wanted: str) -> InputError:
    """What no page of ours sends."""
    return InputError(f"'{name}' has to be {wanted}: reload the page.")
