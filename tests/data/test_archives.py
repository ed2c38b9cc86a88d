from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass.data import open_dataset
from epass.data.read import archives

Make = Callable[..., str]
KINDS = ["zip", "tar", "tar.gz"]


def png(level: int, size: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (size, size), level).save(stream, "png")
    return stream.getvalue()


NAMES = ["labeled/wren/x.png", "labeled/crow/b.png", "test/crow/t.png", "unlabeled/2.png", "labeled/crow/A.PNG"]
FILES = {name: png(level) for level, name in enumerate(NAMES)}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """`make({name: bytes})` writes an archive of every kind and says where."""

    def write(files: dict[str, bytes]) -> str:
        path = tmp_path / f"birds.{request.param}"
        if request.param == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
                for name, data in files.items():
                    packed.writestr(name, data)
        else:
            with tarfile.open(path, "w:gz" if request.param.endswith("gz") else "w") as tar:
                for name, data in files.items():
                    add(tar, name, data)
        return str(path)

    return write


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes | None = None) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind or (tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE)
    info.linkname = "labeled/crow/b.png"
    tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("top", ["", "./", "birds/", "deep/birds/"])
def test_an_archive_is_read_like_its_folder(make: Make, tmp_path: Path, top: str) -> None:
    litter = {f"{top}README.txt": b"no image"} if "/" in top.removeprefix("./") else {}
    made = open_dataset(make({f"{top}{name}": data for name, data in FILES.items()} | litter))
    assert (made.name, made.classes) == ("birds", ("crow", "wren"))
    assert made.train.pixels[:, 0, 0, 0].tolist() == [4, 1, 0, 3]  # in the order of the paths, not of the archive
    assert made.train.labels.tolist() == [0, 0, 1, -1]
    assert made.test is not None
    assert made.test.pixels[:, 0, 0, 0].tolist() == [2]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []  # nothing was unpacked


def test_folders_of_their_own_and_side_files_change_nothing(make: Make) -> None:
    extra = {"birds/": b"", "birds/labeled/": b"", "__MACOSX/birds/._x.png": b"?", "birds/labeled/crow/.DS_Store": b""}
    made = open_dataset(make(extra | {f"birds/{name}": data for name, data in FILES.items()}))
    assert made.train.labels.tolist() == [0, 0, 1, -1]


def test_mistakes_of_layout_are_named_with_the_archive(make: Make, refused) -> None:
    with refused("birds.", "single class 'cat'"):
        open_dataset(make({"cat/1.png": png(0), "cat/2.png": png(0)}))
    with refused("/labeled/stray.png' lies outside of the class folders"):
        open_dataset(make(FILES | {"labeled/stray.png": png(0)}))
    with refused("holds no class"):
        open_dataset(make({}))
    with refused("labeled/crow/bad.png' cannot be read (not an image)", "replace or remove"):
        open_dataset(make(FILES | {"labeled/crow/bad.png": b"no image"}))


@pytest.mark.parametrize("name", ["/labeled/crow/1.png", "../1.png", "labeled/../../1.png", "labeled/crow/../x/1.png"])
def test_members_that_lead_out_are_refused(make: Make, refused, name: str) -> None:
    with refused(f"'{name}' in ", "leads out of it"):
        open_dataset(make(FILES | {name: png(0)}))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(refused, tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "labeled/crow/c.png", kind=kind)
    with refused("'labeled/crow/c.png' in ", "is a link or a device"):
        open_dataset(str(tmp_path / "a.tar"))


def test_links_and_passwords_in_a_zip_are_refused(refused, tmp_path: Path) -> None:
    path = tmp_path / "a.ZIP"
    with zipfile.ZipFile(path, "w") as packed:
        info = zipfile.ZipInfo("a/link.png")
        info.external_attr = 0o120777 << 16
        packed.writestr(info, "/etc/passwd")
    with refused("'a/link.png' in ", "is a link"):
        open_dataset(str(path))
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a/1.png", png(0))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1  # the flag of an encrypted member, in the directory
    path.write_bytes(data)
    with refused("'a/1.png' in ", "is encrypted", "without a password"):
        open_dataset(str(path))


def test_backslashes_of_windows_are_folders(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for name in ("cat\\1.png", "dog\\1.png"):
            info = zipfile.ZipInfo()
            info.filename = name
            packed.writestr(info, png(0))
    assert open_dataset(str(tmp_path / "a.zip")).classes == ("cat", "dog")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_for_two_things_is_refused(refused, tmp_path: Path) -> None:
    for names, reason in {("a/1.png", "a/1.png"): "is there twice", ("a", "a/1.png"): "is a file and a folder"}.items():
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
            for name in names:
                packed.writestr(name, png(0))
        with refused(f"'{names[-1]}' in ", reason):
            open_dataset(str(tmp_path / "a.zip"))


def test_members_larger_than_any_image_are_refused(make: Make, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_MEMBER", 10_000)
    with refused("'labeled/crow/bomb.png' in ", "10,001 bytes", "10,000"):
        open_dataset(make(FILES | {"labeled/crow/bomb.png": bytes(10_001)}))


def test_images_of_too_many_pixels_are_refused(make: Make, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)  # Pillow itself refuses 6000
    with refused("bomb.png' cannot be read (64 x 64 pixels are more than the 3,000"):
        open_dataset(make(FILES | {"labeled/crow/bomb.png": png(0, size=64)}))


def test_a_header_that_claims_to_be_huge_is_not_read(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_MEMBER", 100_000)
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 200_000
    with gzip.open(tmp_path / "a.tgz", "wb") as packed:
        packed.write(info.tobuf() + bytes(300_000))
    with refused("a.tgz' cannot be read as an archive", "asks for 200192 bytes"):
        open_dataset(str(tmp_path / "a.tgz"))


def test_damaged_archives_are_named(make: Make, refused) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "png")
    path = Path(make(FILES | {"labeled/wren/large.png": stream.getvalue()}))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with refused(f"'{path}' cannot be read as an archive", "make or download it again"):
        open_dataset(str(path))
    path.write_bytes(b"")
    with refused(str(path)):
        open_dataset(str(path))


def zipped(folder: Path) -> Path:
    """The files as they are, in an archive that is about to be damaged."""
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, data in FILES.items():
            packed.writestr(name, data)
    return path


def test_a_damaged_member_is_found(refused, tmp_path: Path) -> None:
    path = zipped(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"IDAT") + 8] ^= 1
    path.write_bytes(data)
    with refused("cannot be read (Bad CRC-32"):
        open_dataset(str(path))


def test_an_archive_whose_directory_leads_nowhere_is_named(refused, tmp_path: Path) -> None:
    path = zipped(tmp_path)
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06") + 16
    data[end : end + 4] = (int.from_bytes(data[end : end + 4], "little") + 40).to_bytes(4, "little")
    path.write_bytes(data)
    with refused("a.zip' cannot be read as an archive"):
        open_dataset(str(path))


def test_a_member_in_a_packing_that_breaks_off(refused, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as packed:
        for name, data in FILES.items():
            packed.writestr(name, data)
    data = bytearray(path.read_bytes())
    start = 30 + len(next(iter(FILES)))  # behind the header of the first member
    data[start + 9 : start + 30] = b"\xff" * 21
    path.write_bytes(data)
    with refused("cannot be read (Corrupt input data)"):
        open_dataset(str(path))


def test_an_archive_that_changes_meanwhile_is_refused(make: Make, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(FILES)
    listed = archives.list_archive(Path(path))
    make({name: data for name, data in FILES.items() if "wren" not in name})
    monkeypatch.setattr("epass.data.opening.list_archive", lambda path: listed)
    with refused("changed while it was read"):
        open_dataset(path)


def test_folders_in_an_archive_take_no_memory(make: Make) -> None:
    names = [f"{kind}/{number}/{'d/' * 90}1.png" for kind in ("crow", "wren") for number in range(100)]
    path = Path(make(dict.fromkeys(names, png(0))))
    tracemalloc.start()
    listing = archives.list_archive(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [str(file) for file in listing.train] == sorted(f"{path}/{name}" for name in names)
    assert listing.labels == [0] * 100 + [1] * 100
    assert most < 3_000_000  # 18,000 folders, each kept with the way to it, would be five times that


def test_the_archive_is_not_looked_at_for_every_member(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(Path, "stat", lambda path, stat=Path.stat, **how: looked.append(path) or stat(path, **how))
    counts = []
    for number in (1, 20):
        path = make({f"{name}/{each}.png": png(each) for name in ("crow", "wren") for each in range(number)})
        looked.clear()
        assert len(open_dataset(path, image_size=8).train) == 2 * number
        counts.append(looked.count(Path(path)))
    assert counts[0] == counts[1] > 0
