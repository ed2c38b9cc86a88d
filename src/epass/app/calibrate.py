"""Calibrate a trained model: how sure it may be, by labels that it was not trained on."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .. import extensions
from ..errors import InputError
from ..runs import MODEL, RunFolder, load_run
from .doubts import not_read
from .evaluate import other_test
from .events import Caution, Event, Notice, Progress, Result, work
from .flags import Device, Flag, Reading, Run, SkipUnreadable, Trust
from .seen import kind_of, left_out, own_images, seen_again
from .words import counted, percent, some

if TYPE_CHECKING:
    from ..evaluation.calibrated import Calibration
    from ..runs import Predictions

VALIDATION, CROSS_FITTED = "validation", "cross-fitted"
FEWER = (
    "The labels were answered by models that were trained on fewer of them and so are wrong more often than this one: "
    "it may be surer than the calibration says. Labeled images that are not trained on (--data) are better."
)


class Held(NamedTuple):
    """Labels that the model was not trained on, with answers to their images."""

    logits: Any  # (N, C)
    labels: Any  # (N,)
    source: str


@work
def calibrate(
    run: Run,
    *,
    data: Annotated[
        str | None, Flag("Labeled images that the run was neither trained nor tested on: a folder, archive, table, ...")
    ] = None,
    coverage: Annotated[
        float | None, Flag("Give every image a set of classes that holds the true one this often, like 0.9.")
    ] = None,
    accuracy: Annotated[
        float | None, Flag("Abstain where the answers would be right less often than this, like 0.95.")
    ] = None,
    remove: Annotated[bool, Flag("Forget the calibration of the model.")] = False,
    skip_unreadable: SkipUnreadable = False,
    trust: Trust = None,
    device: Device = "auto",
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Learn how sure a model may be, from labels that it was not trained on.

    These are the labels of --data, else of the run's validation images, else
    its own: each is then answered by one of five models that are trained
    without it. Test labels are not used. 'epass predict' applies the result.
    """
    from ..engine.models import load_model
    from ..evaluation.calibrated import Calibration, check_enough, fit_calibration
    from ..machine.device import choose_device

    extensions.trust(*(trust or ()))
    extensions.trust_typed(data)
    place, run = choose_device(device), Path(run)
    net, model = load_model(run)
    before = Calibration.from_json(model.get("calibration"))
    if remove:
        yield from forget(run, model, before, said=(data, coverage, accuracy))
        return
    asked = {what: share for what, share in (("coverage", coverage), ("accuracy", accuracy)) if share is not None}
    for what, share in asked.items():
        check_enough(2**53, share, what)
    trained = load_run(run)
    if data is not None:
        held = yield from answers_of(data, run, net, model, place, reading, skip_unreadable)
    elif trained.validation is not None:
        held = Held(*trained.validation, VALIDATION)
    else:
        held = yield from cross_fitted(run, model["classes"], asked, place, reading, skip_unreadable)
    refuse_missing_classes(held, model["classes"])
    found = fit_calibration(held.logits, held.labels, source=held.source, **asked)
    store(run, {**model, "calibration": found.as_json()})
    if before.labels:
        yield Notice(f"The calibration of before ({describe(before)}) is replaced.")
    values = {"run": str(run), "calibration": found.as_json(), "test": measure(found, trained.predictions)}
    yield Result(f"{run} is calibrated", facts=facts(found, held, trained.predictions, kind_of(model)), values=values)


def forget(run: Path, model: Mapping[str, Any], before: Calibration, said: Sequence[object]) -> Iterator[Event]:
    """Make the model what it was when it was trained."""
    if any(value is not None for value in said):
        raise InputError("--remove forgets a calibration: leave out --data, --coverage and --accuracy.")
    if not before.labels:
        raise InputError(f"The model of '{run}' has no calibration: there is nothing to remove.")
    store(run, {key: value for key, value in model.items() if key != "calibration"})
    yield Result(f"{run} is no longer calibrated", facts={"before": describe(before)}, values={"run": str(run)})


def store(run: Path, model: Mapping[str, Any]) -> None:
    """Write model.json again, while nobody else writes to the run."""
    home = RunFolder(run)
    with home.hold():
        home.write_json(MODEL, model)


def answers_of(
    data: str, run: Path, net: Any, model: dict[str, Any], place: Any, reading: Reading | None, skip: bool
) -> Generator[Event, None, Held]:
    """Other labeled images, which may not be those that the run was trained or tested on."""
    from ..engine.infer import predict, ready

    dataset, images = other_test(data, model, reading, skip)
    yield from not_read(dataset.passed_over)
    yield from left_out(dataset, skip)
    again = yield from seen_again(data, images, run, ("labeled", "test"), reading, skip)
    if again:  # what it was trained on, the model is too sure of, and what it is tested on must decide nothing
        thing = kind_of(model)
        raise InputError(
            f"{again:,} of {counted(len(images), thing)} of '{data}' are labeled or test {thing}s of the run, which "
            "cannot calibrate it: give others."
        )
    scale = replace(dataset, mean=tuple(model["mean"]), std=tuple(model["std"]))
    return Held(predict(ready(net, place), images, scale, place).numpy(), images.labels.numpy(), data)


def cross_fitted(
    run: Path, classes: Sequence[str], asked: Mapping[str, float], place: Any, reading: Reading | None, skip: bool
) -> Generator[Event, None, Held]:
    """The labels of the run, each answered by a model that was trained without it."""
    import numpy as np

    from ..engine.build import open_examples
    from ..engine.crossfit import out_of_fold
    from ..engine.run import continued, split_record
    from ..evaluation.calibrated import check_enough

    recipe, images = own_images(run, reading, skip, instead=", or give other labeled images with --data")
    yield from left_out(images, skip)
    dataset = open_examples(recipe, place, images)
    dataset, split, change = continued(recipe, RunFolder(run), split_record(RunFolder(run)), dataset)
    if change:
        yield Caution(change)
    labels = split.labeled.labels.cpu().numpy()
    single = [name for name, count in zip(classes, split.label_counts, strict=True) if count < 2]
    if single:
        raise InputError(
            f"{some(single)} {'has a single label' if len(single) == 1 else 'have a single label each'}, which cannot "
            "be left out: label one more, or give other labeled images with --data."
        )
    for what, share in asked.items():
        check_enough(len(labels), share, what)
    yield Notice(
        "The run has no validation images: its own labels are answered by five models, each trained without some."
    )
    passing = out_of_fold(recipe, dataset, split, place)
    while True:
        try:
            done, total = next(passing)
        except StopIteration as end:
            logits = np.asarray(end.value)
            break
        yield Progress(done, total)
    yield Caution(FEWER, kind="Note")
    return Held(logits, labels, CROSS_FITTED)


def refuse_missing_classes(held: Held, classes: Sequence[str]) -> None:
    """A class without a label would be calibrated by the others alone."""
    import numpy as np

    counts = np.bincount(held.labels, minlength=len(classes))
    missing = [name for name, count in zip(classes, counts, strict=True) if not count]
    if missing:
        where = "The validation images" if held.source == VALIDATION else f"'{held.source}'"
        verb = "have" if held.source == VALIDATION else "has"
        raise InputError(
            f"{where} {verb} no label of {some(missing)}, and calibration needs one of every class: give others with "
            "--data."
        )


def describe(found: Calibration) -> str:
    """A temperature and where it comes from, in words."""
    source = found.source if found.source in (VALIDATION, CROSS_FITTED) else f"of {found.source}"
    return f"{found.temperature:.2f}, from {counted(found.labels, 'label')}, {source}"


def measure(found: Calibration, test: Predictions | None) -> dict[str, float] | None:
    """What the calibration is worth on the run's test images, of which no label had a part in it."""
    import numpy as np

    from ..evaluation import reliability

    if test is None:
        return None
    probs, labels = found.probabilities(test.logits), test.labels
    values = {
        "images": len(labels),
        "ece_before": reliability(test.logits, labels).ece,
        "ece": reliability(test.logits / found.temperature, labels).ece,
    }
    if found.set_from is not None:
        sets = found.sets(probs)
        values["coverage"] = float(sets[np.arange(len(labels)), labels].mean())
        values["set_size"] = float(sets.sum(axis=1).mean())
        values["empty_sets"] = float((~sets.any(axis=1)).mean())
    if found.answer_from is not None:
        answered = ~found.abstains(probs)
        values["answered"] = float(answered.mean())
        if answered.any():
            values["accuracy"] = float((probs.argmax(axis=1) == labels)[answered].mean())
    return values


def facts(found: Calibration, held: Held, test: Predictions | None, thing: str) -> dict[str, str]:
    """The calibration, and what it is worth, for people."""
    from ..evaluation.calibrated import spread
    from ..evaluation.left_out import estimate_error, mistakes

    told = {"temperature": describe(found)}
    measured = measure(found, test) or {}
    there = f"on {int(measured['images']):,} test {thing}s" if measured else ""
    if measured:
        told["ECE"] = f"{percent(measured['ece_before'])} before, {percent(measured['ece'])} now, {there}"
    if found.coverage is not None:
        luck = f"give or take {100 * spread(found.labels, found.coverage):.0f} points by the luck of the labels"
        told["sets"] = f"the true class is in {percent(found.coverage, 0)} of them, {luck}"
        if measured:
            size, empty = f"{measured['set_size']:.2f} classes each", f"{percent(measured['empty_sets'], 1)} are empty"
            told["sets, tested"] = f"{percent(measured['coverage'], 1)}, {size}, {empty}, {there}"
    if found.accuracy is not None and found.answer_from is not None:
        answered = ~found.abstains(found.probabilities(held.logits))
        missed = estimate_error(mistakes(held.logits, held.labels)[answered])
        told["answers"] = (
            f"from a probability of {percent(found.answer_from, 1)} on, to be right in {percent(found.accuracy, 0)}; "
            f"by the luck of the {counted(missed.labels, 'label')} above it, {100 * (1 - missed.high):.0f} to "
            f"{percent(1 - missed.low, 0)}"
        )
        if measured:
            right = f", {percent(measured['accuracy'], 1)} of them right" if "accuracy" in measured else ""
            told["answers, tested"] = f"{percent(measured['answered'], 1)} are answered{right}, {there}"
    return told
