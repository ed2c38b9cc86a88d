"""Train on what a program holds in memory, and ask a model about it: what the estimator is made of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..recipe import Recipe, read_recipe
from ..runs import RunFolder
from .answering import check_width
from .doubts import doubts_about
from .events import Caution, Event, Plan, Result, work
from .features import embedded
from .pixels import fitted
from .plan import plan_facts
from .request import (
    PHOTO_SIDE,
    Request,
    compose,
    fitting,
    for_features,
    learns_from_features,
    method_with_recipe,
    starting_recipe,
    trusting,
)
from .train import follow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ..data import Dataset, ImageSource


@work
def fit(request: Request, examples: Any, labels: Sequence[int] = (), classes: Sequence[str] = ()) -> Iterator[Event]:
    """Train a classifier on every label that there is, without a test; the folder of the run is `request.out`.

    Args:
        request: What to train. Where it names `data`, that is read, and nothing else is given.
        examples: Vectors (N, D); images (N, H, W), (N, H, W, C) or (N, C, H, W); or the paths of N images.
        labels: The number of the class of each example, -1 where nobody knows.
        classes: The names of the classes.

    The result says which class each example has, by its number among the classes of the model: the label that was
    given, or else the answer of the model. What it says about `reading` is for `ask`.
    """
    from ..data import open_dataset
    from ..engine.build import build, check_recipe, reading_settings, split_for
    from ..engine.guard import LABELS_ONLY, without_unlabeled
    from ..engine.infer import answering_network, predict
    from ..machine.device import choose_device

    home = RunFolder(request.out or "")
    if home.exists():
        raise InputError(f"'{home.path}' already holds a run: choose another folder.")
    if home.path.exists():
        home.create(force=False)  # changes nothing in a folder that is there: says why this one cannot be used
    request, place = trusting(request), choose_device(request.device)
    base = starting_recipe(request) if request.data is not None else recipe_for(request, examples)
    recipe = compose(request, base.with_settings({"data.holdout": 0}))
    check_recipe(recipe)
    if request.data is not None:
        dataset = open_dataset(recipe.data["name"], **reading_settings(recipe), progress=request.reading)
        yield from doubts_about(dataset)
        dataset = replace(dataset, test=None, test_names=())
    else:
        dataset = make_dataset(recipe, examples, labels, classes)
    dataset = yield from embedded(recipe, dataset, place, request.stop)
    split = split_for(recipe, dataset)
    if uses_unlabeled(recipe) and not set(split.positions.unlabeled) - set(split.positions.labeled):
        yield Caution(
            f"Every example has a label, and '{recipe.method['name']}' is for those that have none: training on the "
            f"labels alone ('{LABELS_ONLY}')."
        )
        recipe = without_unlabeled(recipe)
    with fitting(recipe.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
        experiment = build(recipe, place, dataset, split)
        yield Plan("Plan", plan_facts(experiment, home.path))
        yield from follow(experiment, home, request, (), 0, None)
    said = predict(answering_network(experiment), dataset.train, dataset, place).argmax(1).tolist()
    numbers = {number: position for position, number in enumerate(split.positions.classes)}
    known = [numbers.get(label) for label in dataset.train.labels.tolist()]
    transduction = [answer if label is None else label for answer, label in zip(said, known, strict=True)]
    reading = {} if request.data is not None else how_read(recipe, examples)
    files = list(dataset.train_names)
    yield Result(values={"run": str(home.path), "transduction": transduction, "files": files, "reading": reading})


def recipe_for(request: Request, examples: NDArray[Any]) -> Recipe:
    """The recipe that comes with the package for what these examples are."""
    from ..data.read.listing import Listing
    from ..data.read.peek import typical_side

    paths, method = paths_in(examples), method_with_recipe(request)
    if paths is None and examples.ndim == 2:
        return read_recipe(f"vectors-{method}").with_settings({"data.name": "vectors"})
    if paths is not None:
        side = typical_side(Listing("", Path(), [], [*paths], [])) or 0
    else:
        side = sorted(examples.shape[1:])[-2]  # of three numbers the smallest one counts the channels
    if learns_from_features(request, lambda: side):
        recipe = for_features(read_recipe(f"photos-{method}"), request.features)
    else:
        recipe = read_recipe(f"folder-{method}")
        recipe = recipe if paths is not None else recipe.with_settings({"data.image_size": None})  # arrays have theirs
        recipe = fitted(request, recipe, side if paths is not None and side >= PHOTO_SIDE else None)
    return recipe.with_settings({"data.name": "images"})


def make_dataset(recipe: Recipe, examples: NDArray[Any], labels: Sequence[int], classes: Sequence[str]) -> Dataset:
    """The examples as a data set."""
    from ..data import from_arrays, from_vectors

    name, size = recipe.data["name"], recipe.data.get("image_size")
    if paths_in(examples) is None and examples.ndim == 2:
        for setting, found in (("features", recipe.features), ("image_size", size)):
            if found is not None:
                raise InputError(f"X holds vectors, and {setting} is for images: leave it out.")
        return from_vectors(examples, [*labels], name=name, classes=classes)
    return from_arrays(examples, [*labels], name=name, classes=classes, image_size=size)


def how_read(recipe: Recipe, examples: NDArray[Any]) -> dict[str, Any]:
    """What images in memory were taken for, so that a model is asked about others as about these."""
    from ..data.read.conversion import gray_level

    if paths_in(examples) is not None or examples.ndim == 2:
        return {}
    brightest = round(255 * gray_level(examples, "X")) if examples.dtype.kind == "f" else None
    return {"brightest": brightest, "square": recipe.data.get("image_size") is None}


def paths_in(examples: Any) -> list[Path] | None:
    """The files that examples are, if they are."""
    from ..data.read.conversion import as_paths

    return as_paths(examples)


def uses_unlabeled(recipe: Recipe) -> bool:
    """Whether a recipe learns from more than labels."""
    from ..engine.models import method_class

    return bool(method_class(recipe.method["name"]).views.unlabeled)


def ask(
    net: nn.Module, model: dict[str, Any], examples: Any, device: str, reading: Mapping[str, Any]
) -> NDArray[np.float32]:
    """What a network says about examples as `fit` takes them, or those of a folder or file, in their order: (N, C).

    `model` is what a run writes down about its network, and `reading` what `fit` says, if it was that which trained it.
    """
    import torch

    from ..data import Normalization
    from ..engine.infer import predict
    from ..machine.device import choose_device

    place, scale = choose_device(device), Normalization(tuple(model["mean"]), tuple(model["std"]))
    parts: list[Tensor] = [torch.empty(0, len(model["classes"]))]
    places: list[int] = []
    for positions, chunk in chunks_of(examples, model, reading):
        parts.append(predict(net.to(place), chunk, scale, place))
        places += positions
    answers: NDArray[np.float32] = torch.cat(parts)[torch.tensor(places, dtype=torch.int64).argsort()].numpy()
    return answers


def chunks_of(
    examples: Any, model: dict[str, Any], reading: Mapping[str, Any]
) -> Iterator[tuple[list[int], ImageSource]]:
    """The examples as a model takes them, some at a time, with their positions."""
    import torch

    from ..data import FoundImages, Images, Vectors, find_images, find_vectors, with_channels
    from ..data.read.conversion import as_pixels
    from ..data.read.decode import ADVICE
    from ..data.read.listing import from_disk
    from ..data.read.resize import resize
    from ..data.read.vector_files import as_views

    stored = isinstance(examples, str | PathLike)
    paths = None if stored else paths_in(examples)
    if "numbers" in model:
        if not stored and examples.ndim != 2 and examples.shape[-1] != model["numbers"]:
            raise InputError(f"X has shape {examples.shape}, and the model takes vectors: use (N, {model['numbers']}).")
        vectors = find_vectors(examples).vectors if stored else as_views(examples, "X")[:, 0]
        check_width(str(examples) if stored else "X", vectors.shape[1], model)
        yield list(range(len(vectors))), Vectors(torch.from_numpy(vectors)[:, None], torch.full((len(vectors),), -1))
    elif stored or paths is not None:
        found = FoundImages([*map(str, paths)], [*paths], from_disk, []) if paths is not None else find_images(examples)
        for chunk in found.chunks(model["height"], model["channels"]):
            for position, reason in chunk.unreadable.items():
                reason = reason.removesuffix(ADVICE)
                raise InputError(f"'{found.names[position]}' {reason}: mend it or leave it out.")
            yield chunk.positions, Images(torch.from_numpy(chunk.images), torch.full((len(chunk.images),), -1))
    else:
        level = settled_level(examples, reading)
        side = None if reading.get("square") else model["height"]
        small, _ = as_pixels(examples, "X", len(examples), side, level, sure=level is not None)
        pixels = resize(small, model["height"])
        yield list(range(len(pixels))), Images(with_channels(pixels, model["channels"]), torch.full((len(pixels),), -1))


def settled_level(examples: NDArray[Any], reading: Mapping[str, Any]) -> float | None:
    """What one gray level of images in memory is, as far as `fit` has settled it; else it has to be guessed."""
    from ..data.read.conversion import are_shares, range_words

    brightest = reading.get("brightest", math.nan)  # of the floats that were learned from; None: of whole numbers
    if examples.dtype.kind in "iu":
        if brightest == 1 and examples.size and examples.max() == 1:
            warnings.warn(
                f"{range_words(examples, 'X')}, read as very dark: the training images are floats from 0 to 1.",
                stacklevel=2,
            )
        return 1.0  # whole numbers are gray levels, however dark all are
    if brightest is None:
        if are_shares(examples) and examples.any():
            raise InputError(
                f"{range_words(examples, 'X')}, but the training images are whole numbers from 0 to 255: give whole "
                "numbers, or multiply by 255."
            )
        return 1.0
    return next((number / 255 for number in (1, 255) if brightest == number), None)
