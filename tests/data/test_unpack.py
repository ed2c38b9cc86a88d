from __future__ import annotations

import errno
import gzip
import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from epass.data.read import unpack as module
from epass.data.read.unpack import is_packed, unpack

Refused = Callable[..., AbstractContextManager[None]]
Write = Callable[[Path, dict[str, bytes]], Path]

FILES = {"images/cat.bin": b"meow", "images/dog.bin": b"", "readme.txt": b"hello"}


def write_tar(folder: Path, files: dict[str, bytes], name: str = "a.tar.gz") -> Path:
    with tarfile.open(folder / name, "w:gz" if name.endswith("gz") else "w") as tape:
        for name_inside, body in files.items():
            info = tarfile.TarInfo(name_inside)
            info.size = len(body)
            tape.addfile(info, io.BytesIO(body))
    return folder / name


def write_zip(folder: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, body in files.items():
            zipped.writestr(name, body)
    return folder / "a.zip"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "deep" / "out").mkdir(parents=True)
    return tmp_path / "deep" / "out"


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


both = pytest.mark.parametrize("write", [write_tar, write_zip])


@pytest.mark.parametrize(
    "write",
    [write_zip, *(lambda folder, files, n=n: write_tar(folder, files, n) for n in ("a.tar.gz", "a.tgz", "A.TAR"))],
)
def test_the_files_come_out(tmp_path: Path, out: Path, write: Write) -> None:
    archive = write(tmp_path, FILES)
    assert is_packed(archive)
    unpack(archive, out)
    assert found(out) == FILES


def test_the_gzip_of_one_file(tmp_path: Path, out: Path) -> None:
    archive = tmp_path / "labels-idx1-ubyte.gz"
    archive.write_bytes(gzip.compress(b"0123456789"))
    unpack(archive, out)
    assert found(out) == {"labels-idx1-ubyte": b"0123456789"}


def test_other_files_are_no_archives() -> None:
    assert not any(is_packed(Path(name)) for name in ("train_32x32.mat", "pathmnist.npz", "gz", "a.bin"))


def test_folders_come_out_whether_or_not_they_are_listed(tmp_path: Path, out: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tape:
        info = tarfile.TarInfo("empty")
        info.type = tarfile.DIRTYPE
        tape.addfile(info)
    unpack(tmp_path / "a.tar", out)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("empty/", b"")
        zipped.writestr("bare/", b"")
    unpack(tmp_path / "a.zip", out)
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["bare", "empty"]


@both
@pytest.mark.parametrize(
    "name", ["../out.bin", "/out.bin", "a/../../out.bin", "C:out.bin", "a\\..\\out.bin", "..", "."]
)
def test_nothing_is_written_outside(tmp_path: Path, out: Path, refused: Refused, write: Write, name: str) -> None:
    archive = write(tmp_path, {name: b"evil"})
    before = sorted(tmp_path.rglob("*"))
    with refused(str(archive), "outside of its folder"):
        unpack(archive, out)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_tar_with_a_link_or_device(tmp_path: Path, out: Path, refused: Refused, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tape:
        info = tarfile.TarInfo("shortcut")
        info.type, info.linkname = kind, "readme.txt"
        tape.addfile(info)
    with refused("link or device 'shortcut'"):
        unpack(tmp_path / "a.tar", out)
    assert list(out.iterdir()) == []


def test_a_zip_with_a_link(tmp_path: Path, out: Path, refused: Refused) -> None:
    info = zipfile.ZipInfo("shortcut")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr(info, "/etc/passwd")
    with refused("link or device 'shortcut'"):
        unpack(tmp_path / "a.zip", out)
    assert list(out.iterdir()) == []


@both
def test_the_sum_of_all_files_is_limited(tmp_path: Path, out: Path, refused: Refused, write: Write) -> None:
    archive = write(tmp_path, FILES)
    with refused("more than 8 bytes"):
        unpack(archive, out, most_bytes=8)
    assert sum(map(len, found(out).values())) == 9  # one too many tells

    (out.parent / "again").mkdir()
    unpack(archive, out.parent / "again", most_bytes=9)


def test_what_is_made_to_fill_the_disk_is_found_without_being_told(tmp_path: Path, out: Path, refused: Refused) -> None:
    archive = tmp_path / "bomb.gz"
    archive.write_bytes(gzip.compress(bytes(3_000_000)))
    limit = module.GROWTH * archive.stat().st_size
    with refused(f"more than {limit:,} bytes"):
        unpack(archive, out)
    assert len(found(out)["bomb"]) == limit + 1


@both
def test_the_number_of_files_is_limited(tmp_path: Path, out: Path, refused: Refused, write: Write) -> None:
    archive = write(tmp_path, FILES)
    with refused("more than 2 files"):
        unpack(archive, out, most_files=2)
    assert len(found(out)) == 2


def test_a_name_that_comes_twice(tmp_path: Path, out: Path, refused: Refused) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tape:
        for body in (b"one", b"two"):
            info = tarfile.TarInfo("readme.txt")
            info.size = 3
            tape.addfile(info, io.BytesIO(body))
    with refused("readme.txt' twice"):
        unpack(tmp_path / "a.tar", out)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip", "a.gz", "a.tar"])
def test_a_file_that_is_no_archive(tmp_path: Path, out: Path, refused: Refused, name: str) -> None:
    (tmp_path / name).write_bytes(b"this is not what its name says")
    with refused("cannot be unpacked", "it is damaged"):
        unpack(tmp_path / name, out)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.gz"])
def test_an_archive_that_is_cut_off(tmp_path: Path, out: Path, refused: Refused, name: str) -> None:
    whole = write_tar(tmp_path, {"noise": random.Random(0).randbytes(100_000)}, "whole.tar.gz").read_bytes()
    (tmp_path / name).write_bytes(whole[:50_000])
    with refused("cannot be unpacked"):
        unpack(tmp_path / name, out)


def test_a_full_disk(tmp_path: Path, out: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_copy", full)
    with refused(f"The disk that holds '{out}' is full"):
        unpack(write_tar(tmp_path, FILES), out)
