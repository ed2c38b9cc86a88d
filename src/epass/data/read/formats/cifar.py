"""CIFAR-10 and CIFAR-100, in the Python and in the binary version.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ....errors import InputError
from ...dataset import Dataset
from ...images import Images
from .layout import Array, File, Format, Layout, dataset_from_arrays, labeled_images
from .pickles import load_plain

_SIDE, _PIXELS = 32, 3 * 32 * 32
_AUGMENT = {"padding": 4, "horizontal_flip": True}


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets in one of its versions.

    The last of the files holds the names of the classes, the one before it the test images.
    """

    name: str
    num_classes: int
    layout: Layout
    label: int | bytes  # position in a record of the binary version, or key of the Python version
    statistics: tuple[tuple[float, ...], tuple[float, ...]]  # as in published code: for CIFAR-10 those of ImageNet
    names: bytes = b""  # key of the class names in the Python version

    def find(self, path: Path) -> Sequence[str]:
        return self.layout.missing(path)

    def read(self, path: Path) -> Dataset:
        contents = self.layout.contents(path)
        *batches, test, names = [(self.layout.folder(path) / name, data) for name, data in contents.items()]
        train = [self._images(*batch) for batch in batches]
        whole = Images(torch.cat([part.pixels for part in train]), torch.cat([part.labels for part in train]))
        return dataset_from_arrays(
            self.name, self._classes(*names), whole, self._images(*test), _AUGMENT, self.statistics
        )

    def _images(self, place: Path, data: bytes) -> Images:
        label = self.label
        pixels, labels = _records(place, data, label) if isinstance(label, int) else _pickled(place, data, label)
        return labeled_images(place, pixels.reshape(-1, 3, _SIDE, _SIDE), labels, self.num_classes)

    def _classes(self, place: Path, data: bytes) -> list[str]:
        names: Any = data.split() if isinstance(self.label, int) else load_plain(data, str(place)).get(self.names)
        if not _is_list(names, bytes, self.num_classes):
            raise InputError(f"'{place}' does not name {self.num_classes} classes: get it again.")
        return [name.decode("latin-1") for name in names]


def _pickled(place: Path, data: bytes, key: bytes) -> tuple[Array, Array]:
    found = load_plain(data, str(place))
    pixels, labels = found.get(b"data"), found.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise InputError(f"'{place}' holds no array 'data' with {_PIXELS} numbers for every image: get it again.")
    if not _is_list(labels, int, len(pixels)):
        raise InputError(f"'{place}' holds no list of {len(pixels)} labels, one for every image: get it again.")
    return pixels, np.array(labels, dtype=np.int64)


def _records(place: Path, data: bytes, position: int) -> tuple[Array, Array]:
    length = position + 1 + _PIXELS
    if len(data) % length:
        raise InputError(
            f"'{place}' has {len(data):,} bytes, which is not a whole number of records of {length}: get it again."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, length)
    return records[:, position + 1 :], records[:, position]


def _is_list(values: Any, kind: type, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(type(value) is kind for value in values)


_CIFAR10 = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR100 = (tuple(level / 255 for level in (129.3, 124.1, 112.4)), tuple(level / 255 for level in (68.2, 65.4, 70.4)))

CIFAR10_PYTHON = Cifar(
    "cifar10",
    10,
    Layout(
        "data_batch_1 ... data_batch_5, test_batch, batches.meta (in cifar-10-batches-py), or cifar-10-python.tar.gz",
        files=(
            File("data_batch_1", 31_035_704, "c99cafc152244af753f735de768cd75f"),
            File("data_batch_2", 31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
            File("data_batch_3", 31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
            File("data_batch_4", 31_035_696, "634d18415352ddfa80567beed471001a"),
            File("data_batch_5", 31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
            File("test_batch", 31_035_526, "40351d587109b95175f43aff81a1287e"),
            File("batches.meta", 158, "5ff9c542aee3614f3951f8cda6e48888"),
        ),
        archives=(File("cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"),),
    ),
    b"labels",
    _CIFAR10,
    b"label_names",
)
CIFAR10_BINARY = Cifar(
    "cifar10",
    10,
    Layout(
        "data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt (in cifar-10-batches-bin), or "
        "cifar-10-binary.tar.gz",
        files=(
            *(File(f"data_batch_{number}.bin", 10_000 * 3073) for number in range(1, 6)),
            File("test_batch.bin", 10_000 * 3073),
            File("batches.meta.txt"),
        ),
        archives=(File("cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
    0,
    _CIFAR10,
)
CIFAR100_PYTHON = Cifar(
    "cifar100",
    100,
    Layout(
        "train, test, meta (in cifar-100-python), or cifar-100-python.tar.gz",
        files=(
            File("train", md5="16019d7e3df5f24257cddd939b257f8d"),
            File("test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),
            File("meta", md5="7973b15100ade9c7d40fb424638fde48"),
        ),
        archives=(File("cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"),),
    ),
    b"fine_labels",
    _CIFAR100,
    b"fine_label_names",
)
CIFAR100_BINARY = Cifar(
    "cifar100",
    100,
    Layout(
        "train.bin, test.bin, fine_label_names.txt (in cifar-100-binary), or cifar-100-binary.tar.gz",
        files=(
            File("train.bin", 50_000 * 3074),
            File("test.bin", 10_000 * 3074),
            File("fine_label_names.txt"),
        ),
        archives=(File("cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8"),),
    ),
    1,  # the first byte of a record is the coarse label
    _CIFAR100,
)

FORMATS = tuple(
    Format(cifar.name, cifar.layout, cifar.find, cifar.read)
    for cifar in (CIFAR10_PYTHON, CIFAR10_BINARY, CIFAR100_PYTHON, CIFAR100_BINARY)
)
