"""Tiny files in the formats of well-known data sets, written byte for byte by the definitions of these formats."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

EUROSAT = [
    "AnnualCrop",
    "Forest",
    "HerbaceousVegetation",
    "Highway",
    "Industrial",
    "Pasture",
    "PermanentCrop",
    "Residential",
    "River",
    "SeaLake",
]
WNIDS = ["n01440764", "n01443537", "n02119789"]
ILSVRC = {1: "n02119789", 2: "n01443537", 3: "n01440764", 1001: "n00001740"}  # in no order; the last is no leaf
KINDS = {"int8": 1, "uint8": 2, "int16": 3, "uint16": 4, "int32": 5, "uint32": 6, "float32": 7, "float64": 9}
CLASSES = {"float64": 6, "float32": 7, "int8": 8, "uint8": 9, "int16": 10, "uint16": 11, "int32": 12, "uint32": 13}
STRUCT, CHAR = 2, 4


def photo(path: Path, level: int = 0, size: tuple[int, int] = (8, 8)) -> Path:
    """A gray JPEG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path, "JPEG")
    return path


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    """A data element: kind, size, data, zeros up to a multiple of 8 bytes; up to 4 bytes share the 8 of the tag."""
    if 0 < len(data) <= 4:
        return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(name: str, shape: tuple[int, ...], number: int, *content: bytes, order: str = "<") -> bytes:
    body = element(6, struct.pack(f"{order}II", number, 0), order)
    body += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    body += element(1, name.encode(), order) + b"".join(content)
    return struct.pack(f"{order}II", 14, len(body)) + body


def numbers(name: str, values: np.ndarray, order: str = "<", number: int | None = None) -> bytes:
    """An array; `number` is its class where MATLAB stored it in fewer bytes than the class has."""
    data = values.astype(values.dtype.newbyteorder(order)).tobytes(order="F")
    number = CLASSES[values.dtype.name] if number is None else number
    return matrix(name, values.shape, number, element(KINDS[values.dtype.name], data, order), order=order)


def text(value: str, order: str = "<") -> bytes:
    data = value.encode("utf-16-le" if order == "<" else "utf-16-be")
    return matrix("", (1, len(value)), CHAR, element(4, data, order), order=order)


def table(name: str, rows: list[dict[str, bytes]], order: str = "<") -> bytes:
    fields = list(rows[0])
    names = b"".join(field.encode().ljust(32, b"\0") for field in fields)
    cells = [row[field] for row in rows for field in fields]
    length = element(5, struct.pack(f"{order}i", 32), order)
    return matrix(name, (len(rows), 1), STRUCT, length, element(1, names, order), *cells, order=order)


def compressed(inner: bytes, order: str = "<") -> bytes:
    packed = zlib.compress(inner)
    return struct.pack(f"{order}II", 15, len(packed)) + packed


def mat(path: Path, *variables: bytes, order: str = "<", version: int = 0x0100) -> Path:
    head = b"MATLAB 5.0 MAT-file".ljust(116) + b"\0" * 8 + struct.pack(f"{order}H", version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + {"<": b"IM", ">": b"MI"}[order] + b"".join(variables))
    return path


def random_pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def svhn_file(path: Path, labels: list[int], seed: int = 0, packed: bool = False) -> np.ndarray:
    """Write the file and return its images as (N, 3, H, W)."""
    images = random_pixels(len(labels), 3, 32, 32, seed=seed)
    x = numbers("X", np.asfortranarray(images.transpose(2, 3, 1, 0)))  # height, width, channel, image
    y = numbers("y", np.array(labels, dtype=np.uint8)[:, None])
    mat(path, *(map(compressed, (x, y)) if packed else (x, y)))
    return images


def svhn(folder: Path) -> None:
    svhn_file(folder / "train_32x32.mat", [1, 9, 10, 2, 10], packed=True)
    svhn_file(folder / "test_32x32.mat", [10, 3], seed=1)


def stl10(folder: Path, train: int = 4, test: int = 3, unlabeled: int = 2) -> dict[str, np.ndarray]:
    """Write the files and return the images as (N, 3, H, W)."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for seed, (part, count) in enumerate({"train": train, "test": test, "unlabeled": unlabeled}.items()):
        made[part] = random_pixels(count, 3, 96, 96, seed=seed)
        (folder / f"{part}_X.bin").write_bytes(
            b"".join(plane.tobytes(order="F") for image in made[part] for plane in image)
        )
        if part != "unlabeled":
            (folder / f"{part}_y.bin").write_bytes(bytes((10, 1, 2, 3)[number % 4] for number in range(count)))
    (folder / "class_names.txt").write_text(
        "airplane\nbird\ncar\ncat\ndeer\ndog\nhorse\nmonkey\nship\ntruck\n", encoding="utf-8"
    )
    (folder / "fold_indices.txt").write_text("0 2 \n3 1 \n", encoding="utf-8")
    return made


def eurosat(folder: Path, each: int = 5) -> None:
    for number, name in enumerate(EUROSAT):
        for image in range(1, each + 1):
            photo(folder / name / f"{name}_{image}.jpg", 10 * number + image, (64, 64))


def imagenet(folder: Path, flat: bool = True) -> None:
    """Two training images of each class; validation images of the ILSVRC numbers 3, 1, 2, 1."""
    for number, wnid in enumerate(WNIDS):
        for image in (1, 2):
            photo(folder / "train" / wnid / f"{wnid}_{image}.JPEG", 50 * number + image, (20, 16))
    for image, number in enumerate((3, 1, 2, 1), 1):
        place = folder / "val" if flat else folder / "val" / ILSVRC[number]
        photo(place / f"ILSVRC2012_val_{image:08}.JPEG", 200 + image, (16, 20))
    if flat:
        kit = folder / "ILSVRC2012_devkit_t12/data"
        synsets = [
            {
                "ILSVRC2012_ID": numbers("", np.array([[number]], dtype=np.uint16), number=6),
                "WNID": text(wnid),
                "words": text("kit fox, Vulpes macrotis"),
                "children": numbers("", np.empty((0, 0))),
            }
            for number, wnid in ILSVRC.items()
        ]
        mat(kit / "meta.mat", compressed(table("synsets", synsets)))
        (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n1\n", encoding="utf-8")


def semi_aves(folder: Path) -> None:
    lists = {
        "l_train": ["trainval_images/0/0.jpg 0", "trainval_images/1/0.jpg 1"],
        "val": ["trainval_images/0/1.jpg 0"],
        "u_train_in": ["u_train_in/0.jpg -1", "u_train_in/1.jpg -1"],
        "u_train_out": ["u_train_out/0.jpg -1"],
        "test": ["test/9.jpg 1", "test/3.jpg 0"],
    }
    level = 0
    for name, lines in lists.items():
        for line in lines:
            level += 10
            photo(folder / line.split()[0], level, (30, 20))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
