"""Test a trained model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import extensions
from ..errors import InputError
from ..recipe import read_recipe
from ..runs import SPLIT, RunFolder, load_run
from .answering import check_width
from .doubts import not_read
from .events import Caution, Event, Result, work
from .features import known_features
from .flags import Device, Flag, Reading, Run, SkipUnreadable, Trust
from .seen import images_to_answer, kind_of, left_out, own_images, seen_again
from .words import counted, some

if TYPE_CHECKING:
    from ..data import Dataset, ImageSource


@work
def evaluate(
    run: Run,
    *,
    data: Annotated[
        str | None, Flag("Other images of the same classes: a data set, or a folder, archive, table or .npz file.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    trust: Trust = None,
    device: Device = "auto",
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Test a trained model, on the run's own test images or on other ones."""
    from ..data import Normalization
    from ..engine.infer import predict, ready
    from ..engine.models import load_model, use_scores
    from ..evaluation import SCORES, find_doubts, score
    from ..evaluation.calibrated import Calibration
    from ..machine.device import choose_device

    extensions.trust(*(trust or ()))
    extensions.trust_typed(data)
    place, run = choose_device(device), Path(run)
    net, model = load_model(run)
    thing = kind_of(model)
    tested = load_run(run)
    for name in extensions.names_in([(tested.recipe.get("plan") or {}).get("scores")]):
        if extensions.located(name) in extensions.trusted():
            use_scores([name])
        else:
            yield Caution(f"A score of the run is left out: its code is run only if you say --trust {name}.")
    if data is None:
        dataset, test, change = own_test(run, reading, skip_unreadable)
        if change:
            yield Caution(change)
    else:
        dataset, test = other_test(data, model, reading, skip_unreadable)
        yield from not_read(dataset.passed_over)
        again = yield from seen_again(data, test, run, ("labeled",), reading, skip_unreadable)
        if again:
            yield Caution(
                f"{again:,} of {counted(len(test), thing)} of '{data}' are labeled {thing}s that the run has learned "
                "from: what it says about these is no test."
            )
    yield from left_out(dataset, skip_unreadable)
    if not len(test):
        raise InputError(f"'{run}' kept nothing to test it on (data.holdout=0): say what with --data.")
    known = yield from known_features(net, test, read_recipe(str(run / "recipe.toml")), place)
    # without them: the model was trained on images normalized by the numbers of its own data set
    scale = Normalization(tuple(model["mean"]), tuple(model["std"]))
    asked, examples, scale = known or (ready(net, place), test, scale)
    logits = predict(asked.to(place), examples, scale, place)
    scores = score(logits, test.labels)
    found = find_doubts(logits, test.labels, model["classes"], start=tested.pretraining)
    yield from map(Caution, found)
    facts = {SCORES[key].name: SCORES[key].text(value) for key, value in scores.items()}
    values = {"run": str(run), "data": dataset.name, "images": len(test), "scores": scores, "alarms": found}
    calibration = Calibration.from_json(model.get("calibration"))
    if calibration.labels:
        scaled = score(logits / calibration.temperature, test.labels)
        changed = {key: scaled[key] for key, value in SCORES.items() if value.calibration and key in scaled}
        facts[f"{SCORES['ece'].name}, calibrated"] = SCORES["ece"].text(changed["ece"])
        values["calibrated"] = changed
    yield Result(f"{run} on {counted(len(test), thing)} of {dataset.name}", facts=facts, values=values)


def own_test(run: Path, reading: Reading | None, skip: bool = False) -> tuple[Dataset, ImageSource, str]:
    """The test images that the run itself was tested on, and what has to be said of changes since, if anything."""
    from ..data import cut_test, find_recorded
    from ..engine.build import split_for
    from ..engine.run import NOT_RECORDED, split_record

    recipe, dataset = own_images(run, reading, skip, instead=", or name their new place with --data")
    dataset = images_to_answer(recipe, dataset)
    record = split_record(RunFolder(run))
    if not record:
        return dataset, split_for(recipe, dataset).test, NOT_RECORDED
    found = find_recorded(record, run / SPLIT, dataset, needed=("test",))
    test, _ = cut_test(dataset, found.positions)
    return (
        dataset,
        test,
        f"{found.change}: the test is on its own {counted(len(test), 'image')}." if found.change else "",
    )


def other_test(
    name: str, model: dict[str, Any], reading: Reading | None, skip: bool = False
) -> tuple[Dataset, ImageSource]:
    """The test images of another data set, or all its labeled ones, with the channels and class numbers of a model."""
    import torch

    from ..data import Images, Vectors, holds_vectors, open_dataset, with_channels
    from ..data.read.listing import as_known

    if "numbers" not in model and holds_vectors(name):
        raise InputError(f"'{name}' holds vectors, and the model takes images: give it images.")
    dataset = open_dataset(name, image_size=model.get("height"), progress=reading, skip_unreadable=skip)
    if "numbers" in model and not isinstance(dataset.train, Vectors):
        raise InputError(f"'{name}' holds images, and the model takes vectors of {model['numbers']:,} numbers.")
    if isinstance(dataset.train, Vectors):
        check_width(name, dataset.train.shape[0], model)
    classes: list[str] = model["classes"]
    dataset = replace(dataset, classes=tuple(as_known(dataset.classes, classes).values()))
    if set(classes) != set(dataset.classes):
        missing, extra = sorted(set(classes) - set(dataset.classes)), sorted(set(dataset.classes) - set(classes))
        facts = [f"{verb} {some(names)}" for verb, names in (("lacks", missing), ("adds", extra)) if names]
        raise InputError(f"'{name}' has other classes than the model: it {' and '.join(facts)}.")
    test = dataset.test
    if test is None:
        test = dataset.train.select(torch.nonzero(dataset.train.labels >= 0).flatten())
    number = torch.tensor([classes.index(label) for label in dataset.classes])
    labels = number[test.labels]
    if isinstance(test, Vectors):
        return dataset, test.labeled(labels)
    return dataset, Images(with_channels(test.pixels, model["channels"]), labels)
