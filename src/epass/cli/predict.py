"""`epass predict`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from .. import extensions
from ..app.words import count_images, percent
from ..errors import InputError
from ..files import as_text, write_atomically
from ..untrusted import printable, spreadsheet_path, spreadsheet_text
from .flags import Trust
from .progress import reading
from .screen import screen, show_facts, show_json, show_table

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import FoundImages, ProgressCallback

LISTED = 10  # images that are named on the screen
LISTED_CLASSES = 30
USUAL, MANY, ENOUGH = 0.1, 0.25, 20  # share of doubtful images, share that is worth a sentence, of at least so many


class Answer(NamedTuple):
    """What the model says about one image: the likeliest classes with their probabilities, the first one first."""

    file: str
    classes: list[str]
    confidences: list[float]


class Doubt(NamedTuple):
    """How many images are less certain than nearly all test images of the run were."""

    limit: float  # the confidence that all but the share `USUAL` of the test images reached
    images: int
    many: bool


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    images: Annotated[
        str, typer.Argument(metavar="IMAGES", help="A folder of any depth, an archive, a table of paths or one image.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write: file, prediction, confidence.")] = Path(
        "predictions.csv"
    ),
    top: Annotated[int, typer.Option(help="How many classes to name for every image, the likeliest first.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    trust: Trust = None,
) -> None:
    """Name the class of every image with the model of a run, and write a table.

    The exit code is 1 if an image cannot be read: it is left out, and all
    others are in the table.

    [cyan]epass predict runs/photos-simmatch-0 new/[/]                one class each

    [cyan]epass predict runs/photos-simmatch-0 new.zip --top 3[/]     with the runners-up
    """
    check_table(out, images)

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
    console = screen()
    with reading(console) as progress:
        answers, unreadable = name_all(net.to(place), model, found, place, top, progress)
    write_atomically(out, as_csv(answers, top))
    doubt = compare(answers, None if trained.predictions is None else trained.predictions.logits)
    if json:
        show_json({"run": str(run), "data": images, "out": str(out), **as_values(answers, unreadable, doubt)})
    else:
        title = f"{count_images(len(answers))} of {images}, by {run}"
        show_answers(console, title, answers, unreadable, doubt)
        console.print(Text(f"Every image with its class: {out}"), soft_wrap=True)
    if unreadable:
        raise typer.Exit(1)


def check_table(out: Path, images: str) -> None:
    """Refuse what cannot be written, or had better not be, before anything is computed."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError(f"'{out}' cannot be written: name a file in a folder that exists.")
    if out.suffix.lower() != ".csv":  # nobody wants an image or a model to be replaced by a table
        raise InputError(f"'{out}' is no name for a table: choose one that ends in .csv.")
    if out.exists() and Path(images).expanduser().exists() and out.samefile(Path(images).expanduser()):
        raise InputError(f"'{out}' names the images and would be replaced: choose another file with --out.")


def name_all(
    net: Any, model: dict[str, Any], found: FoundImages, place: Any, top: int, progress: ProgressCallback | None
) -> tuple[list[Answer], dict[str, str]]:
    """What the model says about the images that can be read, in the order of their names, and why others cannot."""
    from ..data import Normalization
    from ..engine.infer import predict as ask

    scale = Normalization(tuple(model["mean"]), tuple(model["std"]))
    answers: dict[int, Answer] = {}
    reasons: dict[int, str] = {}
    for chunk in found.chunks(model["height"], model["channels"], progress=progress):
        reasons |= chunk.unreadable
        if not chunk.positions:
            continue
        numbers, confidences = likeliest(ask(net, chunk.images, scale, place), top)
        for position, row, shares in zip(chunk.positions, numbers.tolist(), confidences.tolist(), strict=True):
            classes = [model["classes"][number] for number in row]
            answers[position] = Answer(as_text(found.names[position]), classes, shares)
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


def compare(answers: list[Answer], test_logits: Any) -> Doubt | None:
    """The images against the test images of the run, if it kept what the model said about these."""
    import torch

    if test_logits is None:
        return None
    _, confidences = likeliest(torch.from_numpy(test_logits), 1)
    limit = confidences.quantile(USUAL).item()
    doubtful = sum(answer.confidences[0] < limit for answer in answers)
    return Doubt(limit, doubtful, len(answers) >= ENOUGH and doubtful >= MANY * len(answers))


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


def show_answers(
    console: Console, title: str, answers: list[Answer], unreadable: dict[str, str], doubt: Doubt | None
) -> None:
    """How many images of which class, those to look at, and whether the model is out of its depth."""
    counts = Counter(answer.classes[0] for answer in answers).most_common()
    facts = {name: f"{count_images(count)}, {percent(count / len(answers), 1)}" for name, count in counts}
    if len(counts) > LISTED_CLASSES:
        rest = sum(count for _, count in counts[LISTED_CLASSES:])
        facts = dict(list(facts.items())[:LISTED_CLASSES])
        facts["..."] = f"{count_images(rest)} of {len(counts) - LISTED_CLASSES} more classes"
    if answers:
        show_facts(console, title, facts)
        rows = [[a.file, a.classes[0], percent(a.confidences[0], 1)] for a in least_certain(answers)]
        show_table(console, ("least certain", "prediction", "confidence"), rows)
        console.print()
    if doubt is not None and doubt.many:
        sentence = (
            f"{doubt.images:,} of {count_images(len(answers))} are less certain than nine tenths of the run's test "
            f"images (below {percent(doubt.limit, 1)}): look at some, they may differ from what the model learned from."
        )
        console.print(Text(sentence, "yellow"), soft_wrap=True)
        console.print()
    if unreadable:
        console.print(Text(f"{count_images(len(unreadable))} left out:", "bold"))
        for name, reason in unreadable.items():
            console.print(Text(printable(f"  {name} {reason}")), soft_wrap=True)
        console.print()
