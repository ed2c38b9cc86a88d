"""The images of a folder as vectors that a model learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..recipe import read_recipe

if TYPE_CHECKING:
    import torch

    from ..data import Dataset

RECIPE = "photos-simmatch"  # what the photos are learned by
TINY = 32  # pixels: the largest side of images that are learned by their pixels


class Examples(NamedTuple):
    """The images of a folder that can be read, as vectors."""

    dataset: Dataset  # of vectors, without labels
    ids: NDArray[np.int64]  # of the images
    images: int  # of the folder, all of them
    digest: str  # of their names
    unreadable: int


def read_examples(
    folder: Path, names: Sequence[str], digest: str, device: torch.device, progress: Callable[[str, int, int], None]
) -> Examples:
    """The images of a folder as vectors: photos as a frozen network sees them, tiny images by their pixels.

    Files that cannot be read are left out.
    """
    from ..app.request import PHOTO_SIDE
    from ..data import Vectors, vector_statistics, views_of_vectors
    from ..data.read.listing import Listing
    from ..data.read.peek import typical_side
    from ..data.read.pixels import read_listing
    from ..features import embed_dataset

    recipe = read_recipe(RECIPE)
    assert recipe.features is not None
    listing = Listing(folder.name, folder, [], [folder / name for name in names], [-1] * len(names))
    side = typical_side(listing) or TINY
    are_photos = side >= PHOTO_SIDE
    dataset = read_listing(
        listing,
        recipe.data["image_size"] if are_photos else min(side, TINY),
        lambda done, total: progress("Reading photos", done, total),
        streaming="auto",
        skip_unreadable=True,
        measured=False,
    )
    if not len(dataset.train):
        raise InputError(f"None of the {len(names):,} images in '{folder}' can be read: replace them.")
    if are_photos:
        embedding = embed_dataset(dataset, recipe.features, device, plain_only=True)
        while True:
            try:
                news = next(embedding)
                if not isinstance(news, str):  # the page has no place for sentences
                    progress("Looking at photos", *news)
            except StopIteration as end:
                dataset = end.value
                break
    vectors = Vectors(dataset.train.pixels.flatten(1)[:, None].half(), dataset.train.labels)  # the pixels may go
    mean, std = vector_statistics(vectors.pixels)
    places = {name: place for place, name in enumerate(names)}
    dataset = replace(dataset, train=vectors, mean=mean, std=std, augment=views_of_vectors(0, mean, std))
    ids = np.array([places[name] for name in dataset.train_names], dtype=np.int64)
    return Examples(dataset, ids, len(names), digest, len(names) - len(ids))
