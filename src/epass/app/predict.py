"""Name the classes of new images."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .. import extensions
from ..errors import InputError
from ..files import as_text, check_writable, write_atomically
from ..untrusted import spreadsheet_path, spreadsheet_text
from .events import Event, Notice, Result, Section, Table, work
from .flags import Device, Flag, Images, Reading, Run, Trust
from .words import count_images, percent

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import FoundImages
    from ..evaluation.novelty import Novelty

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
    run: Run,
    images: Annotated[
        Images, Flag("A folder of any depth, an archive, a table of paths or one image.", metavar="IMAGES")
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

    from ..data import find_images
    from ..engine.models import load_model
    from ..machine.device import choose_device
    from ..runs import load_run

    extensions.trust(*(trust or ()))
    place = choose_device(device)
    net, model = load_model(run)
    if not 1 <= top <= len(model["classes"]):
        raise InputError(f"--top {top} is not possible: the model of '{run}' knows {len(model['classes'])} classes.")
    trained = load_run(run)
    found = find_images(images, path_column=trained.recipe["data"].get("path_column"))
    known = known_kind(run, net)
    answers, unreadable = name_all(net.to(place), model, found, place, top, known, reading)
    write_atomically(out, as_csv(answers, top))
    doubt = doubts(answers, None if trained.predictions is None else trained.predictions.logits)
    yield from summarize(f"{count_images(len(answers))} of {images}, by {run}", answers, unreadable, doubt)
    yield Notice(f"Every image with its class: {out}")
    values = {"run": str(run), "data": images, "out": str(out), **as_values(answers, unreadable, doubt)}
    values["unlike"] = None if known is None else count_unlike(answers)
    yield Result(values=values, files={"table": out}, partial=bool(unreadable))


def check_output(out: Path, images: str) -> None:
    """Refuse what cannot be written, or had better not be, before anything is computed."""
    check_writable(out)
    if out.suffix.lower() != ".csv":  # nobody wants an image or a model to be replaced by a table
        raise InputError(f"'{out}' is no name for a table: choose one that ends in .csv.")
    if out.exists() and Path(images).expanduser().exists() and out.samefile(Path(images).expanduser()):
        raise InputError(f"'{out}' names the images and would be replaced: choose another file with --out.")


def known_kind(run: Path, net: Any) -> Novelty | None:
    """What tells images unlike the run's test images, if it kept enough of how it saw these."""
    from ..evaluation.novelty import LEAST, Novelty
    from ..runs import load_embeddings

    kept = load_embeddings(run)
    if kept is None or len(kept.features) < LEAST or kept.features.shape[1] != getattr(net, "num_features", None):
        return None
    return Novelty(kept.features)


def name_all(
    net: Any,
    model: dict[str, Any],
    found: FoundImages,
    place: Any,
    top: int,
    known: Novelty | None,
    reading: Reading | None,
) -> tuple[list[Answer], dict[str, str]]:
    """What the model says about the images that can be read, in the order of their names, and why others cannot."""
    from ..data import Normalization
    from ..engine.infer import infer

    scale = Normalization(tuple(model["mean"]), tuple(model["std"]))
    answers: dict[int, Answer] = {}
    reasons: dict[int, str] = {}
    for chunk in found.chunks(model["height"], model["channels"], progress=reading):
        reasons |= chunk.unreadable
        if not chunk.positions:
            continue
        said = infer(net, chunk.images, scale, place)
        numbers, confidences = (part.tolist() for part in likeliest(said.logits.cpu(), top))
        unlike = [False] * len(numbers) if known is None else known.unlike(said.features.cpu()).tolist()
        for position, row, shares, odd in zip(chunk.positions, numbers, confidences, unlike, strict=True):
            classes = [model["classes"][number] for number in row]
            answers[position] = Answer(as_text(found.names[position]), classes, shares, odd)
    unreadable = {as_text(found.names[position]): reasons[position] for position in sorted(reasons)}
    return [answers[position] for position in sorted(answers)], unreadable


def likeliest(logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Numbers and probabilities (N, top) of the classes with the largest logits (N, C); of equal ones the first."""
    shares, numbers = logits.double().softmax(1).sort(dim=1, descending=True, stable=True)
    return numbers[:, :top], shares[:, :top]


def as_csv(answers: list[Answer], top: int) -> bytes:
    """The table, in UTF-8, in which no name is a formula to a spreadsheet."""
    text = io.StringIO()
    # Python 3.11 takes a carriage return for a letter like others, and no reader does.
    quoted = any("\r" in answer.file for answer in answers)
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    runners_up = [f"{column}_{rank}" for rank in range(2, top + 1) for column in ("prediction", "confidence")]
    writer.writerow(["file", "prediction", "confidence", *runners_up])
    for answer in answers:
        pairs = zip(answer.classes, answer.confidences, strict=True)
        shares = (cell for name, share in pairs for cell in (spreadsheet_text(name), f"{share:.6f}"))
        writer.writerow([spreadsheet_path(answer.file), *shares])
    return text.getvalue().encode()


def doubts(answers: list[Answer], test_logits: Any) -> Doubt | None:
    """The images against the test images of the run, if it kept what the model said about these."""
    import torch

    if test_logits is None:
        return None
    _, confidences = likeliest(torch.from_numpy(test_logits), 1)
    limit = confidences.quantile(USUAL).item()
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
    title: str, answers: list[Answer], unreadable: dict[str, str], doubt: Doubt | None
) -> Iterator[Section | Table]:
    """How many images of which class, those to look at, and whether the model is out of its depth."""
    from ..evaluation.novelty import are_unlike

    counts = Counter(answer.classes[0] for answer in answers).most_common()
    facts = {name: f"{count_images(count)}, {percent(count / len(answers), 1)}" for name, count in counts}
    if len(counts) > LISTED_CLASSES:
        rest = sum(count for _, count in counts[LISTED_CLASSES:])
        facts = dict(list(facts.items())[:LISTED_CLASSES])
        facts["..."] = f"{count_images(rest)} of {len(counts) - LISTED_CLASSES} more classes"
    if answers:
        yield Section(title, facts)
        rows = [[a.file, a.classes[0], percent(a.confidences[0], 1)] for a in least_certain(answers)]
        yield Table(("least certain", "prediction", "confidence"), rows)
    if are_unlike(count_unlike(answers), len(answers)):
        which = f"{count_unlike(answers):,} of {count_images(len(answers))}"
        yield Section(
            f"{which} look unlike the run's test images, of which 5 % would: if they are of another kind, the answers "
            "mean nothing, however certain they are."
        )
    elif doubt is not None and doubt.many:
        yield Section(
            f"{doubt.images:,} of {count_images(len(answers))} are less certain than nine tenths of the run's test "
            f"images (below {percent(doubt.limit, 1)}): look at some, they may differ from what the model learned from."
        )
    if unreadable:
        reasons = [f"{name} {reason}" for name, reason in unreadable.items()]
        yield Section(f"{count_images(len(unreadable))} left out:", lines=reasons)
