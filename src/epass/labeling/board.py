"""What is known of every image and class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from string import ascii_lowercase
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, one_of, shortened
from ..untrusted import printable
from .steps import (
    LONGEST_NAME,
    MARKS,
    NOTHING,
    Change,
    ClassFacts,
    Conflict,
    Known,
    Step,
    clean_name,
    code_of,
    read_known,
)

KEYS = {
    "accept": "Enter",
    "undo": "u",
    "clear": "c",
    "skip": "s",
    "unsure": "x",
    "none": "n",
    "next": "ArrowRight",
    "previous": "ArrowLeft",
    "grid": "g",
    "search": "/",
    "help": "h",
}
CLASS_KEYS = f"1234567890{ascii_lowercase}"
_NAMED_KEY = re.compile(r"[A-Z][A-Za-z0-9]{1,19}")
_OTHERS_KEYS = ("Tab", "Escape", "Shift", "Control", "Alt", "Meta")  # by which people get around in any page


class Board:
    """All labels, marks, classes and keys. Steps are planned here, and done once they are on disk."""

    def __init__(self, names: Sequence[str], folders: Sequence[str]) -> None:
        """`folders` has the class folder of each image, "" for none."""
        self.names, self.folders = names, folders
        self.places = {name: id for id, name in enumerate(names)}
        self.labels: NDArray[np.int32] = np.full(len(names), -1, np.int32)
        self.marks: NDArray[np.uint8] = np.zeros(len(names), np.uint8)
        self.in_folder: NDArray[np.bool_] = np.array([bool(folder) for folder in folders], np.bool_)
        self.touched: NDArray[np.bool_] = np.zeros(len(names), np.bool_)  # more is known than the folder
        self.absent: dict[str, int] = {}  # what was said about images that are not there now
        self.classes: dict[int, Known] = {}
        self.keys = dict(KEYS)
        self.next = 0  # number of the next class

    def state(self) -> dict[str, Any]:
        """Everything but what the folder itself says, as JSON."""
        ids = np.flatnonzero(self.touched)
        codes = self._codes(ids).tolist()
        said = {self.names[id]: code for id, code in zip(ids.tolist(), codes, strict=True)}
        return {"images": said | self.absent, "classes": self.classes, "keys": self.keys, "next": self.next}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave; anything else raises one of several errors."""
        self.next = int(state["next"])
        images = [(str(name), NOTHING, int(code)) for name, code in state["images"].items()]
        classes = [(int(id), None, read_known(value)) for id, value in state["classes"].items()]
        keys = [(str(action), "", str(key)) for action, key in state["keys"].items()]
        self.apply(Step("", None, images, classes, keys))

    def apply(self, step: Step) -> list[int]:
        """Do it; returns the images that changed."""
        ids: list[int] = []
        classes = self.classes | {id: known for id, _, known in step.classes if known is not None}
        self.next = max([self.next, *(id + 1 for id, _, _ in step.classes)])
        # Readers take no lock: they get whole dictionaries, and at any moment every label has its class.
        self.classes = dict(sorted(classes.items()))
        self.keys = self.keys | {action: key for action, _, key in step.keys if action in KEYS}
        for name, _, code in step.images:
            if not (code in classes or -1 - len(MARKS) <= code <= NOTHING):
                raise ValueError(f"there is no class {code}")
            place = self.places.get(name)
            if place is None:
                self.absent[name] = code
                continue
            self.labels[place], self.marks[place] = max(code, -1), max(-1 - code, 0)
            self.touched[place] = True
            ids.append(place)
        gone = {id for id, _, known in step.classes if known is None}
        self.classes = {id: known for id, known in self.classes.items() if id not in gone}
        return ids

    def settle(self) -> Step:
        """The classes that untouched images lie in the folders of, and that nobody knows yet."""
        lie = {self.folders[id] for id in np.flatnonzero(~self.touched).tolist()} - {""}
        taken = {folder for known in self.classes.values() for folder in known.folders}
        return Step("Found class folders", None, classes=self._found(sorted(lie - taken), is_folder=True))

    def lie_down(self) -> None:
        """Give untouched images the labels of their folders."""
        of = {folder: id for id, known in self.classes.items() for folder in known.folders}
        for id in np.flatnonzero(~self.touched).tolist():
            self.labels[id] = of.get(self.folders[id], -1)

    def said(self) -> list[tuple[int, tuple[str, str, str]]]:
        """The images about which something is said: name, label and mark, "" for none."""
        ids = np.flatnonzero((self.labels >= 0) | (self.marks > 0))
        both = [(id, self.words(code), code) for id, code in zip(ids.tolist(), self._codes(ids).tolist(), strict=True)]
        return [(id, (self.names[id], text if code >= 0 else "", text if code < 0 else "")) for id, text, code in both]

    def facts(self) -> list[ClassFacts]:
        """The classes in the order in which they came."""
        labels, classes = self.labels, self.classes
        counts = np.bincount(labels[labels >= 0], minlength=max(classes, default=0) + 1)
        return [ClassFacts(id, known.name, known.key, int(counts[id])) for id, known in classes.items()]

    def code(self, name: str) -> int:
        """What is said about an image."""
        place = self.places.get(name)
        if place is None:
            return self.absent.get(name, NOTHING)
        return int(self.labels[place]) if self.labels[place] >= 0 else -1 - int(self.marks[place])

    def words(self, code: int) -> str:
        """The name of a class or a mark, "" for nothing."""
        return self.classes[code].name if code >= 0 else "" if code == NOTHING else MARKS[NOTHING - 1 - code]

    def id_of(self, name: str) -> int | None:
        """The class with this name."""
        return next((id for id, known in self.classes.items() if known.name == name), None)

    def answer(self, changes: Sequence[Change], tab: str) -> Step:
        """The step in which images get labels or marks."""
        if len({change.id for change in changes}) < len(changes):
            raise InputError("An image is there twice: say one thing about each.")
        images, other = [], []
        for change in changes:
            if not 0 <= change.id < len(self.names):
                raise InputError(f"There is no image {change.id}: the last one is {len(self.names) - 1}.")
            name, now = self.names[change.id], int(code_of(change.label, change.mark))
            if now >= 0:
                self._known(now)
            was = self.code(name)
            if was not in (now, code_of(change.seen_label, change.seen_mark)):
                other.append(change.id)
            elif was != now:
                images.append((name, was, now))
        if other:
            raise Conflict(f"{self._some(other)} changed in another tab: look at it again.", other)
        return Step(self._said(images), tab, images)

    def take_in(self, said: dict[str, str | int], sentence: Callable[[int], str], tab: str | None) -> Step:
        """The step in which images get labels by the names of classes, some of which may be new, or marks by number."""
        texts = sorted({clean_name(label) for label in said.values() if isinstance(label, str) and label})
        new = self._found([text for text in texts if self.id_of(text) is None], is_folder=False)
        ids = {known.name: id for id, known in self.classes.items()} | {
            known.name: id for id, _, known in new if known is not None
        }
        images = []
        for name, label in said.items():
            now = label if isinstance(label, int) else ids[clean_name(label)] if label else NOTHING
            if (was := self.code(name)) != now:
                images.append((name, was, now))
        return Step(sentence(len(images)), tab, images, new)

    def add(self, name: str, tab: str) -> Step:
        """The step that makes a class."""
        known = Known(self._free_name(name), self._free_key())
        return Step(f"New class '{known.name}'", tab, classes=[(self.next, None, known)])

    def rename(self, id: int, name: str, tab: str) -> Step:
        """The step that gives a class another name."""
        was = self._known(id)
        now = was._replace(name=self._free_name(name, id))
        said = f"'{was.name}' is called '{now.name}'"
        return Step(said, tab, classes=[(id, was, now)] if now != was else [])

    def merge(self, id: int, into: int, tab: str) -> Step:
        """The step that gives all images of a class another label, and removes it."""
        one, other = self._known(id), self._known(into)
        if id == into:
            raise InputError(f"'{one.name}' cannot be merged into itself: choose another class.")
        images = [(name, id, into) for name in self._labeled(id)]
        both = other._replace(folders=(*other.folders, *one.folders))
        said = f"'{one.name}' merged into '{other.name}'"
        return Step(said, tab, images, [(id, one, None), (into, other, both)])

    def remove(self, id: int, tab: str) -> Step:
        """The step that removes a class without labels."""
        known, named = self._known(id), self._labeled(id)
        if count := sum(name in self.places for name in named):
            raise InputError(f"'{known.name}' has {count:,} labels: merge it into another class, or clear them first.")
        return Step(f"Removed '{known.name}'", tab, [(name, id, NOTHING) for name in named], [(id, known, None)])

    def set_key(self, what: int | str, key: str, tab: str) -> Step:
        """The step that gives a class or an action another key."""
        key = key.lower() if len(key) == 1 else key
        if isinstance(what, int):
            was = self._known(what)
            now = was._replace(key=self._free(key, what) if key else "")
            said = f"'{was.name}' has the key {key}" if key else f"'{was.name}' has no key"
            return Step(said, tab, classes=[(what, was, now)] if now != was else [])
        one_of("action", what, KEYS)
        before, after = self.keys[what], self._free(key, what)
        return Step(f"{what} has the key {key}", tab, keys=[(what, before, after)] if before != after else [])

    def reverse(self, step: Step, n: int, tab: str) -> Step:
        """The step that undoes number `n`, if nobody changed since what it changed."""
        other = [self.places.get(name, -1) for name, _, now in step.images if self.code(name) != now]
        if other:
            here = [id for id in other if id >= 0]
            raise Conflict(f"{self._some(here)} changed since: it stays as it is.", here)
        images = [(name, now, was) for name, was, now in step.images]
        mine = {name for name, _, _ in images}
        classes = []
        for id, was, now in step.classes:
            known = self.classes.get(id)
            if known != now:
                raise Conflict(f"The class '{(known or was or now or Known('', '')).name}' changed since: it stays.")
            if was is None and (left := [name for name in self._labeled(id) if name not in mine]):
                here = [self.places[name] for name in left if name in self.places]
                raise Conflict(f"'{known.name if known else ''}' has labels by now: it stays.", here)
            if was is not None:
                if self.id_of(was.name) not in (None, id):
                    raise Conflict(f"Another class is called '{was.name}' by now: it stays as it is.")
                if was.key and self._owner(was.key) not in (None, id):
                    was = was._replace(key=self._free_key())
            classes.append((id, now, was))
        for action, was_key, now_key in step.keys:
            if self.keys[action] != now_key or self._owner(was_key) not in (None, action):
                raise Conflict(f"The key of {action} changed since: it stays as it is.")
        keys = [(action, now_key, was_key) for action, was_key, now_key in step.keys]
        return Step(f"Undid: {step.said}", tab, images, classes, keys, undoes=n)

    def _codes(self, ids: NDArray[np.intp]) -> NDArray[np.int32]:
        return np.where(self.labels[ids] >= 0, self.labels[ids], -1 - self.marks[ids].astype(np.int32))

    def _known(self, id: int) -> Known:
        if id not in self.classes:
            raise InputError(f"There is no class {id} any more: load the page again.")
        return self.classes[id]

    def _labeled(self, id: int) -> list[str]:
        here = [self.names[place] for place in np.flatnonzero(self.labels == id).tolist()]
        return here + [name for name, code in self.absent.items() if code == id]

    def _found(self, texts: Iterable[str], *, is_folder: bool) -> list[tuple[int, Known | None, Known | None]]:
        """Classes of which one finds the names, with keys; a folder may be called what no class can be."""
        new: list[tuple[int, Known | None, Known | None]] = []
        classes = dict(self.classes)
        names = {known.name: id for id, known in classes.items()}
        keys = [key for key in CLASS_KEYS if self._owner(key) is None]
        for text in texts:
            folders = (text,) if is_folder else ()
            name = printable(normalize("NFC", text)).strip()[:LONGEST_NAME] or "?"
            if name in names and names[name] in classes:  # somebody made it before there was a folder
                id = names[name]
                known, classes[id] = classes[id], classes[id]._replace(folders=(*classes[id].folders, *folders))
                new.append((id, known, classes[id]))
                continue
            while name in names:
                name = f"{name[: LONGEST_NAME - 1]}*"
            id = names[name] = self.next + sum(was is None for _, was, _ in new)
            new.append((id, None, Known(name, keys.pop(0) if keys else "", folders)))
        return new

    def _free_name(self, text: str, id: int | None = None) -> str:
        name = clean_name(text)
        if self.id_of(name) not in (None, id):
            raise InputError(f"There is a class '{name}' already: merge the two, or choose another name.")
        return name

    def _owner(self, key: str) -> int | str | None:
        """The class or the action that has a key."""
        actions = (action for action, used in self.keys.items() if used == key)
        return next((id for id, known in self.classes.items() if known.key == key), next(actions, None))

    def _free_key(self) -> str:
        return next((key for key in CLASS_KEYS if self._owner(key) is None), "")

    def _free(self, key: str, what: int | str) -> str:
        """The key, if it is one and nobody else has it."""
        usual = _NAMED_KEY.fullmatch(key) and key not in _OTHERS_KEYS
        if not usual and (len(key) != 1 or key.isspace() or printable(key) != key):
            raise InputError(f"'{shortened(printable(key))}' is no key for this: press a letter, a digit or the like.")
        owner = self._owner(key)
        if owner not in (None, what):
            name = f"the class '{self.classes[owner].name}'" if isinstance(owner, int) else f"'{owner}'"
            raise InputError(f"The key {key} belongs to {name}: choose another, or give that one another key first.")
        return key

    def _some(self, ids: Sequence[int]) -> str:
        more = f" and {len(ids) - 1:,} more" if len(ids) > 1 else ""
        return f"{shortened(self.names[ids[0]])}{more}" if ids else "An image"

    def _said(self, images: Sequence[tuple[str, int, int]]) -> str:
        codes = {now for _, _, now in images}
        what = shortened(images[0][0]) if len(images) == 1 else f"{len(images):,} images"
        if not images:
            return "Nothing changed"
        if len(codes) > 1:
            return f"Several labels for {what}"
        code = codes.pop()
        marks = {-2: "Skipped", -3: "Unsure about", -4: "None of these:", NOTHING: "Cleared"}
        return f"'{self.classes[code].name}' for {what}" if code >= 0 else f"{marks[code]} {what}"
