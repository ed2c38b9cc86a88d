"""The table labels.csv in a folder of photos, which others read and write, too."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from posixpath import normpath
from typing import Any

from ..app.label_files import FILE, Book, Sheet, path_at, read_sheet
from ..data.read.given_labels import find_labels, of_something_else, own_table
from ..data.read.ways import Ways
from ..errors import InputError
from ..files import write_atomically
from ..untrusted import LARGEST_JSON, read_limited
from .journal import seal, unseal


class LabelTable:
    """What the table says, what we wrote into it, and what somebody else changed since."""

    def __init__(self, folder: Path, home: Path, known: Collection[str]) -> None:
        """The `known` are the images in the folder."""
        self._known = known
        self.path, self._memory = own_table(folder), home / "table.json"
        self._sheet, self._names = Sheet(["path", "label"]), list[str]()
        self._seen: tuple[int, ...] | None = None
        self._foreign = False  # somebody else wrote it last

    def changed(self) -> bool:
        """Whether there is a table that is not as we saw it last."""
        return self.path.exists() and self._signature() != self._seen

    def news(self, n: int) -> dict[str, str]:
        """The labels that somebody else changed, by image, "" for none; `n` is the number of the last record.

        A table that was deleted says nothing: it is written again.
        """
        if not self.path.exists():
            return {}
        if self.path.is_symlink():
            raise InputError(f"'{self.path}' is a link: put the table itself there.")
        seen = self._signature()
        given = find_labels(self.path)
        if given is None:
            raise of_something_else(self.path)
        sheet = read_sheet(self.path)
        at = path_at(self.path, sheet.columns)
        ways = Ways(self.path.parent, self._known)
        self._sheet, self._names = sheet, [ways.find(normpath(row[at].strip())) for row in sheet.rows]
        self._seen = seen
        memory, digest = self._remembered(), self._digest()
        self._foreign = digest not in (memory["now"], memory["before"])
        if not self._foreign and memory["n"] <= n:
            return {}
        # With a higher number than the last record's, records were lost, and the table is all that is left of them.
        ours = memory["labels"] if memory["n"] <= n else {}
        texts = {name: label for name, (label, _) in given.among(self._known).rows.items()}
        both = dict.fromkeys([*texts, *ours])
        return {name: texts.get(name, "") for name in both if texts.get(name, "") != ours.get(name, "")}

    def write(self, n: int, label_of: Callable[[str], str | None], others: dict[str, str]) -> None:
        """Write the labels as they are after record `n`.

        Args:
            n: Number of the last record.
            label_of: The label of an image, "" for none; None for what is no image here.
            others: The labels that need a row, in addition to those that have one.
        """
        rows = {name: label_of(name) for name in self._names}
        labels = {name: label for name, label in rows.items() if label is not None}
        labels |= {name: label for name, label in others.items() if normpath(name.strip()) == name}
        if not labels and not self.path.exists():
            return
        content = Book(self.path, FILE, {}, self._sheet, self._names, False).with_labels(labels)
        before, now = self._digest(), sha256(content).hexdigest()
        if before != now:
            if self._foreign:
                write_atomically(self.path.with_name(f"{self.path.name}.bak"), self.path.read_bytes())
                self._foreign = False
            said = {name: label for name, label in labels.items() if label}
            write_atomically(self._memory, seal({"n": n, "before": before, "now": now, "labels": said}))
            write_atomically(self.path, content)
        self._seen = self._signature()

    def _signature(self) -> tuple[int, ...]:
        facts = self.path.stat()
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def _digest(self) -> str:
        return sha256(self.path.read_bytes()).hexdigest() if self.path.exists() else ""

    def _remembered(self) -> dict[str, Any]:
        """What we wrote last; with anything else in its place, the table has everything to say."""
        try:
            memory = unseal(read_limited(self._memory, LARGEST_JSON))
            if {*map(type, memory["labels"].values())} <= {str} and isinstance(memory["n"], int):
                return {"before": "", "now": "", **memory}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return {"n": 0, "before": "", "now": "", "labels": {}}
