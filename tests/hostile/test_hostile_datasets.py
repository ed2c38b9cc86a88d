"""Data sets of strangers in the files of known owners: arrays, idx, MATLAB, pickles, raw bytes and lists."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import pytest
from hostile_files import hollow, npy, object_array, zip_bomb, zipped
from hostile_world import World

sys.path.append(str(Path(__file__).parents[1] / "data"))
from original_files import array, names, numbers, photos, pickled, tiny

from epass.errors import InputError

SHAPE = "{{'descr': '{}', 'fortran_order': False, 'shape': {}}}"


@pytest.mark.parametrize("name", ["x.npz", "pathmnist.npz", "pneumoniamnist_64.npz"])
def test_arrays_that_are_objects_or_lie(world: World, name: str) -> None:
    labels = npy(SHAPE.format("|u1", (4,)), bytes([0, 1, 0, 1]))
    for hostile in (
        object_array(world.canary),
        world.bomb,
        npy(SHAPE.format("|O", (4,)), world.bomb),
        npy(SHAPE.format("|u1", (10**6, 10**6, 10**3))),
        npy(SHAPE.format("|u1", (4, -8, 8)), bytes(256)),
        npy(SHAPE.format("|u1", "(4, 10**99)")),
        npy("__import__('os').mkdir('canary')"),
        npy("(" * 5000),
        b"",
    ):
        zipped(world.home / name, {"train_images.npy": hostile, "train_labels.npy": labels})
        world.refused("check", name, words="cannot be read because|damaged|convert them to uint8")
    (world.home / name).write_bytes(world.bomb)
    world.refused("check", name, words="cannot be read because")
    zip_bomb(world.home / name, "train_images.npy", 2**29)
    world.refused("check", name, words="would unpack to 536,870,912 bytes")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sides", [(2**32 - 1,) * 3, (2**31, 1, 1), (0, 0, 0), (3, 2**32 - 1, 0)])
def test_idx_files_of_giant_sizes(world: World, packed: bool, sides: tuple[int, int, int]) -> None:
    end = ".gz" if packed else ""
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3]) + struct.pack(">3I", *sides)
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes(3)
        for stem, data in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            (world.home / f"{stem}{end}").write_bytes(gzip.compress(data) if packed else data)
    world.refused("check", ".", words="train-")


def test_an_idx_file_that_would_fill_the_memory(world: World) -> None:
    labels = gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes(3))
    for part in ("train", "t10k"):
        (world.home / f"{part}-labels-idx1-ubyte.gz").write_bytes(labels)
        head = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**13, 2**9, 2**9)
        (world.home / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + bytes(64)) + bytes(2**21))
    world.refused("check", ".", words="would unpack to 2,147,483,664 bytes")


@pytest.mark.parametrize("version", ["cifar10-python", "cifar100-python"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_in_place_of_cifar_runs_nothing(tmp_path: Path, version: str, protocol: int) -> None:
    from hostile_files import bomb

    cifar = tiny(version)
    for file in cifar.layout.files:
        (tmp_path / file.name).write_bytes(bomb(tmp_path / "canary", protocol))
    with pytest.raises(InputError, match="cannot be read because it"):
        cifar.read(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_a_pickle_that_makes_itself_large_or_endless(tmp_path: Path) -> None:
    cifar = tiny("cifar10-python")
    pixels, labels = photos(1)
    good = {"data": array(pixels), "labels": numbers(labels)}
    doubled = b"](K\x01e" + b"q\x05h\x05h\x05\x86" * 40  # every tuple holds the one before it twice
    itself = b"]q\x05h\x05a"  # a list that holds itself
    for hostile in (
        pickled(good | {"labels": doubled}),
        pickled(good | {"labels": itself}),
        pickled(good | {"labels": b"(" * 100_000 + b"K\x01" + b"t" * 100_000}),
        b"\x80\x02" + b"U\xff",
        b"\x80\x02\x8a\xff" + bytes(255) + b".",
        b"cos\nsystem\n(S'true'\ntR.",
    ):
        for file in cifar.layout.files:
            (tmp_path / file.name).write_bytes(hostile)
        (tmp_path / "batches.meta").write_bytes(pickled({"label_names": names(list("abcdefghij"))}))
        with pytest.raises(InputError):
            cifar.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 14, 2**32 - 1),
        b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, 16) + b"\xff" * 16,
        b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 14, 8) + struct.pack("<II", 6, 2**31),
        b"MATLAB 7.3".ljust(124) + b"\x00\x02IM",
    ],
    ids=["nothing", "a giant size", "no compressed data", "a giant description", "another version"],
)
def test_matlab_files_that_lie(world: World, content: bytes) -> None:
    for part in ("train", "test"):
        (world.home / f"{part}_32x32.mat").write_bytes(content)
    world.refused("check", ".", words="MATLAB 5 file|cannot be read|damaged|no variable")


def test_stl10_of_giant_and_other_sizes(world: World) -> None:
    for name in ("train_X.bin", "test_X.bin", "unlabeled_X.bin"):
        (world.home / name).write_bytes(bytes(3 * 96 * 96 + 1))
    for name in ("train_y.bin", "test_y.bin"):
        (world.home / name).write_bytes(b"\x01")
    (world.home / "class_names.txt").write_text("\n".join("abcdefghij"))
    world.refused("check", ".", words="expected a multiple of")
    (world.home / "class_names.txt").write_bytes(b"\x1b[2J\n" * 10)
    world.refused("check", ".", words="characters that are not text")
    hollow(world.home / "class_names.txt", 2**33)
    world.refused("check", ".", words="more than 67,108,864 bytes")


@pytest.mark.parametrize(
    "line", ["../treasure/diary.txt 0", "/etc/passwd 0", "a.jpg " + "9" * 5000, "\x1b[2J 0", "a.jpg"]
)
def test_lists_of_images_that_lead_out(world: World, line: str) -> None:
    for name in ("l_train.txt", "val.txt", "u_train_in.txt", "test.txt"):
        (world.home / name).write_text(line)
    (world.home / "a.jpg").write_bytes(b"")
    world.refused("check", ".", words="Line 1 of")
