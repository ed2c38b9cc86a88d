"""Images in memory to one augmented batch per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...augment import Draws, Policy, normalize, with_crop
from ...errors import InputError, unknown
from ...machine.distributed import rank, world_size
from ...method import Batch, Views
from ...seeds import fold
from ..images import ImageSource
from .sampling import Order, Shuffle


class Selection(NamedTuple):
    """Which images a step sees."""

    labeled_index: Tensor  # (B,) this process's positions in the labeled set
    unlabeled_index: Tensor  # (U,) and in the unlabeled set
    step: Tensor  # () int64
    seed: Tensor  # () int64, for what the method draws
    pixels: tuple[()] | tuple[Tensor, Tensor] = ()  # uint8, labeled and unlabeled; nothing where `batch` takes them


class Feed:
    """`feed(step)` is the same global batch whatever the number of processes; each gets its rows of it.

    Both sources, and the batch, live on `device`. Batch sizes count the rows of all processes together. A side of which
    a method wants no view has no rows: nothing of it is taken, and its source may be empty. With `shared_crop` all
    views of an image are of the crop of its first one.
    """

    def __init__(
        self,
        labeled: ImageSource,
        unlabeled: ImageSource,
        views: Views,
        policies: Mapping[str, Policy],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        labeled_batch: int,
        unlabeled_batch: int,
        seed: int,
        order: Order = "seed",
        shared_crop: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        for name in (*views.labeled, *views.unlabeled):
            if name not in policies:
                raise unknown("view", name, policies)
        self.labeled, self.unlabeled, self.views, self.policies, self.seed = labeled, unlabeled, views, policies, seed
        self.shared_crop = shared_crop
        self.device = torch.device(device)
        self.mean, self.std = torch.tensor(mean, device=self.device), torch.tensor(std, device=self.device)
        self.generator = torch.Generator(self.device)
        self.render = render  # whoever runs this on a GPU may put the compiled form here
        self.labeled_order = self.unlabeled_order = None
        if views.labeled:
            _check_batch("labeled", labeled_batch)
            self.labeled_order = Shuffle(len(labeled), labeled_batch, fold(seed, "labeled"), self.index_device, order)
        if views.unlabeled:
            _check_batch("unlabeled", unlabeled_batch)
            if not len(unlabeled):
                raise InputError(
                    "There is no unlabeled image: train on the labels alone (--method supervised), keep fewer labels "
                    "(--labels), or count the labeled images among the unlabeled ones (data.include_labeled)."
                )
            seed = fold(seed, "unlabeled")
            self.unlabeled_order = Shuffle(len(unlabeled), unlabeled_batch, seed, self.index_device, order)

    @property
    def index_device(self) -> torch.device:
        """Where it is decided which images a step sees."""
        return self.device

    def __call__(self, step: int) -> Batch:
        """The batch of this step, a function of (seed, step) only."""
        return self.batch(self.select(step))

    def select(self, step: int) -> Selection:
        """What the host decides about a step: which images, and the state of the generator that `batch` draws from."""
        self.generator.manual_seed(fold(self.seed, "draws", step))
        labeled_index, unlabeled_index = self.rows(step)
        return Selection(
            labeled_index=labeled_index,
            unlabeled_index=unlabeled_index,
            step=torch.full((), step, dtype=torch.int64, device=self.index_device),
            seed=torch.full((), fold(self.seed, "method", step), dtype=torch.int64, device=self.index_device),
        )

    def rows(self, step: int) -> tuple[Tensor, Tensor]:
        """This process's positions in the labeled and in the unlabeled set."""
        mine = slice(rank(), None, world_size())
        none = torch.empty(0, dtype=torch.int64, device=self.index_device)
        labeled, unlabeled = (
            none if order is None else order.take(step)[mine] for order in (self.labeled_order, self.unlabeled_order)
        )
        return labeled, unlabeled

    def batch(self, selection: Selection) -> Batch:
        """What the device does about it: gather, draw, augment, normalize, all in shapes that never change."""
        labeled_index, unlabeled_index, step, seed, pixels = selection
        labeled, unlabeled = pixels or (None, None)
        return Batch(
            labeled=self._views(self.labeled, labeled_index, self.views.labeled, labeled),
            labels=self.labeled.labels.index_select(0, labeled_index),
            unlabeled=self._views(self.unlabeled, unlabeled_index, self.views.unlabeled, unlabeled),
            labeled_index=labeled_index,
            unlabeled_index=unlabeled_index,
            unlabeled_truth=self.unlabeled.labels.index_select(0, unlabeled_index),
            step=step,
            seed=seed,
        )

    def close(self) -> None:
        """What is in memory needs no closing."""

    def _views(
        self, images: ImageSource, index: Tensor, names: tuple[str, ...], taken: Tensor | None
    ) -> tuple[Tensor, ...]:
        """This process's rows of every view of the images at `index`, unless somebody has taken them already."""
        if not names:
            return ()
        mine, pixels, views = slice(rank(), None, world_size()), images.take(index) if taken is None else taken, []
        first: Draws = ()
        for name in names:
            # Drawn for the whole batch, so that a row looks the same whichever process it falls to.
            draws = self.policies[name].draw(len(index) * world_size(), self.generator)
            first = first or draws
            if self.shared_crop:
                draws = with_crop(draws, first)
            draws = tuple(value[mine] for value in draws)
            views.append(self.render(self.policies[name], pixels, draws, self.mean, self.std))
        return tuple(views)


def render(policy: Policy, pixels: Tensor, draws: Draws, mean: Tensor, std: Tensor) -> Tensor:
    """One normalized view of uint8 images; a pure function, so that it can be compiled as one piece."""
    return normalize(policy.apply(pixels, draws), mean, std)


def _check_batch(side: str, size: int) -> None:
    """A batch must have as many rows for every process."""
    world = world_size()
    if size < 1 or size % world:
        each = size // world
        nearest = [str(count * world) for count in (each, max(each + 1, 1)) if count > 0]
        raise InputError(
            f"A {side} batch of {size} images cannot be shared equally by {world} "
            f"process{'es' * (world != 1)}: use {' or '.join(nearest)}."
        )
