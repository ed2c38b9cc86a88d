"""Archives of strangers: what leaves its folder, blows up, lies or never ends."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hostile_files import png, special, tarred, zip_bomb, zipped
from hostile_world import World

from epass.data.read.archives import FEW
from epass.data.read.unpack import unpack
from epass.errors import InputError

GOOD = {"photos/cat/1.png": png(10, 10), "photos/dog/1.png": png(11, 11)}
OUT = ["../treasure/diary.txt", "/tmp/epass-hostile.png", "cat/../../treasure/x.png", "..", "cat\0/x.png"]


@pytest.mark.parametrize("name", [*OUT, "..\\treasure\\x.png", "\x1b[2J\n/../x.png"])
def test_a_member_that_leads_out(world: World, name: str) -> None:
    if "\0" not in name:  # Python's writer ends the name there
        zipped(world.home / "x.zip", GOOD | {name: png()})
        world.refused("check", "x.zip", words="leads out of it")
    tarred(world.home / "x.tar", *GOOD.items(), (name, png()))
    if "\\" not in name and "\0" not in name:  # which are parts of names here
        world.refused("check", "x.tar", words="leads out of it")
    assert not Path("/tmp/epass-hostile.png").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE], ids=repr
)
@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_links_and_devices(world: World, kind: bytes, ending: str) -> None:
    path = world.home / f"x{ending}"
    hostile = special("photos/cat/2.png", kind, "../../../treasure/diary.txt")
    tarred(path, *GOOD.items(), hostile, mode="w:gz" if ending == ".tar.gz" else "w")
    world.refused("check", path.name, words="is a link or a device")
    target = world.home / "unpacked"
    target.mkdir()
    with pytest.raises(InputError, match="link or device"):
        unpack(path, target)


def test_a_link_that_a_later_member_is_written_through(world: World) -> None:
    link = special("photos/out", tarfile.SYMTYPE, "../../treasure")
    path = tarred(world.home / "x.tar", link, ("photos/out/diary.txt", b"mine"))
    world.refused("check", "x.tar", words="is a link")
    target = world.home / "unpacked"
    target.mkdir()
    with pytest.raises(InputError, match="link or device"):
        unpack(path, target)
    assert (world.path / "treasure" / "diary.txt").read_text() == "dear diary\n"


def test_a_zip_bomb(world: World) -> None:
    zip_bomb(world.home / "x.zip", "cat/1.png", 2**30)
    world.refused("check", "x.zip", words="more than the 536,870,912 of any image")


def test_a_bomb_of_many_members(world: World) -> None:
    with zipfile.ZipFile(world.home / "x.zip", "w") as archive:
        for number in range(20):
            archive.writestr(f"cat/{number}.png", b"")
            archive.filelist[-1].file_size = 2**24
    world.refused("check", "x.zip", words="holds far more than a file of")
    packed, parts = gzip.compress(bytes(2**24)), []
    for number in range(20):
        info = tarfile.TarInfo(f"cat/{number}.png")
        info.size = 2**24
        parts += [gzip.compress(info.tobuf()), packed]
    (world.home / "x.tar.gz").write_bytes(b"".join(parts))
    world.refused("check", "x.tar.gz", words="holds far more than a file of")


def test_a_bomb_inside_of_an_archive_is_not_opened(world: World) -> None:
    inner = zip_bomb(world.home / "inner.zip", "cat/1.png", 2**28).read_bytes()
    zipped(world.home / "x.zip", GOOD | {"photos/cat/inner.zip": inner, "photos/cat/inner.png": inner})
    world.refused("train", "x.zip", words=r"inner.png' cannot be read \(not an image\)")


def test_more_members_than_their_bytes_can_be(world: World) -> None:
    folder = tarfile.TarInfo("a")
    folder.type = tarfile.DIRTYPE  # which may come again
    (world.home / "x.tar.gz").write_bytes(gzip.compress(folder.tobuf() * (2 * FEW)))
    world.refused("check", "x.tar.gz", words="holds far more than a file of")


@pytest.mark.parametrize("levels", [1_000, 20_000])
def test_folders_in_folders_without_an_end(world: World, levels: int) -> None:
    zipped(world.home / "x.zip", GOOD | {"photos/cat/" + "d/" * levels + "1.png": png()})
    tarred(world.home / "x.tar", *GOOD.items(), ("photos/cat/" + "d/" * levels + "1.png", png()))
    for name in ("x.zip", "x.tar"):
        world.refused("check", name, words="lies more than 100 folders deep")


def test_two_members_of_one_name_or_place(world: World) -> None:
    zipped(world.home / "x.zip", GOOD)
    with zipfile.ZipFile(world.home / "x.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("photos/cat/1.png", b"other")
    world.refused("check", "x.zip", words="is there twice")
    data = bytearray(zipped(world.home / "y.zip", GOOD).read_bytes())
    directory = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", directory + 4)
    data[second + 42 : second + 46] = data[directory + 42 : directory + 46]  # both begin in the same place
    (world.home / "y.zip").write_bytes(data)
    world.refused("train", "y.zip", words="cannot be read")
    world.refused("check", "y.zip", words="None of the labeled images of class 'dog'")


@pytest.mark.parametrize("size", [2**31, 1, 0])
def test_a_member_that_lies_about_its_size(world: World, size: int) -> None:
    data = bytearray(zipped(world.home / "x.zip", GOOD, zipfile.ZIP_DEFLATED).read_bytes())
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", size)
    (world.home / "x.zip").write_bytes(data)
    world.refused("train", "x.zip", words="cannot be read|any image")


def test_an_encrypted_or_unknown_member(world: World) -> None:
    for offset, value, words in ((8, 1, "is encrypted"), (10, 77, "cannot be read .That compression method")):
        data = bytearray(zipped(world.home / "x.zip", GOOD).read_bytes())
        for start in (data.index(b"PK\x01\x02") + offset, data.index(b"PK\x03\x04") + offset - 2):
            data[start] = value
        (world.home / "x.zip").write_bytes(data)
        world.refused("train", "x.zip", words=words)
        target = world.home / f"unpacked{value}"
        target.mkdir()
        with pytest.raises(InputError, match="cannot be unpacked"):
            unpack(world.home / "x.zip", target)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE], ids=repr)
@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_a_header_that_claims_to_be_huge(world: World, kind: bytes, ending: str) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 7 * 2**30
    data = info.tobuf() + bytes(1024)
    (world.home / f"x{ending}").write_bytes(gzip.compress(data) if ending == ".tar.gz" else data)
    world.refused("check", f"x{ending}", words="cannot be read as an archive")


def test_numbers_in_headers_that_are_none(world: World) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("photos/cat/1.png")
        info.pax_headers = {"size": "-5", "mtime": "nan", "GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        archive.addfile(info)
    (world.home / "x.tar").write_bytes(buffer.getvalue())
    world.refused("check", "x.tar")


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz", "x.tgz"])
@pytest.mark.parametrize("content", ["pickle", "nothing", "half"])
def test_what_is_no_archive(world: World, name: str, content: str) -> None:
    whole = zipped(world.home / "w.zip", GOOD) if name == "x.zip" else tarred(world.home / "w.tar", *GOOD.items())
    half = whole.read_bytes()[: whole.stat().st_size // 20]
    data = {"pickle": world.bomb, "nothing": b"", "half": half if "gz" not in name else gzip.compress(half)[:-9]}
    (world.home / name).write_bytes(data[content])
    world.refused("check", name, words="cannot be read as an archive")
