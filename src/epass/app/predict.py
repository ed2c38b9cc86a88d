"""Name the classes of new images, or of new vectors."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .. import extensions
from ..errors import InputError, unknown
from ..files import as_text, check_writable, from_home, write_atomically
from ..machine.launch import all_or_none, is_first_process, is_one_of_several, join_processes
from ..untrusted import parse_json
from .answering import Sheet, answer_all, ask_about, check_decoder, find_what
from .answers import Answer, Judge, as_csv, as_object, check_probabilities, write_probabilities
from .doubts import not_read
from .events import Event, Line, Notice, Result, Section, Table, work
from .flags import Decoder, Device, Flag, Images, Model, Stop, Trust, decoder_names, go_on
from .parts import Parts, describe_job, digest_model
from .words import count_images, counted, percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .answering import Ask

LISTED = 10  # images that are named
LISTED_CLASSES = 30
USUAL, MANY, ENOUGH = 0.1, 0.25, 20  # share of doubtful images, share that is worth a sentence, of at least so many
TYPED = "-"  # in place of images: paths from standard input


class Doubt(NamedTuple):
    """How many images are less certain than nearly all test images of the run were."""

    limit: float  # the confidence that all but the share `USUAL` of the test images reached
    images: int
    many: bool


@work
def predict(
    run: Model,
    images: Annotated[
        Images,
        Flag(
            "A folder of any depth, an archive, a table of paths or one image; or vectors. With -, paths are read from "
            "standard input, and a line of JSON is written for each.",
            metavar="IMAGES",
        ),
    ],
    *,
    out: Annotated[str | Path, Flag("The table to write: file, prediction, confidence, ...")] = "predictions.csv",
    top: Annotated[int, Flag("How many classes to name for every image, the likeliest first.")] = 1,
    probabilities: Annotated[
        str | Path | None, Flag("Write the probabilities of all classes, too: .csv, .npy or .parquet.", metavar="FILE")
    ] = None,
    trust: Trust = None,
    device: Device = "auto",
    decoder: Decoder = "auto",
    stop: Stop = go_on,
    lines: Iterable[str] = (),
) -> Iterator[Event]:
    """Name the class of every image with the model of a run, and write a table.

    The exit code is 1 if an image cannot be read: its row says why, and all
    others have their answers. Stop it whenever you like: the same command goes
    on where it was.
    """
    run, images, out = Path(run), str(images), Path(out)
    written = None if probabilities is None else Path(probabilities)
    place = join_processes(device)
    with all_or_none():
        check_output(out, written, images)
        if decoder not in decoder_names():
            raise unknown("decoder", decoder, decoder_names())

        from ..engine.answer import open_answerer
        from ..evaluation.calibrated import Calibration

        extensions.trust(*(trust or ()))
        digest = digest_model(run)
        answerer = open_answerer(run, place)
        model = answerer.model
        classes: list[str] = model["classes"]
        if not 1 <= top <= len(classes):
            raise InputError(f"--top {top} is not possible: the model of '{run}' knows {len(classes)} classes.")
        judge = Judge(classes, Calibration.from_json(model.get("calibration")), answerer.known, top)
        if images == TYPED:
            check_filter(model, written, decoder)
            yield from answer_lines(answerer.answer, model, judge, lines)
            return
        asked = find_what(images, model, answerer.settings)
        check_decoder(decoder, images, asked, answerer)
        if written is not None:
            check_probabilities(written, classes, asked.column)
        job = describe_job(digest, answerer.way, asked.names, asked.files)
    yield from not_read(asked.passed_over)
    sheet = Sheet(judge, asked.names, keep=written is not None)
    parts = Parts(out, job, len(classes), needed=is_one_of_several())
    decoded_by = yield from answer_all(answerer, decoder, asked, sheet, parts, stop)
    if not is_first_process():
        yield Result()
        return
    answers = sheet.answers
    write_atomically(out, as_csv(answers, top, asked.column, judge.columns))
    files = {"table": out}
    if written is not None:
        write_probabilities(written, asked.column, [answer.file for answer in answers], classes, sheet.probs)
        files["probabilities"] = written
    parts.remove()
    test = None if answerer.tested is None else judge.calibration.probabilities(answerer.tested)
    answered = [answer for answer in answers if not answer.error]
    unreadable = {answer.file: answer.error for answer in answers if answer.error}
    doubt = doubts(answered, test)
    title = f"{counted(len(answered), asked.thing)} of {images}, by {run}"
    yield from summarize(title, answered, unreadable, doubt, asked.thing)
    yield Notice(f"Every {asked.thing} with its class: {out}")
    if written is not None:
        yield Notice(f"All probabilities: {written}")
    values = {"run": str(run), "data": images, "out": str(out), **as_values(answered, unreadable, doubt)}
    values["decoder"] = decoded_by if asked.thing == "image" else None
    values["unlike"] = None if judge.known is None else count_unlike(answered)
    values["abstained"] = None if judge.calibration.answer_from is None else count_abstained(answered)
    yield Result(values=values, files=files, partial=bool(unreadable))


def check_output(out: Path, probabilities: Path | None, images: str) -> None:
    """Refuse what cannot be written, or had better not be, before anything is computed."""
    if out.suffix.lower() != ".csv":  # nobody wants an image or a model to be replaced by a table
        raise InputError(f"'{out}' is no name for a table: choose one that ends in .csv.")
    for path, flag in ((out, "--out"), (probabilities, "--probabilities")):
        if path is not None:
            check_writable(path)
            if path.exists() and from_home(images).exists() and path.samefile(from_home(images)):
                raise InputError(f"'{path}' names the images and would be replaced: choose another file with {flag}.")
    if probabilities is not None and probabilities.absolute() == out.absolute():
        raise InputError(f"'{out}' cannot be both tables: choose another file with --probabilities.")


def check_filter(model: dict[str, Any], written: Path | None, decoder: str) -> None:
    """Refuse what cannot be answered line by line."""
    if is_one_of_several():
        raise InputError(f"'{TYPED}' is answered line by line, by one process: leave out --devices.")
    if "numbers" in model:
        raise InputError(f"'{TYPED}' reads paths of images, and the model takes vectors: give it a table of these.")
    if decoder == "device":
        raise InputError(f"'{TYPED}' is answered line by line, and the CPU decodes single images: leave out --decoder.")
    if written is not None:
        most = len(model["classes"])
        raise InputError(f"'{TYPED}' writes no file: leave out --probabilities, and say --top {most} to get all.")


def answer_lines(ask: Ask, model: dict[str, Any], judge: Judge, lines: Iterable[str]) -> Iterator[Line | Result]:
    """One answer for each line that names an image, as soon as it is there; what cannot be answered gets an error."""
    from ..data import find_named

    errors = 0
    for line in lines:
        if not (typed := line.rstrip("\r\n")).strip():
            continue
        name = named_in(typed)
        if name is None:
            answer = Answer(as_text(typed), (), (), error='is JSON without a text under "file"')
        else:
            (chunk,) = find_named(".", [name]).chunks(model["height"], model["channels"])
            sheet = Sheet(judge, [name])
            sheet.enter(ask_about(chunk, 0, ask, judge))
            (answer,) = sheet.answers
        errors += bool(answer.error)
        yield Line(as_object(answer))
    yield Result(values=None, partial=bool(errors))


def named_in(line: str) -> str | None:
    """The path in a line: the line itself or, if it looks like a JSON object, what this has under "file"."""
    if not line.lstrip().startswith("{"):
        return line
    try:
        name = parse_json(os.fsencode(line)).get("file")
        return name if name and b"\0" not in os.fsencode(name) else None
    except (ValueError, TypeError):  # no JSON, no text, or none that can name a file
        return None


def doubts(answers: list[Answer], test: NDArray[np.float64] | None) -> Doubt | None:
    """The images against the run's test images, if it kept what the model said: their probabilities (N, C)."""
    import numpy as np

    if test is None:
        return None
    limit = float(np.quantile(test.max(axis=1), USUAL))
    doubtful = sum(answer.confidences[0] < limit for answer in answers)
    return Doubt(limit, doubtful, len(answers) >= ENOUGH and doubtful >= MANY * len(answers))


def count_unlike(answers: list[Answer]) -> int:
    """How many images look unlike the run's test images."""
    return sum(answer.unlike for answer in answers)


def count_abstained(answers: list[Answer]) -> int:
    """For how many images the model should give no answer."""
    return sum(bool(answer.abstain) for answer in answers)


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
    if abstained := count_abstained(answers):
        yield Section(
            f"{abstained:,} of {counted(len(answers), thing)} are too uncertain to be answered: the table says abstain."
        )
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
        yield Section(f"{count_images(len(unreadable))} without an answer:", lines=reasons)
