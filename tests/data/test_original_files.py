"""The files of a format's definition come back as they were written, and wrong ones are refused."""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from original_files import IMAGES, VERSIONS, idx, photos, pickled, text, tiny, write_cifar, write_idx

from epass.data import FORMATS, open_dataset
from epass.data.read.formats import closest, medmnist, recognize
from epass.data.read.formats import idx as idx_files
from epass.data.read.formats.layout import File, Format, md5


@pytest.mark.parametrize("version", VERSIONS)
def test_cifar_comes_back_as_it_was_written(tmp_path: Path, version: str) -> None:
    folder = write_cifar(tmp_path / "files", version)
    made = tiny(version).read(folder)

    batches = len(VERSIONS[version].layout.files) - 2
    expected = [photos(number) for number in range(batches + 1)]
    assert made.name == version.partition("-")[0]
    assert made.classes[:3] == ("class0", "class1", "class2")
    assert len(made.classes) == VERSIONS[version].num_classes
    assert made.test is not None
    pixels = np.concatenate([pixels for pixels, _ in expected]).reshape(-1, 3, 32, 32)
    labels = [label for _, part in expected for label in part]
    assert len(made.train) == batches * IMAGES
    assert np.array_equal(torch.cat([made.train.pixels, made.test.pixels]).numpy(), pixels)
    assert torch.cat([made.train.labels, made.test.labels]).tolist() == labels
    assert made.augment == {"padding": 4, "horizontal_flip": True}


def test_normalization_is_that_of_published_code() -> None:
    ten, hundred = VERSIONS["cifar10-python"].statistics, VERSIONS["cifar100-python"].statistics
    assert ten == VERSIONS["cifar10-binary"].statistics == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert hundred == VERSIONS["cifar100-binary"].statistics
    assert hundred[0] == pytest.approx((0.50706, 0.48667, 0.44078), abs=1e-5)
    assert hundred[1] == pytest.approx((0.26745, 0.25647, 0.27608), abs=1e-5)


@pytest.mark.parametrize("version", ["cifar10-python", "cifar100-binary"])
def test_an_archive_is_read_without_unpacking_it(tmp_path: Path, version: str, refused) -> None:
    cifar = tiny(version)
    folder, archive = write_cifar(tmp_path / "files", version), tmp_path / cifar.layout.archives[0].name
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, "somewhere")
    one, other = cifar.read(archive), cifar.read(folder)
    assert torch.equal(one.train.pixels, other.train.pixels)
    assert one.test is not None
    assert other.test is not None
    assert torch.equal(one.test.labels, other.test.labels)

    checked = replace(cifar.layout, archives=(replace(cifar.layout.archives[0], md5="0" * 32),))
    with refused(str(archive), md5(archive.read_bytes()), "0" * 32):
        replace(cifar, layout=checked).read(archive)
    sized = replace(cifar.layout, files=tuple(replace(file, size=1) for file in cifar.layout.files))
    with refused("/somewhere/", "bytes, but the original has 1"):
        replace(cifar, layout=sized).read(archive)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "test.bin" if "binary" in version else folder / "test_batch")
    with refused("lacks"):
        cifar.read(archive)


@pytest.mark.parametrize("version", VERSIONS)
def test_files_that_differ_from_the_originals_are_refused(tmp_path: Path, version: str, refused) -> None:
    folder = write_cifar(tmp_path / "files", version)
    first = VERSIONS[version].layout.files[0]
    with refused(str(folder / first.name), f"the original has {first.size:,}:" if first.size else str(first.md5)):
        open_dataset(str(folder))
    data = (folder / first.name).read_bytes()
    expected = File(first.name, len(data), "0" * 32)
    changed = tiny(version)
    changed = replace(changed, layout=replace(changed.layout, files=(expected, *changed.layout.files[1:])))
    with refused(md5(data), "0" * 32):
        changed.read(folder)


def test_cifar_with_wrong_content_is_refused(tmp_path: Path, refused) -> None:
    binary, python = tiny("cifar10-binary"), tiny("cifar10-python")
    folder = write_cifar(tmp_path / "binary", "cifar10-binary")
    record = (folder / "test_batch.bin").read_bytes()[:3073]
    for data, words in (
        (record[:-1], "3,072 bytes, which is not a whole number of records of 3073"),
        (b"\x0a" + record[1:], "the label 10, but there are only 0 to 9"),
        (b"", "holds no image"),
    ):
        (folder / "test_batch.bin").write_bytes(data)
        with refused("test_batch.bin'", words):
            binary.read(folder)
    folder = write_cifar(tmp_path / "python", "cifar10-python")
    for entries, words in (
        ({"labels": b"]"}, "no array 'data'"),
        ({"labels": b"]", "data": b"]"}, "no array 'data'"),
        ({"batch_label": text("test")}, "no array 'data'"),
    ):
        (folder / "test_batch").write_bytes(pickled(entries))
        with refused("test_batch'", words):
            python.read(folder)
    write_cifar(tmp_path / "again", "cifar10-python")
    (tmp_path / "again/batches.meta").write_bytes(pickled({"label_names": b"]"}))
    with refused("batches.meta' does not name 10 classes"):
        python.read(tmp_path / "again")


class Hostile:
    """Unpickling this writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.target}'",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, refused, protocol: int) -> None:
    folder, target = write_cifar(tmp_path / "files", "cifar10-python"), tmp_path / "ran"
    data = pickle.dumps({b"data": Hostile(target)}, protocol)
    pickle.loads(data)
    assert target.exists(), "the pickle is not hostile"
    target.unlink()

    (folder / "data_batch_3").write_bytes(data)
    with refused("data_batch_3' cannot be read because"):
        tiny("cifar10-python").read(folder)
    assert not target.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02cposix\nsystem\n(U\x04true\x85R.", "it asks for 'posix.system', which is never loaded"),
        (b"(U\x04truetiposix\nsystem\n.", "the pickle operation INST"),
        (b"\x80\x02cnumpy\ndtype\n)\x81.", "the pickle operation NEWOBJ"),
        (b"\x80\x02cnumpy\nfrombuffer\n.", "'numpy.frombuffer', which is never loaded"),
        (b"\x80\x02cnumpy\nndarray\n}b.", "it is damaged"),
        (b"\x80\x02}U\x01as.", "it is damaged"),
        (b"\x80\x02})K\x01s.", "it is damaged"),  # a tuple as a key
        (b"\x80\x02K\x01.", "it holds no dictionary"),
        (b"\x80\x02}", "it is damaged"),
        (b"", "it is damaged"),
    ],
)
def test_other_operations_of_pickle_are_refused(tmp_path: Path, refused, data: bytes, words: str) -> None:
    folder = write_cifar(tmp_path / "files", "cifar10-python")
    (folder / "test_batch").write_bytes(data)
    with refused("test_batch' cannot be read because", words):
        tiny("cifar10-python").read(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_come_back_as_they_were_written(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "runes"
    written = write_idx(folder, packed=packed)
    made = open_dataset(str(folder))

    assert made.name == "runes"
    assert made.classes == ("0", "1", "2")
    assert np.array_equal(made.train.pixels[:, 0].numpy(), written["train-images-idx3-ubyte"])
    assert np.array_equal(made.train.labels.numpy(), written["train-labels-idx1-ubyte"])
    assert made.test is not None
    assert np.array_equal(made.test.pixels[:, 0].numpy(), written["t10k-images-idx3-ubyte"])
    assert made.test.labels.tolist() == [0, 1, 2, 0]
    assert made.augment == {"padding": 1, "horizontal_flip": False}


def test_other_spellings_of_idx_names_are_found(tmp_path: Path) -> None:
    write_idx(tmp_path)
    expected = open_dataset(str(tmp_path)).train.pixels
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert torch.equal(open_dataset(str(tmp_path)).train.pixels, expected)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_its_twin_are_told_by_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, refused
) -> None:
    written = write_idx(tmp_path, packed=True)
    sums = tuple(md5(idx(values)) for values in written.values())
    monkeypatch.setitem(idx_files._UNPACKED, name, sums)
    found = recognize(tmp_path)
    assert found is not None
    assert found.name == name
    original = {"mnist": idx_files.MNIST, "fashion-mnist": idx_files.FASHION}[name]
    with refused("train-images-idx3-ubyte.gz (unpacked)' has the MD5 checksum", sums[0], original.checksums[0]):
        found.read(tmp_path)
    made = replace(original, checksums=sums).read(tmp_path)
    assert made.name == name
    assert len(made.classes) == 10
    assert made.augment["horizontal_flip"] is (name == "fashion-mnist")


def test_kmnist_is_told_by_its_labels_or_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "KMNIST/raw")
    assert open_dataset(str(tmp_path / "KMNIST/raw")).classes[:2] == ("o", "ki")
    write_idx(tmp_path / "x/y", packed=True)
    labels = (tmp_path / "x/y/train-labels-idx1-ubyte.gz").read_bytes()
    assert open_dataset(str(tmp_path / "x/y")).name == "y"
    monkeypatch.setattr(idx_files, "_KMNIST_LABELS", md5(labels))
    assert open_dataset(str(tmp_path / "x/y")).name == "kmnist"


def test_emnist_is_turned_upright_and_chosen_by_a_file(tmp_path: Path, refused) -> None:
    letters = write_idx(tmp_path, prefixes=("emnist-letters-train", "emnist-letters-test"), packed=True, first=1)
    write_idx(tmp_path, prefixes=("emnist-balanced-train", "emnist-balanced-test"), packed=True)
    with refused("several data sets (emnist-balanced, emnist-letters)", "give the path of one of their files"):
        open_dataset(str(tmp_path))
    made = open_dataset(str(tmp_path / "emnist-letters-test-images-idx3-ubyte.gz"))
    assert (made.name, made.classes[0], len(made.classes)) == ("emnist-letters", "a", 26)
    upright = letters["emnist-letters-train-images-idx3-ubyte"].transpose(0, 2, 1)
    assert np.array_equal(made.train.pixels[:, 0].numpy(), upright)
    assert made.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    sizes = {split.name: len(split.classes or ()) for split in idx_files.EMNIST}
    assert sizes["emnist-balanced"] == sizes["emnist-bymerge"] == 47
    assert sizes["emnist-byclass"] == 62


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_idx_files_are_refused(tmp_path: Path, packed: bool, refused) -> None:
    def spoil(data: bytes, *words: str) -> None:
        write_idx(tmp_path, packed=packed)
        path = tmp_path / ("train-images-idx3-ubyte.gz" if packed else "train-images-idx3-ubyte")
        path.write_bytes(gzip.compress(data) if packed else data)
        with refused(str(path), *words):
            open_dataset(str(tmp_path))

    whole = idx(np.zeros((6, 8, 8), np.uint8))
    spoil(whole[:10], "does not begin like an idx file of bytes with 3 dimensions")
    spoil(b"\0\0\x0d\3" + whole[4:], "does not begin like an idx file")
    spoil(whole + b"0", "announces 400 bytes, but holds more")
    spoil(idx(np.zeros((5, 8, 8), np.uint8)), "5 images, but 6 labels")
    spoil(idx(np.zeros((6, 8, 7), np.uint8)), "8 x 7 pixels")
    spoil(whole[:4] + b"\xff" * 12 + whole[16:], "too few for the")
    if packed:
        spoil(whole[:-1], "announces 400 bytes, but holds 399")
        (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:-9])
        with refused("train-images-idx3-ubyte.gz' is damaged"):
            open_dataset(str(tmp_path))
    else:
        spoil(whole[:-1], "has 399 bytes, too few for the 400")


@pytest.fixture
def small_medmnist(monkeypatch: pytest.MonkeyPatch):
    """The readers of MedMNIST, for files of 6 training and 3 test images."""
    entries = [replace(entry, train=6, test=3) for entry in medmnist.MEDMNIST]
    formats = [Format(entry.name, medmnist._layout(entry.name), entry.find, entry.read) for entry in entries]
    others = [entry for entry in FORMATS if entry.name not in {entry.name for entry in entries}]
    monkeypatch.setattr("epass.data.read.formats.FORMATS", (*others, *formats))


def write_npz(path: Path, side: int = 28, channels: tuple[int, ...] = (), labels: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 6), ("val", 2), ("test", 3)):
        arrays[f"{part}_images"] = random.integers(0, 256, (count, side, side, *channels), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count * labels) % 2).astype(np.uint8).reshape(count, labels)
    np.savez_compressed(path, **arrays)
    return arrays


@pytest.mark.usefixtures("small_medmnist")
def test_medmnist_comes_back_as_it_was_written(tmp_path: Path) -> None:
    arrays = write_npz(tmp_path / "bloodmnist_64.npz", 64, (3,))
    made = open_dataset(str(tmp_path / "bloodmnist_64.npz"))
    assert made.name == "bloodmnist"
    assert made.classes[-1] == "platelet"
    assert np.array_equal(made.train.pixels.numpy(), arrays["train_images"].transpose(0, 3, 1, 2))
    assert made.test is not None
    assert made.test.labels.tolist() == [0, 1, 0]
    assert made.augment == {"padding": 8, "horizontal_flip": True, "vertical_flip": True}
    assert open_dataset(str(tmp_path)).name == "bloodmnist"  # the folder holds nothing else


@pytest.mark.usefixtures("small_medmnist")
def test_tissuemnist_is_that_of_the_benchmark(tmp_path: Path) -> None:
    write_npz(tmp_path / "tissuemnist.npz")
    made = open_dataset(str(tmp_path / "tissuemnist.npz"))
    assert made.train.pixels.shape == (6, 3, 32, 32)
    assert torch.equal(made.train.pixels[:, 0], made.train.pixels[:, 2])
    assert made.mean == made.std == (0.5, 0.5, 0.5)
    assert made.augment == {"padding": 1, "horizontal_flip": True, "vertical_flip": True, "color": False}


@pytest.mark.usefixtures("small_medmnist")
def test_mirrored_organs_would_be_others(tmp_path: Path) -> None:
    write_npz(tmp_path / "organamnist.npz")
    assert open_dataset(str(tmp_path / "organamnist.npz")).augment["horizontal_flip"] is False


def test_other_files_of_medmnist_are_refused(tmp_path: Path, refused) -> None:
    for name, words in (("chestmnist", "several labels for one image"), ("organmnist3d", "volumes instead of images")):
        write_npz(tmp_path / f"{name}.npz", labels=14)
        with refused(f"{name}.npz' is {name}, which has {words}"):
            open_dataset(str(tmp_path / f"{name}.npz"))
    write_npz(tmp_path / "breastmnist.npz")
    with refused("6 training and 3 test images, but the original 546 and 156", "another name"):
        open_dataset(str(tmp_path / "breastmnist.npz"))
    with refused("holds several data sets"):
        open_dataset(str(tmp_path))
    write_npz(tmp_path / "sizes.npz")
    for size in ("", "_64"):
        (tmp_path / "two").mkdir(exist_ok=True)
        write_npz(tmp_path / f"two/breastmnist{size}.npz")
    with refused("breastmnist_64.npz: give the path of one of these files"):
        open_dataset(str(tmp_path / "two"))


def test_medmnist_counts_are_the_published_ones() -> None:
    assert {entry.name: (entry.train, entry.test, len(entry.classes)) for entry in medmnist.MEDMNIST}[
        "tissuemnist"
    ] == (165_466, 47_280, 8)


def test_an_incomplete_folder_says_what_it_lacks(tmp_path: Path, refused) -> None:
    folder = write_cifar(tmp_path / "files", "cifar10-python")
    (folder / "data_batch_2").unlink()
    (folder / "batches.meta").unlink()
    with refused("looks like cifar10, but lacks data_batch_2, batches.meta"):
        open_dataset(str(folder))
    found = closest(folder)
    assert found is not None
    assert found[1] == ["data_batch_2", "batches.meta"]
    (folder / "birds").mkdir()  # it may be a folder of classes with some other files in it
    with refused("holds no image"):
        open_dataset(str(folder))
    assert closest(tmp_path) is None


def test_a_name_alone_asks_for_the_files(refused) -> None:
    with refused("'cifar10' is not built in: give the path of its original files"):
        open_dataset("cifar10")


def test_another_size_keeps_the_crop_in_proportion(tmp_path: Path) -> None:
    write_idx(tmp_path, side=16)
    made = open_dataset(str(tmp_path), image_size=32)
    assert made.train.pixels.shape == (6, 1, 32, 32)
    assert made.test is not None
    assert made.test.pixels.shape == (4, 1, 32, 32)
    assert made.augment == {"padding": 4, "horizontal_flip": False}


@pytest.mark.skipif("EPASS_DATA" not in os.environ, reason="EPASS_DATA names no folder with original data sets")
def test_the_real_cifar10_is_read() -> None:
    folder = Path(os.environ["EPASS_DATA"]) / "cifar-10-batches-py"
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}")
    made = open_dataset(str(folder))
    assert made.name == "cifar10"
    assert made.classes[0::9] == ("airplane", "truck")
    assert made.train.pixels.shape == (50_000, 3, 32, 32)
    assert torch.bincount(made.train.labels).tolist() == [5000] * 10
    assert made.test is not None
    assert torch.bincount(made.test.labels).tolist() == [1000] * 10
    levels = made.train.pixels.double().mean((0, 2, 3)) / 255
    assert levels.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)  # as published with the data
