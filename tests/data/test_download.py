from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from epass.data import open_dataset
from epass.data.read.download import SOURCES, RemoteFile, Source, contents, download, is_filled
from owner import Owner, serving

Refused = Callable[..., AbstractContextManager[None]]

OWNERS = {
    "www.cs.toronto.edu",
    "ai.stanford.edu",
    "ufldl.stanford.edu",
    "fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "zenodo.org",
}


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        yield server


Offer = Callable[..., None]


@pytest.fixture
def offer(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """`offer("name", {"file": bytes})` makes a data set of these files known, on the server of the test."""

    def add(name: str, files: dict[str, bytes]) -> None:
        owner.files |= files
        remote = tuple(
            RemoteFile(owner.url(file), f"md5:{hashlib.md5(body).hexdigest()}", len(body))
            for file, body in files.items()
        )
        monkeypatch.setitem(SOURCES, name, Source("for tests", remote, "http://owner.invalid"))

    return add


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tape:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tape.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_archive_is_unpacked_and_nothing_else_is_left(offer: Offer, tmp_path: Path) -> None:
    offer("tiny", {"tiny.tar.gz": tar({"tiny-py/batch_1": b"one", "tiny-py/meta": b"two"})})

    folder = download("tiny", tmp_path / "data")

    assert folder == tmp_path / "data" / "tiny"
    assert found(tmp_path / "data") == {"tiny/tiny-py/batch_1": b"one", "tiny/tiny-py/meta": b"two"}
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
    assert contents(folder) == folder / "tiny-py"


def test_several_files_packed_or_not_lie_side_by_side(offer: Offer, tmp_path: Path) -> None:
    offer("tiny", {"images-idx3.gz": gzip.compress(b"pixels"), "train.mat": b"matrix"})
    folder = download("tiny", tmp_path)
    assert found(tmp_path) == {"tiny/images-idx3": b"pixels", "tiny/train.mat": b"matrix"}
    assert contents(folder) == folder


def test_an_npz_file_is_ready_to_be_opened(offer: Offer, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    labels = np.repeat(np.arange(2), 4)
    np.savez(buffer, train_images=np.zeros((8, 8, 8), np.uint8), train_labels=labels)
    offer("tiny", {"tiny.npz": buffer.getvalue()})
    path = contents(download("tiny", tmp_path))
    assert path == tmp_path / "tiny" / "tiny.npz"
    assert len(open_dataset(str(path)).train) == 8


def test_a_zip_of_class_folders_is_ready_to_be_opened(offer: Offer, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name in ("Forest/a.png", "River/b.png"):
            image = io.BytesIO()
            Image.new("RGB", (8, 8), "red").save(image, "png")
            zipped.writestr(f"Photos/{name}", image.getvalue())
    offer("tiny", {"tiny.zip": buffer.getvalue()})
    assert open_dataset(str(contents(download("tiny", tmp_path)))).classes == ("Forest", "River")


def test_what_is_there_stays_as_it_is(offer: Offer, owner: Owner, tmp_path: Path) -> None:
    offer("tiny", {"a.bin": b"a"})
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "mine").write_bytes(b"mine")
    assert is_filled(tmp_path / "tiny")
    assert download("tiny", tmp_path) == tmp_path / "tiny"
    assert found(tmp_path) == {"tiny/mine": b"mine"}
    assert owner.asked == []


def test_an_empty_folder_is_filled(offer: Offer, tmp_path: Path) -> None:
    offer("tiny", {"a.bin": b"a"})
    (tmp_path / "tiny").mkdir()
    assert not is_filled(tmp_path / "tiny")
    download("tiny", tmp_path)
    assert found(tmp_path) == {"tiny/a.bin": b"a"}


def test_a_failure_leaves_no_folder_and_the_next_call_fetches_only_what_is_missing(
    offer: Offer, owner: Owner, tmp_path: Path, refused: Refused
) -> None:
    offer("tiny", {"a.bin": b"a" * 100, "b.bin": b"b"})
    del owner.files["b.bin"]
    with refused("404"):
        download("tiny", tmp_path)
    assert not (tmp_path / "tiny").exists()
    assert len(owner.asked) == 2

    owner.files["b.bin"] = b"b"
    download("tiny", tmp_path)
    assert len(owner.asked) == 3
    assert found(tmp_path) == {"tiny/a.bin": b"a" * 100, "tiny/b.bin": b"b"}


def test_an_archive_that_may_not_be_unpacked_leaves_nothing_unpacked(
    offer: Offer, tmp_path: Path, refused: Refused
) -> None:
    offer("tiny", {"a.tar.gz": tar({"good": b"good", "../evil": b"evil"})})
    with refused("outside of its folder"):
        download("tiny", tmp_path)
    assert list(found(tmp_path)) == [".tiny.download/a.tar.gz"]


def test_what_an_earlier_call_was_unpacking_is_forgotten(offer: Offer, tmp_path: Path) -> None:
    offer("tiny", {"a.tar.gz": tar({"good": b"good"})})
    (tmp_path / ".tiny.download" / "unpacked").mkdir(parents=True)
    (tmp_path / ".tiny.download" / "unpacked" / "good").write_bytes(b"go")
    download("tiny", tmp_path)
    assert found(tmp_path) == {"tiny/good": b"good"}


def test_an_unknown_name(tmp_path: Path, refused: Refused) -> None:
    with refused("'cifar-10'", "did you mean 'cifar10'?"):
        download("cifar-10", tmp_path)


@pytest.mark.parametrize("name", SOURCES)
def test_every_address_is_its_owners_and_has_a_checksum(name: str) -> None:
    source = SOURCES[name]
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert len({file.name for file in source.files}) == len(source.files) > 0
    for file in source.files:
        address = urlsplit(file.url)
        assert address.hostname in OWNERS
        assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", file.checksum)
        # without encryption, somebody on the way could craft a file with the same MD5
        assert address.scheme == "https" or file.checksum.startswith("sha256:")
        assert file.size is None or file.size > 5000
        assert "." in file.name


def test_the_size_of_a_data_set_is_that_of_all_files_or_unknown() -> None:
    assert SOURCES["svhn"].size == 246_316_178
    assert SOURCES["octmnist"].size is None
