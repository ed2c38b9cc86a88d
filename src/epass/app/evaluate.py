"""Test a trained model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import extensions
from ..errors import InputError
from ..recipe import read_recipe
from ..runs import load_run
from .events import Caution, Event, Result, work
from .flags import Device, Flag, Reading, Run, Trust
from .predict import check_width
from .words import counted, some

if TYPE_CHECKING:
    from ..data import Dataset, ImageSource


@work
def evaluate(
    run: Run,
    *,
    data: Annotated[str | None, Flag("Other images of the same classes: a name, a folder or an .npz file.")] = None,
    trust: Trust = None,
    device: Device = "auto",
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Test a trained model, on the run's own test images or on other ones."""
    from ..engine.infer import predict
    from ..engine.models import load_model, use_scores
    from ..evaluation import SCORES, score
    from ..machine.device import choose_device

    extensions.trust(*(trust or ()))
    extensions.trust_typed(data)
    place, run = choose_device(device), Path(run)
    net, model = load_model(run)
    for name in extensions.names_in([(load_run(run).recipe.get("plan") or {}).get("scores")]):
        if extensions.located(name) in extensions.trusted():
            use_scores([name])
        else:
            yield Caution(f"A score of the run is left out: its code is run only if you say --trust {name}.")
    dataset, test = own_test(run, reading) if data is None else other_test(data, model, reading)
    # the model was trained on images normalized by the numbers of its own data set
    dataset = replace(dataset, mean=tuple(model["mean"]), std=tuple(model["std"]))
    scores = score(predict(net.to(place), test, dataset, place), test.labels)
    yield Result(
        f"{run} on {counted(len(test), 'vector' if 'numbers' in model else 'image')} of {dataset.name}",
        facts={SCORES[key].name: SCORES[key].text(value) for key, value in scores.items()},
        values={"run": str(run), "data": dataset.name, "images": len(test), "scores": scores},
    )


def own_test(run: Path, reading: Reading | None) -> tuple[Dataset, ImageSource]:
    """The test images that the run itself was tested on."""
    from ..data import open_dataset
    from ..engine.build import reading_settings, split_for

    recipe = read_recipe(str(run / "recipe.toml"))
    dataset = open_dataset(recipe.data["name"], **reading_settings(recipe), progress=reading)
    return dataset, split_for(recipe, dataset).test


def other_test(name: str, model: dict[str, Any], reading: Reading | None) -> tuple[Dataset, ImageSource]:
    """The test images of another data set, or all its labeled ones, with the channels and class numbers of a model."""
    import torch

    from ..data import Images, Vectors, holds_vectors, open_dataset, with_channels

    if "numbers" not in model and holds_vectors(name):
        raise InputError(f"'{name}' holds vectors, and the model takes images: give it images.")
    dataset = open_dataset(name, image_size=model.get("height"), progress=reading)
    if "numbers" in model and not isinstance(dataset.train, Vectors):
        raise InputError(f"'{name}' holds images, and the model takes vectors of {model['numbers']:,} numbers.")
    if isinstance(dataset.train, Vectors):
        check_width(name, dataset.train.shape[0], model)
    classes: list[str] = model["classes"]
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
