"""Cross-validation over labels: each labeled image is answered by a model that was trained without its label."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset, Split, Vectors, concatenate
from ..errors import InputError
from ..recipe import Recipe
from ..runs import is_finished
from ..seeds import fold as fold_seed
from ..training.loop import train
from .baseline import answer
from .build import Experiment, build
from .infer import answering_network, predict

FOLDS = 5
SHORTER = 4  # times


class Fold(NamedTuple):
    """Labels that are left out together."""

    left_out: Tensor  # positions in the labeled set
    split: Split  # the rest, with the images that are left out among the unlabeled ones, and as those to be tested


def out_of_fold(
    recipe: Recipe, dataset: Dataset, split: Split, device: torch.device, *, folds: int = FOLDS
) -> Generator[tuple[int, int], None, Tensor]:
    """Train a recipe once for each fold, and return logits (L, C) of the labeled images in their order.

    None of the models has seen the label of an image that it answers, only the image, among the unlabeled ones. The
    label of a class that has no other is never left out: its row is NaN. Nothing is written. Yields the steps done and
    the steps of all folds together.
    """
    found = _unanswered(split)
    parts = list(divide_labels(split, recipe.seed, folds))
    total, done = len(parts) * int(recipe.plan["steps"]), 0
    for left_out, part in parts:
        steps = fit(recipe, dataset, part, device)
        while (experiment := next(steps)) is None:
            done += 1
            yield done, total
        found[left_out] = predict(answering_network(experiment), part.test, dataset, device)
    return found


def going_on(
    passing: Generator[tuple[int, int], None, Tensor], done: int, total: int
) -> Generator[tuple[int, int], None, Tensor]:
    """The same after so many steps that are `done`, of so many in all."""
    while True:
        try:
            step, _ = next(passing)
        except StopIteration as end:
            answers: Tensor = end.value
            return answers
        yield done + step, total


def fit(recipe: Recipe, dataset: Dataset, split: Split, device: torch.device) -> Iterator[Experiment | None]:
    """Train a recipe in memory: None after each step, and what was trained in the end.

    It starts from nothing, or from what was learned without labels: a run that it would go on from knows the labels
    that are left out here, and has learned from the unlabeled images that labels only does without.
    """
    experiment = build(untaught(recipe), device, dataset, split)
    with closing(experiment.feed):
        for _ in train(*experiment.pipeline, experiment.optimizer, experiment.plan):
            yield None
    yield experiment


def untaught(recipe: Recipe) -> Recipe:
    """A recipe that starts from no run that has learned labels; a pre-training has not."""
    start = recipe.start or {}
    if not start.get("continued") and not (start and is_finished(Path(start["weights"]))):
        return recipe
    if "behind" in recipe.net:
        raise InputError(
            "A fine-tuned run starts from a model that knows its labels already, so none can be left out: use labeled "
            "images that it was not trained on (epass calibrate --data)."
        )
    return replace(recipe, start=None)


def baseline_out_of_fold(name: str, dataset: Dataset, split: Split, seed: int, *, folds: int = FOLDS) -> Tensor:
    """The same of one of the baselines on vectors: log-probabilities (L, C)."""
    found = _unanswered(split)
    for left_out, part in divide_labels(split, seed, folds):
        found[left_out] = torch.from_numpy(np.log(answer(name, part, dataset))).float()
    return found


def shortened(recipe: Recipe, split: Split) -> Recipe:
    """A recipe as folds are compared by it: vectors are learned in a few steps, and all ways have as few."""
    steps = max(1, int(recipe.plan["steps"]) // SHORTER)
    return recipe.with_settings({"plan.steps": steps}) if isinstance(split.labeled, Vectors) else recipe


def divide_labels(split: Split, seed: int, folds: int = FOLDS) -> Iterator[Fold]:
    """Folds over the labeled images, each class spread over as many of them as it can; none is empty."""
    labels = split.labeled.labels.cpu()
    for number in range(folds):
        left_out = (deal(labels, seed, folds) == number).nonzero()[:, 0]
        if len(left_out):
            yield Fold(left_out, _without(split, left_out))


def deal(labels: Tensor, seed: int, folds: int) -> Tensor:
    """The fold of every label, -1 where a class has no other one. No fold gets all the labels of a class."""
    if folds < 2:
        raise InputError(f"Labels are left out in at least 2 folds, not {folds}: use 5, for instance.")
    generator = torch.Generator().manual_seed(fold_seed(seed, "folds"))
    found, dealt = torch.full_like(labels, -1), 0
    for label in range(int(labels.max()) + 1):
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        if len(members) > 1:
            found[members] = (dealt + torch.arange(len(members))) % folds  # goes on where the last class ended
            dealt += len(members)
    return found


def _without(split: Split, left_out: Tensor) -> Split:
    """The split as it would be if nobody had labeled these images, which are to be answered instead of the test's."""
    kept = torch.ones(len(split.labeled), dtype=torch.bool)
    kept[left_out] = False
    rest, asked = (split.labeled.select(index) for index in (kept.nonzero()[:, 0], left_out))
    places = split.positions
    missing = left_out[torch.from_numpy(~np.isin(places.labeled[left_out.numpy()], places.unlabeled))]
    unlabeled = split.unlabeled
    if len(missing):
        images = split.labeled.select(missing)
        unlabeled = concatenate(unlabeled, images.labeled(torch.full_like(images.labels, -1)))
    counts = torch.bincount(rest.labels, minlength=len(split.classes)).tolist()
    positions = replace(
        places,
        labeled=places.labeled[kept.numpy()],
        unlabeled=np.concatenate([places.unlabeled, places.labeled[missing.numpy()]]),
    )
    return replace(
        split, labeled=rest, unlabeled=unlabeled, test=asked, label_counts=tuple(counts), positions=positions
    )


def _unanswered(split: Split) -> Tensor:
    return torch.full((len(split.labeled), len(split.classes)), torch.nan)
