"""Tiny data sets in original formats, written byte for byte by the definitions of the formats."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from epass.data.read.formats.cifar import CIFAR10_BINARY, CIFAR10_PYTHON, CIFAR100_BINARY, CIFAR100_PYTHON, Cifar
from epass.data.read.formats.layout import File

VERSIONS = {
    "cifar10-python": CIFAR10_PYTHON,
    "cifar10-binary": CIFAR10_BINARY,
    "cifar100-python": CIFAR100_PYTHON,
    "cifar100-binary": CIFAR100_BINARY,
}
IMAGES = 3  # in every file


def tiny(version: str) -> Cifar:
    """A version of CIFAR whose files may have any size and checksum."""
    cifar = VERSIONS[version]
    files = tuple(File(file.name) for file in cifar.layout.files)
    archives = tuple(File(file.name) for file in cifar.layout.archives)
    return replace(cifar, layout=replace(cifar.layout, files=files, archives=archives))


def photos(number: int) -> tuple[np.ndarray, list[int]]:
    """The pixels (IMAGES, 3072) and the labels of the number-th file."""
    pixels = np.random.default_rng(number).integers(0, 256, (IMAGES, 3072), dtype=np.uint8)
    return pixels, [(number + position) % 10 for position in range(IMAGES)]


def text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode("ascii")


def pickled(entries: dict[str, bytes]) -> bytes:
    """Protocol 2 as Python 2 wrote it: a dictionary of values that are already opcodes."""
    items = b"".join(text(key) + b"q\x01" + value for key, value in entries.items())
    return b"\x80\x02}q\x01(" + items + b"u."


def numbers(values: list[int]) -> bytes:
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def names(values: list[str]) -> bytes:
    return b"](" + b"".join(map(text, values)) + b"e"


def array(pixels: np.ndarray) -> bytes:
    """What NumPy pickles: a call of its reconstruction and the state (version, shape, type, Fortran order, bytes)."""
    rows, columns = pixels.shape
    data = pixels.tobytes()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + b"T" + struct.pack("<i", len(data)) + data + b"tb"
    )  # fmt: skip


def write_cifar(folder: Path, version: str) -> Path:
    """A folder with every file of a version, IMAGES images in each."""
    folder.mkdir(parents=True)
    cifar = VERSIONS[version]
    classes = [f"class{number}" for number in range(cifar.num_classes)]
    *batches, last = [file.name for file in cifar.layout.files]
    for number, name in enumerate(batches):
        pixels, labels = photos(number)
        if isinstance(cifar.label, bytes):
            entries = {"batch_label": text(name), cifar.label.decode(): numbers(labels), "data": array(pixels)}
            data = pickled({**entries, "filenames": names([f"{label}.png" for label in labels])})
        else:
            head = [bytes([7] * cifar.label + [label]) for label in labels]  # 7: a coarse label
            data = b"".join(start + record.tobytes() for start, record in zip(head, pixels, strict=True))
        (folder / name).write_bytes(data)
    listing = "\n".join(classes).encode() + b"\n\n" if isinstance(cifar.label, int) else b""
    (folder / last).write_bytes(listing or pickled({cifar.names.decode(): names(classes)}))
    return folder


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(
    folder: Path, *, prefixes: tuple[str, str] = ("train", "t10k"), packed: bool = False, first: int = 0, side: int = 8
) -> dict[str, np.ndarray]:
    """Four files with 6 training and 4 test images of labels from `first`; what was written, by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    written = {}
    for prefix, count in zip(prefixes, (6, 4), strict=True):
        written[f"{prefix}-images-idx3-ubyte"] = random.integers(0, 256, (count, side, side), dtype=np.uint8)
        written[f"{prefix}-labels-idx1-ubyte"] = (np.arange(count) % 3 + first).astype(np.uint8)
    for name, values in written.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(idx(values), mtime=0) if packed else idx(values))
    return written
