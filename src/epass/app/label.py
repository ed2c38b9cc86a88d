"""Take in labels that a person gave to images or vectors."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InputError, nearest, shortened
from ..files import write_atomically
from .doubts import doubtful_classes
from .events import Caution, Event, Notice, Result, Section, work
from .flags import Flag, Images
from .label_files import FILE, Answer, Book, open_book, read_answers
from .words import some

if TYPE_CHECKING:
    from ..data.read.ways import Ways

LISTED_CLASSES = 30


@work
def label(
    data: Annotated[Images, Flag("The folder of images, or the table of images or vectors.", metavar="DATA")],
    labels: Annotated[
        str | Path, Flag("A table that was filled in, or what Label Studio exports as .json.", metavar="LABELS")
    ],
    *,
    force: Annotated[bool, Flag("Replace labels that were other ones before.")] = False,
) -> Iterator[Event]:
    """Take in labels that somebody gave, for 'epass train' to learn from.

    A folder of images keeps them in its table labels.csv, a table in its column
    of labels. What stood there before is kept beside it, as .bak.
    """
    from ..data.read.listing import as_known

    data, labels = fspath(data), Path(labels)
    book = open_book(data)
    answers = read_answers(labels, book.key)
    if book.key == FILE:
        ways = ways_in(book)
        answers = [one._replace(name=ways.find(one.name)) for one in answers]
    called = as_known((one.label for one in answers), book.labels.values())
    said = agreed([one._replace(label=called[one.label]) for one in answers], labels)
    refuse_strangers(said, book, data, labels)
    changes = {name: answer.label for name, answer in said.items() if book.labels[name] != answer.label}
    if not force:
        refuse_changes([said[name] for name in changes], book, labels)
    backup = book.table.with_name(f"{book.table.name}.bak")
    written: dict[str, Path] = {}
    if changes:
        if book.table.exists():
            write_atomically(backup, book.table.read_bytes())
            written["before"] = backup
        write_atomically(book.table, book.with_labels(changes))
        written["table"] = book.table
    now = {**book.labels, **changes}
    before, counts = (Counter(filter(None, texts.values())) for texts in (book.labels, now))
    new = sorted(counts.keys() - before.keys())
    added = sum(not book.labels[name] for name in changes)
    classes = [f"{name} {count:,}{' (new)' if name in new else ''}" for name, count in sorted(counts.items())]
    yield Section(
        f"Labels of {data}",
        {
            "labels": f"{added:,} added, {len(changes) - added:,} changed, {len(said) - len(changes):,} as before",
            "classes": some(classes, LISTED_CLASSES),
            "without a label": f"{sum(not text for text in now.values()):,}",
        },
    )
    if written:
        kept = f", and what was there before in {backup}" if "before" in written else ""
        yield Notice(f"The labels are in {book.table}{kept}.")
    yield from map(Caution, doubts(new, before, counts, book))
    yield Result(
        values={"data": data, "added": added, "changed": len(changes) - added, "classes": dict(counts), "new": new},
        files=written,
        following=shlex.join(["epass", "train" if len(counts) > 1 else "suggest", data]),
    )


def agreed(answers: Sequence[Answer], labels: Path) -> dict[str, Answer]:
    """One answer for each name, if nobody contradicts another."""
    said: dict[str, Answer] = {}
    for answer in answers:
        other = said.setdefault(answer.name, answer)
        if other.label != answer.label:
            raise InputError(
                f"'{shortened(answer.name)}' is '{other.label}' in {other.where} of '{labels}' and '{answer.label}' in "
                f"{answer.where}: keep one."
            )
    if not said:
        raise InputError(f"'{labels}' holds no label yet: fill in the column label.")
    return said


def refuse_strangers(said: dict[str, Answer], book: Book, data: str, labels: Path) -> None:
    """Refuse labels of what is not there."""
    if strange := [answer for name, answer in said.items() if name not in book.labels]:
        more = f" (and {len(strange) - 1:,} more)" if len(strange) > 1 else ""
        name = strange[0].name
        same = ways_in(book).near(name) if book.key == FILE else []
        hint = (
            f"'{shortened(same[0])}' is there: write it so"
            if len(same) == 1
            else "give the data that the labels are of"
        )
        raise InputError(
            f"'{shortened(name)}' in {strange[0].where} of '{labels}'{more} is nothing that '{data}' has to train on: "
            f"{hint}."
        )


def ways_in(book: Book) -> Ways:
    """The images of a data set, named from where its table is or from where somebody is."""
    from ..data.read.ways import Ways

    return Ways(book.table.parent, book.labels, Path())


def refuse_changes(changed: Sequence[Answer], book: Book, labels: Path) -> None:
    """Refuse to replace a label, unless whoever gave the new one was shown it."""
    odd = [answer for answer in changed if book.labels[answer.name] not in ("", answer.known)]
    if odd:
        one, more = odd[0], f" (and {len(odd) - 1:,} more like it)" if len(odd) > 1 else ""
        raise InputError(
            f"'{shortened(one.name)}' is '{book.labels[one.name]}' so far and '{one.label}' in {one.where} of "
            f"'{labels}'{more}: correct the file, or say --force."
        )


def doubts(new: Sequence[str], before: Counter[str], counts: Counter[str], book: Book) -> Iterator[str]:
    """What somebody may not have meant."""
    near = {name: other for name in new if (other := nearest(name, before))}
    for name, other in near.items():
        yield f"'{name}' is a new class, and there was '{other}' already: correct the labels if they are the same."
    yield from doubtful_classes({name: count for name, count in sorted(counts.items()) if name not in near})
    single = [name for name, count in sorted(counts.items()) if count == 1]
    if single and len(counts) > 1 and not book.tested:
        yield (
            f"There is a single label of {some(single)}: without a test set, every class needs one to learn from and "
            "one to test with."
        )
