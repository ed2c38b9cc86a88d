"""Name the classes of new images, or of new vectors."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .. import extensions
from ..errors import InputError
from ..files import as_text, check_writable, write_atomically
from ..untrusted import spreadsheet_path, spreadsheet_text
from .events import Event, Notice, Result, Section, Table, work
from .flags import Device, Flag, Images, Model, Reading, Trust
from .words import count_images, counted, percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data import Chunk
    from ..engine.answer import Answerer

LISTED = 10  # images that are named
LISTED_CLASSES = 30
USUAL, MANY, ENOUGH = 0.1, 0.25, 20  # share of doubtful images, share that is worth a sentence, of at least so many


class Answer(NamedTuple):
    """What the model says about one image: the likeliest classes with their probabilities, the first one first."""

    file: str
    classes: list[str]
    confidences: list[float]
    unlike: bool = False  # the test images of the run, as far as that is known


class Doubt(NamedTuple):
    """How many images are less certain than nearly all test images of the run were."""

    limit: float  # the confidence that all but the share `USUAL` of the test images reached
    images: int
    many: bool


@work
def predict(
    run: Model,
    images: Annotated[
        Images, Flag("A folder of any depth, an archive, a table of paths or one image; or vectors.", metavar="IMAGES")
    ],
    *,
    out: Annotated[str | Path, Flag("The table to write: file, prediction, confidence.")] = "predictions.csv",
    top: Annotated[int, Flag("How many classes to name for every image, the likeliest first.")] = 1,
    trust: Trust = None,
    device: Device = "auto",
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Name the class of every image with the model of a run, and write a table.

    The exit code is 1 if an image cannot be read: it is left out, and all
    others are in the table.
    """
    run, images, out = Path(run), str(images), Path(out)
    check_output(out, images)

    from ..engine.answer import open_answerer

    extensions.trust(*(trust or ()))
    answerer = open_answerer(run, device)
    model = answerer.model
    if not 1 <= top <= len(model["classes"]):
        raise InputError(f"--top {top} is not possible: the model of '{run}' knows {len(model['classes'])} classes.")
    asked = find_what(images, model, answerer.settings, reading)
    answers, unreadable = name_all(answerer, asked, top)
    write_atomically(out, as_csv(answers, top, asked.column))
    doubt = doubts(answers, answerer.tested)
    title = f"{counted(len(answers), asked.thing)} of {images}, by {run}"
    yield from summarize(title, answers, unreadable, doubt, asked.thing)
    yield Notice(f"Every {asked.thing} with its class: {out}")
    values = {"run": str(run), "data": images, "out": str(out), **as_values(answers, unreadable, doubt)}
    values["unlike"] = None if answerer.known is None else count_unlike(answers)
    yield Result(values=values, files={"table": out}, partial=bool(unreadable))


def check_output(out: Path, images: str) -> None:
    """Refuse what cannot be written, or had better not be, before anything is computed."""
    check_writable(out)
    if out.suffix.lower() != ".csv":  # nobody wants an image or a model to be replaced by a table
        raise InputError(f"'{out}' is no name for a table: choose one that ends in .csv.")
    if out.exists() and Path(images).expanduser().exists() and out.samefile(Path(images).expanduser()):
        raise InputError(f"'{out}' names the images and would be replaced: choose another file with --out.")


class Asked(NamedTuple):
    """What the model is asked about, some at a time."""

    thing: str  # image or vector
    column: str  # of the table, that holds the names
    names: list[str]
    chunks: Iterable[Chunk]


def find_what(path: str, model: dict[str, Any], settings: dict[str, Any], reading: Reading | None) -> Asked:
    """The images at `path` or, if the model takes these, the vectors; `settings` are the [data] table of the run."""
    from ..data import Chunk, find_images, find_vectors

    if "numbers" not in model:
        images = find_images(path, path_column=settings.get("path_column"))
        return Asked("image", "file", images.names, images.chunks(model["height"], model["channels"], progress=reading))
    found = find_vectors(path, label_column=settings.get("label_column"))
    check_width(path, found.vectors.shape[1], model)
    rows = list(range(len(found.names)))
    return Asked("vector", found.column, found.names, [Chunk(rows, found.vectors, {})])


def check_width(path: str, numbers: int, model: dict[str, Any]) -> None:
    """Refuse vectors of another width than those that the model has learned from."""
    if numbers != model["numbers"]:
        raise InputError(
            f"'{path}' holds vectors of {numbers:,} numbers, but the model takes {model['numbers']:,}: make them as "
            "those that it learned from were made."
        )


def name_all(answerer: Answerer, asked: Asked, top: int) -> tuple[list[Answer], dict[str, str]]:
    """What the model says about what can be read, in the order of the names, and why others cannot."""
    model, known = answerer.model, answerer.known
    answers: dict[int, Answer] = {}
    reasons: dict[int, str] = {}
    for chunk in asked.chunks:
        reasons |= chunk.unreadable
        if not chunk.positions:
            continue
        logits, features = answerer.answer(chunk.images)
        numbers, confidences = (part.tolist() for part in likeliest(logits, top))
        unlike = [False] * len(numbers) if known is None else known.unlike(features).tolist()
        for position, row, shares, odd in zip(chunk.positions, numbers, confidences, unlike, strict=True):
            classes = [model["classes"][number] for number in row]
            answers[position] = Answer(as_text(asked.names[position]), classes, shares, odd)
    unreadable = {as_text(asked.names[position]): reasons[position] for position in sorted(reasons)}
    return [answers[position] for position in sorted(answers)], unreadable


def likeliest(logits: NDArray[np.float32], top: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers and probabilities (N, top) of the classes with the largest logits (N, C); of equal ones the first."""
    import numpy as np

    from ..evaluation.arrays import log_softmax

    shares = np.exp(log_softmax(logits.astype(np.float64)))
    numbers = np.argsort(-shares, axis=1, kind="stable")[:, :top]
    return numbers, np.take_along_axis(shares, numbers, axis=1)


def as_csv(answers: list[Answer], top: int, column: str = "file") -> bytes:
    """The table, in UTF-8, in which no name is a formula to a spreadsheet; `column` is called what the names are."""
    as_cell = spreadsheet_path if column == "file" else spreadsheet_text
    text = io.StringIO()
    # Python 3.11 takes a carriage return for a letter like others, and no reader does.
    quoted = any("\r" in answer.file for answer in answers)
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    runners_up = [f"{column}_{rank}" for rank in range(2, top + 1) for column in ("prediction", "confidence")]
    writer.writerow([column, "prediction", "confidence", *runners_up])
    for answer in answers:
        pairs = zip(answer.classes, answer.confidences, strict=True)
        shares = (cell for name, share in pairs for cell in (spreadsheet_text(name), f"{share:.6f}"))
        writer.writerow([as_cell(answer.file), *shares])
    return text.getvalue().encode()


def doubts(answers: list[Answer], test_logits: Any) -> Doubt | None:
    """The images against the test images of the run, if it kept what the model said about these."""
    import numpy as np

    if test_logits is None:
        return None
    _, confidences = likeliest(test_logits, 1)
    limit = float(np.quantile(confidences, USUAL))
    doubtful = sum(answer.confidences[0] < limit for answer in answers)
    return Doubt(limit, doubtful, len(answers) >= ENOUGH and doubtful >= MANY * len(answers))


def count_unlike(answers: list[Answer]) -> int:
    """How many images look unlike the run's test images."""
    return sum(answer.unlike for answer in answers)


def least_certain(answers: list[Answer]) -> list[Answer]:
    """Those that somebody should look at first."""
    return nsmallest(LISTED, answers, key=lambda answer: answer.confidences[0])


def as_values(answers: list[Answer], unreadable: dict[str, str], doubt: Doubt | None) -> dict[str, Any]:
    """The summary for a program; the answers themselves are in the table."""
    return {
        "images": len(answers),
        "predictions": dict(Counter(answer.classes[0] for answer in answers).most_common()),
        "least_certain": [
            {"file": answer.file, "prediction": answer.classes[0], "confidence": answer.confidences[0]}
            for answer in least_certain(answers)
        ],
        "doubt": None if doubt is None else doubt._asdict(),
        "unreadable": unreadable,
    }


def summarize(
    title: str, answers: list[Answer], unreadable: dict[str, str], doubt: Doubt | None, thing: str
) -> Iterator[Section | Table]:
    """How many images or vectors of which class, those to look at, and whether the model is out of its depth."""
    from ..evaluation.novelty import are_unlike

    counts = Counter(answer.classes[0] for answer in answers).most_common()
    facts = {name: f"{counted(count, thing)}, {percent(count / len(answers), 1)}" for name, count in counts}
    if len(counts) > LISTED_CLASSES:
        rest = sum(count for _, count in counts[LISTED_CLASSES:])
        facts = dict(list(facts.items())[:LISTED_CLASSES])
        facts["..."] = f"{counted(rest, thing)} of {len(counts) - LISTED_CLASSES} more classes"
    if answers:
        yield Section(title, facts)
        rows = [[a.file, a.classes[0], percent(a.confidences[0], 1)] for a in least_certain(answers)]
        yield Table(("least certain", "prediction", "confidence"), rows)
    if are_unlike(count_unlike(answers), len(answers)):
        which = f"{count_unlike(answers):,} of {counted(len(answers), thing)}"
        yield Section(
            f"{which} look unlike the run's test {thing}s, of which 5 % would: if they are of another kind, the "
            "answers mean nothing, however certain they are."
        )
    elif doubt is not None and doubt.many:
        yield Section(
            f"{doubt.images:,} of {counted(len(answers), thing)} are less certain than nine tenths of the run's test "
            f"{thing}s (below {percent(doubt.limit, 1)}): look at some, they may differ from what the model learned "
            "from."
        )
    if unreadable:
        reasons = [f"{name} {reason}" for name, reason in unreadable.items()]
        yield Section(f"{count_images(len(unreadable))} left out:", lines=reasons)
