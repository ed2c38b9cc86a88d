"""Which images a data set consists of, wherever they lie."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from ...errors import InputError, shortened, unknown
from ...files import as_text, from_home
from .decode import ADVICE, Packed

_DIGITS = 18  # longer names are no numbers of classes
_FEW = 5  # names in a message
_LONGEST = 300  # letters of a path or a reason in a message
ROLES = {
    **dict.fromkeys(("train", "training", "labeled", "labelled"), "labeled"),
    **dict.fromkeys(("unlabeled", "unlabelled"), "unlabeled"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}  # what people call the parts of a data set, in small letters
Parts = tuple[str, ...]  # the names on the way to a member of an archive


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """A file or folder inside an archive, which is walked like a folder on disk.

    Folders are made of the names of the files in them when somebody looks into them: a small archive can have millions.
    """

    archive: Path
    parts: Parts  # the way to it or, of a folder, to something in it
    depth: int  # so many of these are its own
    inside: Sequence[Parts] | None = None  # the way to all that a folder holds, sorted; to the folder itself, with ""

    def __str__(self) -> str:
        return str(self.archive / self.path)

    @property
    def path(self) -> PurePosixPath:
        """Inside of the archive."""
        return PurePosixPath(*self.parts[: self.depth])

    @property
    def name(self) -> str:
        return self.parts[self.depth - 1] if self.depth else ""

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def is_dir(self) -> bool:
        return self.inside is not None

    def iterdir(self) -> Iterator[Member]:
        for name, together in groupby(self.inside or (), itemgetter(self.depth)):
            ways = list(together)
            if name:
                is_file = len(ways[0]) == self.depth + 1
                yield Member(self.archive, ways[0], self.depth + 1, None if is_file else ways)


Place = Path | Member
Read = Callable[[Sequence[Place]], Iterable[tuple[int, Path | Packed]]]  # images with their positions, in any order


def from_disk(files: Sequence[Place]) -> Iterable[tuple[int, Path | Packed]]:
    """Files that need no opening of anything around them."""
    return ((position, file) for position, file in enumerate(files) if isinstance(file, Path))


@dataclass(frozen=True)
class Listing:
    """The images of a data set, their labels, and how to get at them."""

    name: str
    root: Path  # the folder, table or archive that was opened
    classes: list[str]
    train: list[Place]
    labels: list[int]  # of the training images
    test: list[Place] = field(default_factory=list)
    test_labels: list[int] = field(default_factory=list)
    read: Read = from_disk
    validation: int = 0  # as in `Dataset`, like the next two
    parts: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)  # names and reasons of what cannot be used
    passed_over: Mapping[str, int] = field(default_factory=dict)  # image files of kinds that are not read, by ending
    marks: list[str] = field(default_factory=list)  # of the files, once they were looked at
    opened: bool = True  # a command can open the root, and leave out what cannot be used

    @property
    def files(self) -> list[Place]:
        return self.train + self.test

    @property
    def place(self) -> Path:
        """The folder or archive that the names of the files begin at."""
        return self.root if self.root.is_dir() or self.read is not from_disk else self.root.parent

    def without(self, reasons: Mapping[int, str]) -> Listing:
        """The rest, where the files at these positions cannot be used."""
        files, split = self.files, len(self.train)
        train = [position for position in range(split) if position not in reasons]
        test = [position for position in range(len(self.test)) if split + position not in reasons]
        return replace(
            self,
            train=[self.train[position] for position in train],
            labels=[self.labels[position] for position in train],
            test=[self.test[position] for position in test],
            test_labels=[self.test_labels[position] for position in test],
            validation=sum(position >= split - self.validation for position in train),
            marks=[mark for position, mark in enumerate(self.marks) if position not in reasons],
            problems=self.problems
            + [(name_inside(files[position], self.root), reason) for position, reason in sorted(reasons.items())],
        )


def taken_for(parts: Mapping[str, str]) -> dict[str, str]:
    """What the parts of a data set are used as, by name; `parts` has the name of every role."""
    taken = {name: f"{role} images" for role, name in parts.items()}
    if "validation" in parts and "test" not in parts:
        taken[parts["validation"]] = "test images, since there are no others"
    return taken


def quoted(names: Sequence[str]) -> str:
    """Some names in a message."""
    few = [f"'{shortened(name)}'" for name in names[:_FEW]]
    few += [f"{len(names) - _FEW:,} more"] if len(names) > _FEW else []
    return " and ".join(part for part in (", ".join(few[:-1]), few[-1]) if part)


def cannot_be_used(
    problems: Sequence[tuple[str, str]], place: Path, where: str = "", *, skip: bool = False
) -> InputError:
    """The error for files, by name, and what is wrong with each: all are counted, and the first ones are named.

    Args:
        problems: Names inside of `place` and reasons.
        place: The folder or archive they lie in.
        where: What was opened, if it is something else, such as a table.
        skip: Whether the command line can leave them out.
    """
    where = where or str(place)
    them = "them" if len(problems) > 1 else "it"
    advice = f": replace or remove {them}"
    if skip:
        all_named = shlex.join(["epass", "check", where])
        advice += f", or leave {them} out with --skip-unreadable ({all_named} lists all such files)"
    named = [(name if len(problems) > 1 else str(place / name), reason) for name, reason in problems[:_FEW]]
    said = [f"'{name[:_LONGEST]}' {reason.removesuffix(ADVICE)[:_LONGEST]}" for name, reason in named]
    if len(problems) == 1:
        return InputError(f"The image {said[0]}{advice}.")
    rest = f", and {len(problems) - _FEW:,} more" if len(problems) > _FEW else ""
    return InputError(f"{len(problems):,} images of '{where}' cannot be used ({', '.join(said)}{rest}){advice}.")


def nothing_at(path: str | Path) -> InputError:
    """The error for a path at which there is nothing, with the nearest folder that is there."""
    nearest = next(parent for parent in (from_home(path) / "_").absolute().parents if parent.is_dir())
    return InputError(f"There is no file or folder '{path}': the nearest folder that exists is '{nearest}'.")


def number_classes(names: Iterable[str]) -> list[str]:
    """The classes in their order: alphabetical, or by size if they are whole numbers."""
    distinct = sorted(set(names))
    numbers = all(name.isdecimal() and len(name) <= _DIGITS for name in distinct)
    return sorted(distinct, key=int) if numbers else distinct


def as_known(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Names, and what each is called among those `known`, or among those before it, where it looks the same.

    Macs write an accent as a letter of its own: what one system has written, another one does not find.
    """
    exact = dict.fromkeys(known)
    forms: dict[str, str] = {}
    for name in exact:
        forms.setdefault(normalize("NFC", name), name)
    return {name: name if name in exact else forms.setdefault(normalize("NFC", name), name) for name in names}


def number(labels: Iterable[str], classes: Sequence[str], kind: str) -> list[int]:
    """The position of each label among the classes, -1 for an empty one."""
    positions = {"": -1} | {name: position for position, name in enumerate(classes)}
    labels = list(labels)
    called = as_known(dict.fromkeys(labels), classes)
    for label, name in called.items():
        if name not in positions:
            raise unknown(kind, label, classes)
    return [positions[called[label]] for label in labels]


def check_number(classes: Sequence[str], where: str) -> None:
    """A classifier needs something to choose from."""
    if not classes:
        raise InputError(f"{where} holds no class: label some images of two or more classes.")
    if len(classes) == 1:
        raise InputError(f"{where} holds the single class '{classes[0]}': add a second one.")


def name_inside(file: Place, root: Path) -> str:
    """The path of an image inside of its data set."""
    return names_inside([file], root)[0]


def names_inside(files: Iterable[Place], root: Path) -> list[str]:
    """The paths of images inside of their data set."""
    base = root if root.is_dir() else root.parent
    return [as_text(_below(base, file) if isinstance(file, Path) else file.path.as_posix()) for file in files]


def _below(base: Path, file: Path) -> str:
    """The way to a file from a folder around it. Paths compare part by part, a tenth of the time to read a picture."""
    text, before = str(file), f"{base}{os.sep}"
    return (text[len(before) :] if text.startswith(before) else str(file.relative_to(base))).replace(os.sep, "/")


def change_of(facts: os.stat_result) -> str:
    """A text that is another one as soon as a file has changed."""
    # The time of the last change can be set back, and copying programs do: that of the last change of status cannot.
    return f"{facts.st_mtime_ns}\0{facts.st_ctime_ns}"
