"""What people have in a notebook, to uint8 pixels and numbered labels: floats, texts, gaps, lists of files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError, shortened
from ...files import from_home
from .array_files import Array
from .resize import resize, squared
from .square import check_image_size

_ROUNDING = 1e-3  # beyond its end, by which scaling may have moved a level
_HALF = 128  # of images from 0 to 255, some pixel is brighter than this
_CHUNK = 1024  # images at a time: copies of all of them as large numbers may not fit into memory


def as_array(values: Any, what: str) -> Array:
    """Whatever NumPy makes an array of: lists, tensors, columns of a table, images of Pillow."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition(". ")[0].partition("\n")[0].rstrip(".")
        raise InputError(
            f"{what} is no array ({reason}): give values of one shape, or a list of paths of images."
        ) from None


def as_paths(values: Array) -> list[Path] | None:
    """The files that an array names, if that is what it does."""
    if values.ndim != 1 or values.dtype.kind not in "UO" or not len(values):
        return None
    names = values.tolist()
    return [from_home(name) for name in names] if all(isinstance(name, str | Path) for name in names) else None


def as_pixels(
    images: Array, what: str, count: int, image_size: int | None, like: float | None, *, sure: bool = False
) -> tuple[Tensor, float]:
    """(N, C, H, W) uint8, square, and what one gray level was; `like` is that of other images of the same data set.

    Images smaller than `image_size` are not enlarged. Who is `sure` has other images from `like` alone.
    """
    if images.dtype.kind == "O":
        kind = type(images.flat[0]).__name__ if images.size else "Python"
        raise InputError(
            f"{what} holds {kind} objects: stack images of one size with numpy.stack, or give a list of paths."
        )
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"{what} has shape {images.shape}: use (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels"
            + (f", or call it {what.replace('images', 'vectors')}." if images.ndim == 2 and "images" in what else ".")
        )
    if len(images) != count:
        raise InputError(f"{what} holds {len(images)} images for {count} labels: give every image one label.")
    if not images.size:
        raise InputError(f"{what} is empty: give at least one image.")
    level = gray_level(images, what, like, sure=sure)
    pixels = torch.empty(images.shape, dtype=torch.uint8)  # a copy: the caller's array may change or be read-only
    for start in range(0, count, _CHUNK):
        chunk = images[start : start + _CHUNK]
        if images.dtype != np.uint8:
            chunk = np.rint(chunk.astype(np.float64) / level).clip(0, 255).astype(np.uint8)
        pixels[start : start + _CHUNK] = torch.from_numpy(np.array(chunk, order="C"))
    height, width = images.shape[2:]
    if image_size is not None:
        smaller = check_image_size(image_size) < min(height, width)
        return resize(pixels, image_size) if smaller else squared(pixels).contiguous(), level
    if height != width:
        side = min(height, width)
        raise InputError(
            f"{what} holds images of {height} x {width} pixels: make them square, or train with an image size such as "
            f"{side}."
        )
    return pixels, level


def gray_level(images: Array, what: str, like: float | None = None, *, sure: bool = False) -> float:
    """By how much two neighboring gray levels differ: a guess, unless `like` is known to be that of these images."""
    if images.dtype == np.uint8:
        return 1.0
    if images.dtype.kind not in "iuf":
        raise InputError(f"{what} holds {images.dtype} values: use numbers from 0 to 1 or from 0 to 255.")
    low, high, found = float(images.min()), float(images.max()), range_words(images, what)
    if not (low >= -_ROUNDING and high <= 255 + _ROUNDING):  # NaN, too, is in no range
        raise InputError(f"{found}: use 0 to 1 or 0 to 255, before any normalization.")
    unit = are_shares(images)
    if sure and like == 1.0:
        if unit and high > 0:
            warnings.warn(f"{found}, read as very dark: the training images are from 0 to 255.", stacklevel=2)
        return like
    if not unit and high < _HALF and like is None:
        raise InputError(
            f"{found}, which can be read in two ways, as very dark images from 0 to 255 or as a smaller range: convert "
            "them to uint8, or divide them by the largest value possible, so that they are from 0 to 1."
        )
    level = 1 / 255 if unit else 1.0
    if like is not None and level != like:
        raise InputError(f"{found}, but the training images are from 0 to {255 * like:.0f}: use one range for both.")
    return level


def are_shares(images: Array) -> bool:
    """Whether these may be floats from 0 to 1, which very dark ones from 0 to 255 are as well."""
    there = images.dtype.kind == "f" and images.size
    return bool(there and images.min() >= -_ROUNDING and images.max() <= 1 + _ROUNDING)


def range_words(images: Array, what: str) -> str:
    """What an array of images holds."""
    return f"{what} holds {images.dtype} values from {images.min():g} to {images.max():g}"


def as_labels(values: Any, what: str) -> list[int] | list[str]:
    """The label of every image, either numbers with -1 or texts with "" where nobody gave one."""
    # NumPy would make texts of everything in a list that has one, NaN and None included.
    array = np.array(values, dtype=object) if isinstance(values, list | tuple) else as_array(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{what} has shape {array.shape}: give one class per image, shape (N,) or (N, 1).")
    if array.dtype.kind in "iu":
        return [int(label) for label in array]
    labels = [_label(value, what) for value in array]
    texts = ["" if label in (-1, "-1") else label for label in labels]
    if not any(isinstance(text, str) and text for text in texts):
        return [-1 if isinstance(label, str) else label for label in labels]
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{what} holds the number {text} among texts: use one kind, and None where unlabeled.")
        if text.lower() == "nan":
            raise InputError(
                f"{what} holds the text '{text}', which can be a class or a missing label: call the class otherwise, "
                "or use None for unlabeled images."
            )
    return [str(text) for text in texts]


def _label(value: Any, what: str) -> int | str:
    value = value.item() if hasattr(value, "item") else value  # of NumPy or PyTorch
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value):
        return -1
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise InputError(
        f"{what} holds {shortened(repr(value))}: use whole numbers or texts, and None, NaN, -1 or '' where unlabeled."
    )
