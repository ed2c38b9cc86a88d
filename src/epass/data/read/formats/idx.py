"""MNIST and what is published in its files: Fashion-MNIST, Kuzushiji-MNIST, EMNIST, and any other four files of idx.

An idx file is two zeros, the type of its numbers (8: bytes), how many dimensions there are, the size of each as four
bytes, the highest first, and then the numbers.
"""

from __future__ import annotations

import gzip
import math
import string
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ....augment import reflect_padding
from ....errors import InputError
from ...dataset import Dataset
from ...images import Images
from .layout import Array, File, Format, Layout, check_sum, dataset_from_arrays, labeled_images, md5

_BYTES = 8  # the type of the numbers
_PACKED_MOST = 1040  # gzip makes nothing smaller than by this factor: more is not worth memory
_SMALL, _GROWTH = 2**30, 20  # bytes that any .gz may unpack to, as no published one does, or so many times its size
_UNPACKED = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fashion-mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
}
_KMNIST_LABELS = "e144d726b3acfaa3e44228e80efcd344"  # of the compressed file: that of the unpacked one is not published


def _four(train: str, test: str) -> tuple[File, ...]:
    """Training images and labels, test images and labels, without checksums."""
    stems = [f"{part}-{kind}" for part in (train, test) for kind in ("images-idx3", "labels-idx1")]
    return tuple(
        File(f"{stem}-ubyte", aliases=(f"{stem}-ubyte.gz", *(f"{dotted}-ubyte{end}" for end in ("", ".gz"))))
        for stem, dotted in ((stem, stem.replace("-idx", ".idx")) for stem in stems)
    )


_MNIST = Layout("train- and t10k-images-idx3-ubyte, train- and t10k-labels-idx1-ubyte, or .gz", _four("train", "t10k"))


@dataclass(frozen=True)
class Idx:
    """A data set in four files."""

    name: str | None  # None: that of the folder
    classes: Sequence[str] | None  # None: as many as there are labels, called by their numbers
    layout: Layout = _MNIST
    horizontal_flip: bool = False  # a mirrored sign is another sign
    first_label: int = 0
    transposed: bool = False  # EMNIST stores its images column by column
    checksums: Sequence[str] = field(default=())  # of the four unpacked files

    def find(self, path: Path) -> Sequence[str]:
        missing = self.layout.missing(path)
        if self.layout is _MNIST and len(missing) < 4 and _owner(self.layout.folder(path)) != self.name:
            return [file.name for file in self.layout.files]  # the files of another data set
        return missing

    def read(self, path: Path) -> Dataset:
        self.layout.require(path)
        folder = self.layout.folder(path)
        arrays = [self._array(folder, number) for number in range(4)]
        classes = self.classes or [str(number) for number in range(max(2, int(arrays[1].max(initial=0)) + 1))]
        train, test = (
            self._images(_place(folder, self.layout.files[number]), arrays[number], arrays[number + 1], len(classes))
            for number in (0, 2)
        )
        shape = train.pixels.shape[1:]
        if test.pixels.shape[1:] != shape:
            raise InputError(
                f"The test images of '{folder}' have shape {tuple(test.pixels.shape[1:])}, but the training images "
                f"{tuple(shape)}: get them again."
            )
        augment = {"padding": reflect_padding(shape[-1], 0.875), "horizontal_flip": self.horizontal_flip}
        return dataset_from_arrays(self.name or folder.resolve().name, classes, train, test, augment)

    def _array(self, folder: Path, number: int) -> Array:
        file = self.layout.files[number]
        path = _place(folder, file)
        dimensions = 1 if number % 2 else 3
        data = _unpack(path, dimensions)
        if self.checksums:
            check_sum(f"{path} (unpacked)", data, File(file.name, md5=self.checksums[number]))
        sizes = struct.unpack_from(f">{dimensions}I", data, 4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)

    def _images(self, place: Path, pixels: Array, labels: Array, num_classes: int) -> Images:
        height, width = pixels.shape[1:]
        if height != width or not height:
            raise InputError(f"'{place}' holds images of {height} x {width} pixels, but they must be square.")
        pixels = pixels.transpose(0, 2, 1) if self.transposed else pixels
        return labeled_images(place, pixels[:, None], labels.astype(np.int64) - self.first_label, num_classes)


def _place(folder: Path, file: File) -> Path:
    return file.within(folder) or folder / file.name


def _unpack(path: Path, dimensions: int) -> bytes:
    """The whole file, whose header promises what is in it."""
    packed = path.suffix == ".gz"
    head_size = 4 + 4 * dimensions
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            head = stream.read(head_size)
            if len(head) < head_size or head[:4] != bytes([0, 0, _BYTES, dimensions]):
                raise InputError(
                    f"'{path}' does not begin like an idx file of bytes with {dimensions} dimensions: get it again."
                )
            size = head_size + math.prod(struct.unpack_from(f">{dimensions}I", head, 4))
            on_disk = path.stat().st_size
            if size > on_disk * (_PACKED_MOST if packed else 1):
                raise InputError(
                    f"'{path}' has {on_disk:,} bytes, too few for the {size:,} it announces: get it again."
                )
            if packed and size > max(_SMALL, _GROWTH * on_disk):
                raise InputError(f"'{path}' would unpack to {size:,} bytes, far more than it should: do not use it.")
            data = head + stream.read(size - head_size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"'{path}' is damaged or no .gz file: get it again.") from None
    if len(data) != size:
        more = "more" if len(data) > size else f"{len(data):,}"
        raise InputError(f"'{path}' announces {size:,} bytes, but holds {more}: get it again.")
    return data


def _owner(folder: Path) -> str | None:
    """Which data set the four files of MNIST's names belong to, by their labels, or else by the name of the folder."""
    path = _MNIST.files[1].within(folder)
    if path is not None:
        try:
            if md5(path.read_bytes()) == _KMNIST_LABELS:
                return "kmnist"
            found = md5(_unpack(path, 1))
        except InputError:
            found = ""
        for name, checksums in _UNPACKED.items():
            if found == checksums[1]:
                return name
    parents = " ".join(folder.resolve().parts[-2:]).lower()  # torchvision: KMNIST/raw
    return "kmnist" if "kmnist" in parents or "kuzushiji" in parents else None


def _emnist(split: str, classes: str, first_label: int = 0) -> Idx:
    layout = Layout(
        "emnist-<name>-train- and -test-images-idx3-ubyte, emnist-<name>-train- and -test-labels-idx1-ubyte, or .gz",
        _four(f"emnist-{split}-train", f"emnist-{split}-test"),
    )
    return Idx(f"emnist-{split}", tuple(classes), layout, first_label=first_label, transposed=True)


_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"  # the other small letters look like their capitals

MNIST = Idx("mnist", tuple(string.digits), checksums=_UNPACKED["mnist"])
FASHION = Idx("fashion-mnist", _CLOTHES, horizontal_flip=True, checksums=_UNPACKED["fashion-mnist"])
KMNIST = Idx("kmnist", ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"))
OTHER = Idx(None, None)
EMNIST = (
    _emnist("balanced", _MERGED),
    _emnist("byclass", string.digits + string.ascii_uppercase + string.ascii_lowercase),
    _emnist("bymerge", _MERGED),
    _emnist("digits", string.digits),
    _emnist("letters", string.ascii_lowercase, first_label=1),
    _emnist("mnist", string.digits),
)

FORMATS = tuple(
    Format(idx.name or "idx", idx.layout, idx.find, idx.read) for idx in (MNIST, FASHION, KMNIST, OTHER, *EMNIST)
)
