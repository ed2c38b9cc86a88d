"""Data sets of the Hugging Face `datasets` library, which need not be installed: whatever looks like one is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ...augment import reflect_padding
from ...errors import InputError, one_of
from ..dataset import Dataset, channel_statistics
from ..images import Images, ImageSource, concatenate
from .decode import FORMATS, Packed, ProgressCallback, decode, to_square
from .image_limits import check_pixels
from .listing import ROLES, check_number, number, number_classes, taken_for
from .square import check_image_size

if TYPE_CHECKING:
    from PIL.Image import Image


class Rows(Protocol):
    """What a `datasets.Dataset` is to us."""

    @property
    def column_names(self) -> list[str]: ...

    @property
    def features(self) -> Mapping[str, Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Mapping[str, Any]: ...


def from_huggingface(
    dataset: Rows | Mapping[str, Rows],
    image: str = "image",
    label: str = "label",
    *,
    name: str = "huggingface",
    image_size: int = 32,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """A data set from a `datasets.Dataset`, or from the splits of a `DatasetDict`.

    Args:
        dataset: Rows, all of them to train on, or a mapping of splits, of which "train" must be there, and "unlabeled",
            "validation" and "test" may be. Without "test", the validation images are the test set.
        image: The column of images, decoded or as their files' bytes.
        label: The column of labels: numbers of named classes, other numbers or texts; None, -1 or "" where nobody gave
            one. The split "unlabeled" needs none.
        name: What reports call this data set.
        image_size: Side of the square images.
        progress: Called with (images done, images in all).
    """
    check_image_size(image_size)
    splits = dataset if isinstance(dataset, Mapping) else {"train": dataset}
    one_of("split", "train", splits)
    called = {role: key for key in splits if (role := ROLES.get(key, "")) in ("unlabeled", "validation", "test")}
    taken, unused = taken_for(called), tuple(key for key in splits if key not in {"train", *called.values()})
    if "validation" in called and "test" not in called:
        called["test"] = called.pop("validation")
    parts = {"train": splits["train"]} | {role: splits[key] for role, key in called.items()}
    for role, rows in parts.items():
        key = called.get(role, role)
        for column in (image, *([label] if role != "unlabeled" else [])):
            one_of(f"column of the split '{key}' of '{name}'", column, rows.column_names)
    total, done = sum(map(len, parts.values())), 0
    pixels, texts = {}, {}
    for role, rows in parts.items():
        key = called.get(role, role)
        names = getattr(rows.features.get(label), "names", None)
        pixels[role] = torch.empty(len(rows), 3, image_size, image_size, dtype=torch.uint8)
        texts[role] = [""] * len(rows)
        for position in range(len(rows)):
            row = rows[position]
            pixels[role][position] = _pixels(row[image], f"{key}[{position}] of '{name}'", image_size)
            if role != "unlabeled":
                texts[role][position] = _text(row[label], names)
            done += 1
            if progress is not None:
                progress(done, total)
    made = _assemble(name, pixels, texts, getattr(parts["train"].features.get(label), "names", None))
    return replace(made, parts=taken, unused=unused)


def _pixels(image: Image | Mapping[str, Any], where: str, image_size: int) -> Tensor:
    if isinstance(image, Mapping) and image.get("bytes"):
        return torch.from_numpy(decode(Packed(where, image["bytes"]), image_size))
    if isinstance(image, Mapping) or not hasattr(image, "convert"):
        raise InputError(f"The image {where} is a {type(image).__name__}: cast the column to datasets.Image().")
    try:
        if getattr(image, "format", None) not in (None, "MPO", *FORMATS):
            raise ValueError(f"{image.format} files are not decoded")
        check_pixels(image)
        return torch.from_numpy(to_square(image, image_size))
    except Exception as error:
        raise InputError(f"The image {where} cannot be used ({error}): remove it.") from error


def _text(label: object, names: list[str] | None) -> str:
    if label is None or label == -1:
        return ""
    return names[label] if names is not None and isinstance(label, int) else str(label).strip()


def _assemble(name: str, pixels: dict[str, Tensor], texts: dict[str, list[str]], names: list[str] | None) -> Dataset:
    known = set(filter(None, texts["train"]))
    # The library's own order where it names the classes, but without those that no training image has.
    classes = number_classes(known) if names is None else [label for label in names if label in known]
    check_number(classes, f"The split 'train' of '{name}'")
    labels = {key: torch.tensor(number(values, classes, f"{key} class")) for key, values in texts.items()}
    for part in ("validation", "test"):
        if part in labels and (labels[part] < 0).any():
            raise InputError(f"The {part} images of '{name}' have one without a label: remove it.")
    train: ImageSource = Images(pixels["train"], labels["train"])
    for part in ("unlabeled", "validation"):
        if part in pixels:
            train = concatenate(train, Images(pixels[part], labels[part]))
    mean, std = channel_statistics(train.pixels)
    test = Images(pixels["test"], labels["test"]) if "test" in pixels else None
    augment = {"padding": reflect_padding(train.shape[-1], 0.875), "horizontal_flip": True}
    validation = len(labels.get("validation", ()))
    return Dataset(name, tuple(classes), train, test, mean, std, augment, validation=validation)
