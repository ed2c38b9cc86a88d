"""A data set of images becomes one of vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset, ImageSource, Vectors, vector_statistics
from .embed import Extractor, Progress, embed, make_extractor


def embed_dataset(
    dataset: Dataset,
    settings: dict[str, Any],
    device: torch.device,
    *,
    plain_only: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """The features of all images under a recipe's [features] table; a data set of vectors is left as it is.

    Args:
        dataset: The images.
        settings: Those of `make_extractor`.
        device: Where features are computed.
        plain_only: Leave the views out: enough to test, and to learn from labels alone.
        progress: Called with (views done, views in all) while features are computed.
    """
    if isinstance(dataset.train, Vectors):
        return dataset
    extractor = make_extractor(**settings)
    views, seed = settings.get("views", 2), settings.get("seed", 0)
    sources = [dataset.train] if dataset.test is None else [dataset.train, dataset.test]
    told = _Told(progress, [len(source) for source in sources], 1 if plain_only else 1 + 2 * views)
    parts = [[embed(source, extractor, device, progress=told.next(1, len(source)))] for source in sources]
    if not plain_only:  # nothing is learned from test images: their plain view is enough
        told_views = told.next(2 * views, len(dataset.train))
        parts[0].append(embed(dataset.train, extractor, device, views=views, seed=seed, progress=told_views))
    train, *test = [_vectors(source, torch.cat(part, 1)) for source, part in zip(sources, parts, strict=True)]
    mean, std = vector_statistics(train.pixels)
    drawn = {"weak": "stored-weak", "strong": "stored-strong", "crop": "stored-strong", "views": views}
    return replace(dataset, train=train, test=test[0] if test else None, mean=mean, std=std, augment=drawn)


def _vectors(images: ImageSource, views: Tensor) -> Vectors:
    return Vectors(views, images.labels, images, torch.arange(len(images)))


class _Told:
    """One count of views over several passes."""

    def __init__(self, progress: Progress | None, images: list[int], views: int) -> None:
        self.progress, self.done = progress, 0
        self.total = sum(images) + (views - 1) * images[0]

    def next(self, views: int, images: int) -> Progress | None:
        """What a pass that makes so many views of so many images is told."""
        before, self.done = self.done, self.done + views * images
        if self.progress is None:
            return None
        tell = self.progress
        return lambda done, _: tell(before + views * done, self.total)
