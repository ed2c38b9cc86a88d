"""Views of an image: `draw` a few seeded random numbers, then `apply` them as a pure function of uint8 images.

A draw never depends on the images, so every process draws the same numbers for the whole batch and keeps its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import isclass, signature
from typing import Final, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from epass.augment.geometry import crop_and_flip, crop_window, resized_crop
from epass.augment.jitter import BLUR, JITTER, color_jitter, gaussian_blur, grayscale
from epass.augment.ops import COLOR_OPERATIONS, OPERATIONS, apply_operations, cut_out
from epass.augment.stored import StoredStrong, StoredWeak, StrongNoise, WeakNoise
from epass.errors import InputError
from epass.extensions import Kind, find

# The view of MoCo v2
CROP_AREA: Final = (0.2, 1.0)  # of the window over the image
CROP_RATIO: Final = 4 / 3  # of its longer to its shorter side, at most
CROP_TRIES: Final = 10
JITTER_CHANCE: Final = 0.8
GRAY_CHANCE: Final = 0.2
BLUR_CHANCE: Final = 0.5

# Tensors whose first dimension is the sample: `tuple(part[rows] for part in draws)` are the draws of some rows.
Draws: TypeAlias = tuple[Tensor, ...]


class Policy(Protocol):
    """One way to look at an image: what others call a transform or an augmentation."""

    def draw(self, count: int, generator: torch.Generator) -> Draws:
        """The random numbers for `count` images, on the generator's device."""

    def apply(self, pixels: Tensor, draws: Draws) -> Tensor:
        """The view, uint8 (N, C, H, W) like `pixels`, or (N, D) of vectors; the same for the same draws."""


class WeakDraws(NamedTuple):
    """What `Weak` draws."""

    offset: Tensor  # (N, 2) integers in [0, 2 * padding]: top, left
    flip: Tensor  # (N, 2) booleans: upside down, left to right


class StrongDraws(NamedTuple):
    """What `Strong` draws."""

    offset: Tensor  # (N, 2) as in WeakDraws
    flip: Tensor  # (N, 2) as in WeakDraws
    operation: Tensor  # (N, num_operations) positions in OPERATIONS
    magnitude: Tensor  # (N, num_operations) in the range of the operation
    hole_fraction: Tensor  # (N,) side of the cut-out square over the width
    hole_center: Tensor  # (N, 2) row and column over height and width


class CropDraws(NamedTuple):
    """What `Crop` draws."""

    area: Tensor  # (N, CROP_TRIES) of the window over the image, the first that fits is taken
    ratio: Tensor  # (N, CROP_TRIES) of the window's width to its height
    position: Tensor  # (N, 2) row and column of the window over the room that it leaves
    flip: Tensor  # (N, 2) as in WeakDraws
    order: Tensor  # (N, 4) permutations of the positions in JITTER
    jitter: Tensor  # (N, 4) a value for each entry of JITTER, (1, 1, 1, 0) for none
    gray: Tensor  # (N,) booleans
    blur: Tensor  # (N,) standard deviation, 0 for none


class Weak:
    """A random crop of the reflect-padded image, randomly mirrored.

    The order of crop and mirror does not matter: a mirrored window of a window drawn uniformly is drawn uniformly.

    Args:
        padding: Pixels the image is extended by on every side; `reflect_padding` computes it from a crop ratio.
        horizontal_flip: Mirror left to right with probability one half.
        vertical_flip: Mirror upside down with probability one half.
    """

    def __init__(self, *, padding: int, horizontal_flip: bool = True, vertical_flip: bool = False) -> None:
        if padding < 0:
            raise InputError(f"The padding of the random crop is {padding} pixels: choose zero or more.")
        self.padding = padding
        self.horizontal_flip = horizontal_flip
        self.vertical_flip = vertical_flip

    def draw(self, count: int, generator: torch.Generator) -> WeakDraws:
        device = generator.device
        offset = torch.randint(0, 2 * self.padding + 1, (count, 2), generator=generator, device=device)
        chance = torch.rand((count, 2), generator=generator, device=device)
        vertical, horizontal = 0.5 * self.vertical_flip, 0.5 * self.horizontal_flip
        return WeakDraws(offset, torch.stack([chance[:, 0] < vertical, chance[:, 1] < horizontal], dim=1))

    def apply(self, pixels: Tensor, draws: Draws) -> Tensor:
        offset, flip = draws
        return crop_and_flip(pixels, offset, flip, self.padding)


class Strong:
    """The weak crop and mirror, then RandAugment, then Cutout.

    Operations are drawn uniformly with replacement and always applied, each with a magnitude drawn uniformly from its
    own range; there is no global magnitude.

    Args:
        padding: As in `Weak`.
        horizontal_flip: As in `Weak`.
        vertical_flip: As in `Weak`.
        color: False leaves out COLOR_OPERATIONS.
        num_operations: How many operations each image goes through.
        cutout: The largest side of the cut-out square over the width; zero for none.
    """

    def __init__(
        self,
        *,
        padding: int,
        horizontal_flip: bool = True,
        vertical_flip: bool = False,
        color: bool = True,
        num_operations: int = 3,
        cutout: float = 0.5,
    ) -> None:
        if num_operations < 0:
            raise InputError(f"The number of operations is {num_operations}: choose zero or more.")
        if not 0.0 <= cutout <= 1.0:
            raise InputError(f"The side of the cut-out square is {cutout} of the width: choose between 0 and 1.")
        self.weak = Weak(padding=padding, horizontal_flip=horizontal_flip, vertical_flip=vertical_flip)
        self.operations = tuple(name for name in OPERATIONS if color or name not in COLOR_OPERATIONS)
        self.num_operations = num_operations
        self.cutout = cutout

    def draw(self, count: int, generator: torch.Generator) -> StrongDraws:
        device = generator.device
        numbers, low, high = _menu(self.operations, device)
        shape = (count, self.num_operations)
        offset, flip = self.weak.draw(count, generator)
        choice = torch.randint(0, len(self.operations), shape, generator=generator, device=device)
        share = torch.rand(shape, generator=generator, device=device)
        return StrongDraws(
            offset,
            flip,
            operation=numbers[choice],
            magnitude=low[choice] + share * (high[choice] - low[choice]),
            hole_fraction=self.cutout * torch.rand(count, generator=generator, device=device),
            hole_center=torch.rand((count, 2), generator=generator, device=device),
        )

    def apply(self, pixels: Tensor, draws: Draws) -> Tensor:
        offset, flip, operation, magnitude, hole_fraction, hole_center = draws
        pixels = self.weak.apply(pixels, (offset, flip))
        pixels = apply_operations(pixels, operation, magnitude)
        return cut_out(pixels, hole_fraction, hole_center)


class Crop:
    """The view of MoCo v2: a window of the image at full size, mirrored, color jitter, grayscale, blur.

    The numbers are the published ones. Mirroring commutes with all that follows, so it may come first.

    Args:
        horizontal_flip: As in `Weak`.
        vertical_flip: As in `Weak`.
        color: False leaves out grayscale and all jitter but brightness.
    """

    def __init__(self, *, horizontal_flip: bool = True, vertical_flip: bool = False, color: bool = True) -> None:
        self.flips = Weak(padding=0, horizontal_flip=horizontal_flip, vertical_flip=vertical_flip)
        self.color = color

    def draw(self, count: int, generator: torch.Generator) -> CropDraws:
        def rand(*shape: int) -> Tensor:
            return torch.rand((count, *shape), generator=generator, device=generator.device)

        (smallest, largest), widest = CROP_AREA, math.log(CROP_RATIO)
        jittered, values = rand() < JITTER_CHANCE, []
        for name, (reach, neutral) in JITTER.items():
            active = jittered if self.color or name == "brightness" else torch.zeros_like(jittered)
            values.append(torch.where(active, neutral + reach * (2 * rand() - 1), neutral))
        return CropDraws(
            area=smallest + (largest - smallest) * rand(CROP_TRIES),
            ratio=torch.exp(widest * (2 * rand(CROP_TRIES) - 1)),
            position=rand(2),
            flip=self.flips.draw(count, generator).flip,
            order=rand(len(JITTER)).argsort(1),
            jitter=torch.stack(values, 1),
            gray=rand() < GRAY_CHANCE * self.color,
            blur=torch.where(rand() < BLUR_CHANCE, BLUR[0] + (BLUR[1] - BLUR[0]) * rand(), 0.0),
        )

    def apply(self, pixels: Tensor, draws: Draws) -> Tensor:
        area, ratio, position, flip, order, jitter, gray, blur = draws
        window = crop_window(pixels.shape[2], pixels.shape[3], area=area, ratio=ratio, position=position)
        pixels = resized_crop(pixels, window, flip)
        pixels = color_jitter(pixels, order, jitter)
        return gaussian_blur(grayscale(pixels, gray), blur)


POLICIES: dict[str, Callable[..., Policy]] = {
    "weak": Weak,
    "strong": Strong,
    "crop": Crop,
    "stored-weak": StoredWeak,
    "stored-strong": StoredStrong,
    "weak-noise": WeakNoise,
    "strong-noise": StrongNoise,
}
POLICY = Kind(
    "policy",
    lambda found: isclass(found) and hasattr(found, "draw") and hasattr(found, "apply"),
    "a class with draw(count, generator) and apply(pixels, draws)",
)


def make_policies(
    *,
    padding: int = 0,
    horizontal_flip: bool = True,
    vertical_flip: bool = False,
    color: bool = True,
    num_operations: int = 3,
    cutout: float = 0.5,
    views: int = 0,
    center: Sequence[float] = (),
    spread: Sequence[float] = (),
    noise: float = 0.5,
    dropout: float = 0.2,
    weak: str = "weak",
    strong: str = "strong",
    crop: str = "crop",
) -> dict[str, Policy]:
    """The policies by the names that methods ask for.

    `weak`, `strong` and `crop` name what is behind each: one of `POLICIES` or a policy of yours. A policy gets those of
    the other arguments that it has. The medium view is the strong one with a single operation or half of the noise.
    """
    settings = {
        "padding": padding,
        "horizontal_flip": horizontal_flip,
        "vertical_flip": vertical_flip,
        "color": color,
        "num_operations": num_operations,
        "cutout": cutout,
        "views": views,
        "center": center,
        "spread": spread,
        "noise": noise,
        "dropout": dropout,
    }

    def make(name: str, **changes: object) -> Policy:
        policy, chosen = find(name, POLICY, POLICIES), settings | changes
        return policy(**{key: value for key, value in chosen.items() if key in signature(policy).parameters})

    milder = {"num_operations": min(num_operations, 1), "noise": noise / 2, "dropout": dropout / 2}
    return {"weak": make(weak), "medium": make(strong, **milder), "strong": make(strong), "crop": make(crop)}


def with_crop(draws: Draws, first: Draws) -> Draws:
    """Draws of a view with the crop and the mirror of another one, if both are of this kind."""
    cropped = (WeakDraws, StrongDraws)
    if isinstance(draws, cropped) and isinstance(first, cropped):
        return draws._replace(offset=first.offset, flip=first.flip)
    return draws


def reflect_padding(size: int, crop_ratio: float) -> int:
    """The padding floor(size * (1 - crop_ratio)) of the random crop."""
    # 1 - 0.9 is a little less than 0.1 in binary, and 100 pixels would lose one of their ten without the nudge.
    return math.floor(size * (1 - crop_ratio) + 1e-6)


def normalize(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Images of [0, 255] as float32 (pixels / 255 - mean) / std, with `mean` and `std` of shape (C,).

    Of vectors (N, D), each of the D numbers has its own mean and deviation.
    """
    if pixels.dim() == 2:
        return (pixels.float() - mean) / std
    return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]


@lru_cache
def _menu(operations: tuple[str, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Number, smallest and largest magnitude of each operation; kept, because a copy to the device makes it wait."""
    names = list(OPERATIONS)
    numbers = torch.tensor([names.index(name) for name in operations], device=device)
    low, high = torch.tensor([OPERATIONS[name] for name in operations], device=device).T
    return numbers, low, high
