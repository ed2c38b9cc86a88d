from __future__ import annotations

import errno
import hashlib
import random
import socket
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from epass.data.read import fetch as engine
from epass.data.read.fetch import ATTEMPTS, RemoteFile, fetch
from owner import Owner, serving

BODY = random.Random(0).randbytes(700_000)  # more than two reads
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"

Refused = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        server.files["data.bin"] = BODY
        yield server


class Pauses(list[float]):
    """Records the waiting instead of doing it."""

    __call__ = list.append


def remote(owner: Owner, size: int | None = len(BODY), checksum: str = MD5) -> RemoteFile:
    return RemoteFile(owner.url("data.bin"), checksum, size)


def get(owner: Owner, folder: Path, **facts: Any) -> Path:
    return fetch(remote(owner, **facts), folder, pause=Pauses())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("says_length", [True, False])
@pytest.mark.parametrize("size", [len(BODY), None])
def test_a_file_arrives(owner: Owner, tmp_path: Path, says_length: bool, size: int | None) -> None:
    owner.says_length = says_length
    seen: list[tuple[str, int, int | None]] = []

    path = fetch(remote(owner, size), tmp_path, lambda *facts: seen.append(facts))

    assert path == tmp_path / "data.bin"
    assert path.read_bytes() == BODY
    assert names(tmp_path) == ["data.bin"]
    total = len(BODY) if says_length or size else None
    assert seen[0] == ("data.bin", 0, total)
    assert seen[-1] == ("data.bin", len(BODY), total)
    assert len(seen) > 3


def test_the_name_is_that_of_the_address_without_its_query() -> None:
    assert RemoteFile("https://a.org/b/c.npz?download=1", MD5).name == "c.npz"


def test_sha256_is_known_too(owner: Owner, tmp_path: Path) -> None:
    get(owner, tmp_path, checksum=f"sha256:{hashlib.sha256(BODY).hexdigest()}")


def test_a_complete_file_is_not_asked_for_again(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(BODY)
    get(owner, tmp_path)
    assert owner.asked == []


def test_a_wrong_file_of_that_name_is_replaced(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(BODY[:-1])
    assert get(owner, tmp_path).read_bytes() == BODY


def test_a_wrong_file_of_that_name_does_not_outlive_a_failure(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "data.bin").write_bytes(BODY[:-1])
    owner.files.clear()
    with refused("404"):
        get(owner, tmp_path)
    assert names(tmp_path) == []


def test_what_has_arrived_completely_is_not_asked_for_again(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY)
    get(owner, tmp_path)
    assert owner.asked == []
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("says_length", [True, False])
def test_what_breaks_off_is_continued_where_it_broke_off(owner: Owner, tmp_path: Path, says_length: bool) -> None:
    owner.says_length = says_length
    owner.break_offs = [300_000, 100]
    pauses = Pauses()

    path = fetch(remote(owner), tmp_path, pause=pauses)

    assert path.read_bytes() == BODY
    assert owner.asked == [None, "bytes=300000-", "bytes=300100-"]
    assert pauses == [1.0, 2.0]


def test_the_part_is_kept_for_the_next_call(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    owner.break_offs = [100_000] + [0] * (ATTEMPTS - 1)

    with refused(f"could not be downloaded in {ATTEMPTS} attempts", "the first 100,000 bytes are kept", "broke off"):
        get(owner, tmp_path)
    assert names(tmp_path) == ["data.bin.part"]
    assert len(owner.asked) == ATTEMPTS

    assert get(owner, tmp_path).read_bytes() == BODY
    assert owner.asked[-1] == "bytes=100000-"


def test_a_server_shows_by_what_it_does_that_it_can_continue(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    owner.says_ranges = False
    owner.break_offs = [0] * ATTEMPTS
    (tmp_path / "data.bin.part").write_bytes(BODY[:1000])
    with refused("the first 1,000 bytes are kept"):
        get(owner, tmp_path)


def test_a_server_that_falls_silent_in_the_middle(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SECONDS", 0.2)
    owner.break_offs, owner.silence = [engine.CHUNK], Event()
    try:
        assert get(owner, tmp_path).read_bytes() == BODY
    finally:
        owner.silence.set()
    assert owner.asked == [None, f"bytes={engine.CHUNK}-"]


def test_a_server_without_ranges_starts_anew_and_nothing_is_kept(
    owner: Owner, tmp_path: Path, refused: Refused
) -> None:
    owner.ranges = False
    owner.break_offs = [300_000]
    (tmp_path / "data.bin.part").write_bytes(b"from a better server")

    assert get(owner, tmp_path).read_bytes() == BODY
    assert owner.asked == ["bytes=20-", None]

    (tmp_path / "data.bin").unlink()
    owner.break_offs = [300_000] * ATTEMPTS
    with refused("broke off after 300,000 of 700,000 bytes", "the same command tries again"):
        get(owner, tmp_path)
    assert names(tmp_path) == []


def test_another_part_than_the_one_asked_for_is_not_taken(owner: Owner, tmp_path: Path) -> None:
    owner.shifted = True
    (tmp_path / "data.bin.part").write_bytes(BODY[:1000])
    assert get(owner, tmp_path).read_bytes() == BODY
    assert owner.asked == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [len(BODY), None])
@pytest.mark.parametrize("part", [BODY + b"more", BODY, b"\0" * len(BODY), b"\0" * 1000])
def test_a_part_that_does_not_fit_is_given_up(owner: Owner, tmp_path: Path, part: bytes, size: int | None) -> None:
    (tmp_path / "data.bin.part").write_bytes(part)
    assert get(owner, tmp_path, size=size).read_bytes() == BODY
    assert names(tmp_path) == ["data.bin"]


def test_wrong_bytes(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    owner.files["data.bin"] = BODY[:-1] + b"?"
    with refused("has the checksum md5:", f"not {MD5}"):
        get(owner, tmp_path)
    assert names(tmp_path) == []
    assert len(owner.asked) == 1


def test_a_wrong_size_is_found_before_the_first_byte(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY[:1000])
    owner.files["data.bin"] = b"<html>Please log in"
    owner.ranges = False
    with refused("has 19 bytes, not 700,000"):
        get(owner, tmp_path)
    assert (tmp_path / "data.bin.part").read_bytes() == BODY[:1000]  # of use once this network lets us through


@pytest.mark.parametrize("code", [404, 403])
def test_a_file_that_is_gone(owner: Owner, tmp_path: Path, refused: Refused, code: int) -> None:
    owner.codes = [code] * ATTEMPTS
    with refused(f"The server answered {code} ", owner.url("data.bin")):
        get(owner, tmp_path)
    assert len(owner.asked) == 1
    assert names(tmp_path) == []


def test_a_server_that_is_busy_is_asked_again(owner: Owner, tmp_path: Path, refused: Refused) -> None:
    owner.codes = [503, 429]
    assert get(owner, tmp_path).read_bytes() == BODY

    (tmp_path / "data.bin").rename(tmp_path / "data.bin.part")
    (tmp_path / "data.bin.part").write_bytes(BODY[:10])
    owner.codes = [503] * ATTEMPTS
    with refused("the server answered 503", "the first 10 bytes are kept"):
        get(owner, tmp_path)


def test_nobody_listens(tmp_path: Path, refused: Refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # a port without a server
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/data.bin"
        with patch.dict("os.environ", {"no_proxy": "*"}), refused("'127.0.0.1' cannot be reached: Connection refused"):
            fetch(RemoteFile(url, MD5), tmp_path, pause=Pauses())


def test_no_network(owner: Owner, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    file = RemoteFile("http://owner.invalid/data.bin", MD5)
    with refused("The server 'owner.invalid' cannot be found (Temporary failure in", "check the network connection"):
        fetch(file, tmp_path, pause=Pauses())


def test_a_silent_server(owner: Owner, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        file = RemoteFile(f"http://127.0.0.1:{mute.getsockname()[1]}/data.bin", MD5)
        with refused("could not be downloaded", "timed out"):
            fetch(file, tmp_path, pause=Pauses())


def test_too_little_room_is_found_before_the_first_byte(
    owner: Owner, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    (tmp_path / "data.bin.part").write_bytes(BODY[:1000])
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda _: usage(len(BODY) - 1001))
    with refused("has 698,999 bytes left of the 699,000", "--to"):
        get(owner, tmp_path)
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda _: usage(len(BODY) - 1000))
    get(owner, tmp_path)


def test_a_disk_that_fills_up_keeps_the_part(
    owner: Owner, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine.os, "fsync", full)
    with refused(f"The disk that holds '{tmp_path}' is full"):
        get(owner, tmp_path)
    assert names(tmp_path) == ["data.bin.part"]


def test_another_complaint_of_the_disk_is_passed_on(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.bin.part").mkdir()
    with pytest.raises(IsADirectoryError):
        get(owner, tmp_path)
