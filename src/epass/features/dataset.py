"""A data set of images becomes one of vectors."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..data import (
    Dataset,
    EnlargedImages,
    Images,
    ImageSource,
    Vectors,
    vector_statistics,
    views_of_vectors,
    with_channels,
)
from .embed import Extractor, embed, make_extractor

T = TypeVar("T")


def embed_dataset(
    dataset: Dataset, settings: Mapping[str, Any], device: torch.device, *, plain_only: bool = False
) -> Generator[tuple[int, int] | str, None, Dataset]:
    """The features of all images under a recipe's [features] table; a data set of vectors is left as it is.

    Yields (views done, views in all) while features are computed and, before, what there is to tell.

    Args:
        dataset: The images.
        settings: Those of `make_extractor`.
        device: Where features are computed.
        plain_only: Leave the views out: enough to test, and to learn from labels alone.
    """
    if isinstance(dataset.train, Vectors):
        return dataset
    extractor = make_extractor(**settings)
    views, seed = settings.get("views", 0), settings.get("seed", 0)
    dataset = in_color(dataset)
    sources = [dataset.train] if dataset.test is None else [dataset.train, dataset.test]
    images = sum(map(len, sources))
    total = images if plain_only else images + 2 * views * len(dataset.train)
    parts, before = [], 0
    for source in sources:
        parts.append([(yield from _counted(embed(source, extractor, device), before, 1, total))])
        before += len(source)
    if views and not plain_only:  # nothing is learned from test images: their plain view is enough
        passing = embed(sources[0], extractor, device, views=views, seed=seed)
        parts[0].append((yield from _counted(passing, before, 2 * views, total)))
    train, *test = [_vectors(source, torch.cat(part, 1)) for source, part in zip(sources, parts, strict=True)]
    mean, std = vector_statistics(train.pixels)
    augment = views_of_vectors(train.views.shape[1] // 2, mean, std)
    return replace(dataset, train=train, test=test[0] if test else None, mean=mean, std=std, augment=augment)


def embed_images(
    images: ImageSource, extractor: Extractor, device: torch.device
) -> Generator[tuple[int, int] | str, None, Vectors]:
    """The features of the plain views of some images. Yields (images done, images in all) or what there is to tell."""
    features = yield from _counted(embed(images, extractor, device), 0, 1, len(images))
    return _vectors(images, features)


def in_color(dataset: Dataset) -> Dataset:
    """Gray images with three equal channels, which is what networks that have seen photos take; others as they are."""

    def colored(images: ImageSource) -> ImageSource:
        if images.shape[0] != 1:
            return images
        if isinstance(images, EnlargedImages):
            return replace(images, small=Images(with_channels(images.small.pixels, 3), images.labels))
        return Images(with_channels(images.pixels, 3), images.labels) if isinstance(images, Images) else images

    return replace(dataset, train=colored(dataset.train), test=dataset.test and colored(dataset.test))


def _counted(
    passing: Generator[int | str, None, Tensor], before: int, views: int, total: int
) -> Generator[tuple[int, int] | str, None, Tensor]:
    """What a pass returns; its images count as so many views each, after those of earlier passes."""
    while True:
        try:
            done = next(passing)
            yield done if isinstance(done, str) else (before + views * done, total)
        except StopIteration as end:
            found: Tensor = end.value
            return found


def drained(passing: Generator[Any, None, T]) -> T:
    """What a generator returns, whatever it yields before."""
    while True:
        try:
            next(passing)
        except StopIteration as end:
            found: T = end.value
            return found


def _vectors(images: ImageSource, views: Tensor) -> Vectors:
    return Vectors(views, images.labels, images, torch.arange(len(images)))
