"""Features of photos: computed where a person can watch, with a first answer as early as there can be one."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

from ..errors import InputError
from ..recipe import Recipe
from .events import Event, Notice, Progress
from .flags import Stop
from .words import count_images, percent

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..data import Dataset, ImageSource, Normalization, Vectors

T = TypeVar("T")
PATIENCE = 2.0  # seconds after which people want a first answer
BEAT = 0.5  # seconds between two signs of life


def embedded(recipe: Recipe, dataset: Dataset, device: torch.device, stop: Stop) -> Generator[Event, None, Dataset]:
    """The data set that a recipe with a [features] table learns from; any other one is left as it is."""
    from ..engine.build import open_examples
    from ..features import embed_dataset

    if recipe.features is None:
        return open_examples(recipe, device, dataset)
    began = time.perf_counter()
    plain = yield from watched(embed_dataset(dataset, recipe.features, device, plain_only=True), stop)
    if time.perf_counter() - began > PATIENCE:  # else the whole result is there as soon as this one
        yield from first_answer(recipe, plain)
    if not recipe.features.get("views"):
        return plain
    return (yield from watched(embed_dataset(dataset, recipe.features, device), stop))


def watched(
    passing: Generator[tuple[int, int] | str, None, T], stop: Stop, what: str = "view"
) -> Generator[Event, None, T]:
    """What a long computation returns, of features for instance; meanwhile it says how far it is, and its sentences."""
    began, said, first = time.perf_counter(), 0.0, None
    while True:
        try:
            news = next(passing)
        except StopIteration as end:
            found: T = end.value
            return found
        if isinstance(news, str):
            yield Notice(news)
            continue
        done, total = news
        stop()
        spent = time.perf_counter() - began
        first = done if first is None else first
        if spent - said > BEAT:
            left = (total - done) * spent / (done - first) if done > first else None
            said = spent
            yield Progress(done, total, seconds_left=left, what=what)


def known_features(
    net: nn.Module, images: ImageSource, recipe: Recipe, device: torch.device
) -> Generator[Event, None, tuple[nn.Module, Vectors, Normalization] | None]:
    """The part of a model that works on features, and the features of images, most of which are kept from training.

    None where the model works on pixels, or where the network that makes its features is not the one on this machine.
    """
    import torch

    from ..data import Normalization
    from ..engine.build import check_recipe
    from ..features import embed_images, make_extractor
    from ..networks import FromImages

    if not isinstance(net, FromImages) or recipe.features is None:
        return None
    try:
        check_recipe(recipe)
        extractor = make_extractor(**recipe.features)
    except InputError:  # it may have been removed since: the model has a copy
        return None
    own, here = net.backbone.state_dict(), extractor.net.state_dict()
    if own.keys() != here.keys() or not all(torch.equal(own[name], here[name]) for name in own):
        return None
    features = yield from watched(embed_images(images, extractor, device), lambda: None)
    return net.net, features, Normalization(tuple(net.mean.tolist()), tuple(net.std.tolist()))


def first_answer(recipe: Recipe, plain: Dataset) -> Generator[Event, None, None]:
    """What the labels alone are worth on these features, before anything was learned from unlabeled images."""
    from ..engine.baseline import answer
    from ..engine.build import split_for

    split = split_for(recipe, plain)
    if not len(split.test):
        return
    probs = answer("logistic_regression", split, plain)
    error = (probs.argmax(1) != split.test.labels.numpy()).mean()
    yield Notice(
        f"First answer, by logistic regression on the {count_images(len(split.labeled))} with a label: "
        f"{percent(error, 1)} of {len(split.test):,} test images are named wrongly. Now the unlabeled images."
    )
