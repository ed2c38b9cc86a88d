"""Files of random bytes, cut or with bits flipped: every reader answers with a data set or with an InputError."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from original_files import VERSIONS, tiny, write_cifar, write_idx

from epass.data import Dataset
from epass.data.read.formats.idx import OTHER
from epass.data.read.formats.medmnist import MedMnist
from epass.errors import InputError

ROUNDS = 60


def spoiled(whole: bytes, random: np.random.Generator) -> Iterator[bytes]:
    """Variants of a file; the ends, where headers and directories are, get most of the damage."""
    yield b""
    for _ in range(ROUNDS):
        yield random.bytes(int(random.integers(1, 300)))
        yield whole[: int(random.integers(len(whole)))]
        data = bytearray(whole)
        span = (0, min(200, len(data))) if random.random() < 0.5 else (max(0, len(data) - 200), len(data))
        for _ in range(int(random.integers(1, 4))):
            data[random.integers(*span)] ^= 1 << int(random.integers(8))
        yield bytes(data)


def write_medmnist(folder: Path) -> None:
    folder.mkdir()
    images, labels = np.zeros((3, 8, 8), np.uint8), np.arange(3, dtype=np.uint8)[:, None]
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(folder / "cellmnist.npz", **parts)


def write_archive(folder: Path) -> None:
    files = write_cifar(folder.parent / "unpacked", "cifar10-binary")
    folder.mkdir()
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as packed:
        packed.add(files, "cifar-10-batches-bin")


CELLS = MedMnist("cellmnist", 3, 3, ("0", "1", "2"), {})
READERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], Dataset]]] = {
    **{name: (lambda folder, name=name: write_cifar(folder, name), tiny(name).read) for name in VERSIONS},
    "idx": (write_idx, OTHER.read),
    "idx.gz": (lambda folder: write_idx(folder, packed=True), OTHER.read),
    "archive": (write_archive, tiny("cifar10-binary").read),
    "medmnist": (write_medmnist, CELLS.read),
}


@pytest.mark.parametrize("name", READERS)
def test_damage_is_an_input_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object, **__: object) -> None:
        raise AssertionError("a file ran a program")

    monkeypatch.setattr("os.system", ran)
    monkeypatch.setattr(subprocess, "Popen", ran)
    write, read = READERS[name]
    folder = tmp_path / "files"
    write(folder)
    assert len(read(folder).train)
    random, accepted = np.random.default_rng(0), 0
    paths = sorted(folder.iterdir())
    for path in (paths[0], paths[-1]):
        whole = path.read_bytes()
        for data in spoiled(whole, random):
            path.write_bytes(data)
            with suppress(InputError):
                read(folder)  # a flipped pixel is still a picture
                accepted += 1
        path.write_bytes(whole)
    assert accepted < 3 * ROUNDS  # only flipped bits, two of six variants, can leave a file that makes sense
