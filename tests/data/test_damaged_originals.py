"""Whatever the bytes of a file are, a reader either returns a sound data set or says what is wrong in one sentence."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import originals
import pytest

from epass.data import Dataset
from epass.data.read.formats import eurosat, imagenet, semi_aves, stl10, svhn
from epass.errors import InputError

READERS: dict[str, tuple[ModuleType, Callable[[Path], object], Callable[[Path], Dataset]]] = {
    "svhn": (svhn, originals.svhn, svhn.read),
    "stl10": (stl10, originals.stl10, stl10.read),
    "eurosat": (eurosat, originals.eurosat, lambda folder: eurosat.read(folder, image_size=8)),
    "imagenet": (imagenet, originals.imagenet, lambda folder: imagenet.read(folder, image_size=8)),
    "semi_aves": (semi_aves, originals.semi_aves, lambda folder: semi_aves.read(folder, image_size=8)),
}


def damage(data: bytes, dice: random.Random) -> bytes:
    """Noise, the beginning, or the whole with a few wrong bits, most of them where the description of the data is."""
    kind = dice.choice(["noise", "cut", "bits", "bits", "bits", "bytes"])
    if kind == "noise":
        return dice.randbytes(dice.choice([0, 1, len(data), dice.randrange(2 * len(data))]))
    if kind == "cut":
        return data[: dice.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        start = dice.choice([0, 0, 120, len(data) - 100])
        place = min(max(start, 0) + dice.randrange(120), len(data) - 1)
        changed[place] = changed[place] ^ 1 << dice.randrange(8) if kind == "bits" else dice.randrange(256)
    return bytes(changed)


def check(made: Dataset) -> None:
    assert made.test is not None
    for part, lowest in ((made.train, -1), (made.test, 0)):
        assert len(part.pixels) == len(part.labels) > 0
        assert lowest <= int(part.labels.min()) <= int(part.labels.max()) < len(made.classes)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")  # Pillow warns about images that claim to be huge before it fails
def test_damage_never_does_anything_else(tmp_path: Path, name: str) -> None:
    module, write, read = READERS[name]
    write(tmp_path)
    assert module.missing(tmp_path) == []
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    # Photos are many and all alike, so each other kind of file gets as many turns as they do together.
    kinds = {path.suffix.lower() if "jp" in path.suffix.lower() else path.name: path for path in files}
    dice, ends = random.Random(f"damage {name}"), Counter[str]()
    for path in kinds.values():
        original = path.read_bytes()
        for _ in range(300 if path.suffix == ".mat" else 40):
            path.write_bytes(damage(original, dice))
            said = ""
            try:
                check(read(tmp_path))
            except InputError as error:
                said = str(error)
            ends["refused" if said else "read"] += 1
            if said:
                assert said.isprintable()
                assert said[-1] in ".?"
        path.write_bytes(original)
    check(read(tmp_path))
    assert min(ends["refused"], ends["read"]) > 10


@pytest.mark.parametrize("packed", [False, True])
def test_every_beginning_of_a_matlab_file(tmp_path: Path, packed: bool) -> None:
    originals.svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    originals.svhn_file(path, [10], packed=packed)
    data = path.read_bytes()
    for size in [*range(300), *range(len(data) - 100, len(data))]:
        path.write_bytes(data[:size])
        with pytest.raises(InputError):
            svhn.read(tmp_path)


def test_a_folder_in_the_place_of_a_file(tmp_path: Path, refused) -> None:
    originals.semi_aves(tmp_path)
    (tmp_path / "test.txt").unlink()
    (tmp_path / "test.txt").mkdir()
    with refused("lacks test.txt"):
        semi_aves.read(tmp_path)
