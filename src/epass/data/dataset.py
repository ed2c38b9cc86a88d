"""A data set: what every reader returns and everything else starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .images import ImageSource

_CHUNK = 4096  # images per chunk: bounds the extra memory of a pass over a large set


class Normalization(NamedTuple):
    """What a model subtracts from pixels in [0, 1] and divides them by, per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images of one problem, with what is known about them before training."""

    name: str
    classes: tuple[str, ...]
    train: ImageSource  # label -1 where nobody labeled them
    test: ImageSource | None
    mean: tuple[float, ...]  # per channel, pixels in [0, 1]
    std: tuple[float, ...]
    augment: Mapping[str, object]  # keyword arguments for `epass.augment.make_policies`
    train_names: tuple[str, ...] = ()  # of the images, where they are files: paths inside of the data set
    test_names: tuple[str, ...] = ()
    train_rows: tuple[
        int, ...
    ] = ()  # of the training examples in a table of vectors, from 0, which may have other ones
    folds: tuple[tuple[int, ...], ...] = ()  # published lists of labeled images: positions in `train`
    validation: int = 0  # so many of the training images, the last ones, are there to choose a step by, not to train on
    parts: Mapping[str, str] = field(default_factory=dict)  # what each folder was taken for, where some are parts
    unused: tuple[str, ...] = ()  # what lies beside them and is not used
    skipped: tuple[tuple[str, str], ...] = ()  # files that were left out, and why they cannot be read
    passed_over: Mapping[str, int] = field(default_factory=dict)  # image files of kinds that are not read, by ending


Scale = Dataset | Normalization


def channel_statistics(images: Tensor | ImageSource) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 (N, C, H, W) pixels, on the scale [0, 1]."""
    chunks = torch.split(images, _CHUNK) if isinstance(images, Tensor) else images.chunks(_CHUNK)
    return statistics_of(torch.stack([count_levels(chunk) for chunk in chunks]).sum(0))


def count_levels(pixels: Tensor) -> Tensor:
    """How often each of the 256 levels occurs in each channel of uint8 (N, C, H, W) pixels: (C, 256) int64."""
    channels = range(pixels.shape[1])
    return torch.stack([torch.bincount(pixels[:, channel].flatten(), minlength=256) for channel in channels]).cpu()


def statistics_of(counts: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel from the counts of its levels.

    The counts are exact, so neither the number of images nor the machine changes a digit. A channel that never varies
    gets one gray level as its deviation, so that normalizing does not divide by zero.
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for row in counts:
        weights = row.double() / row.sum()
        mean = (weights * levels).sum()
        means.append(mean.item())
        stds.append(max((weights * (levels - mean) ** 2).sum().sqrt().item(), 1 / 255))
    return tuple(means), tuple(stds)
