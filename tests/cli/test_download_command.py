from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Epass
from rich.console import Console

from epass.cli.progress import downloading
from epass.data.read.download import SOURCES, RemoteFile, Source
from owner import Owner, serving

BODY = b"pixels" * 1000


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        server.files["tiny.bin"] = BODY
        file = RemoteFile(server.url("tiny.bin"), f"md5:{hashlib.md5(BODY).hexdigest()}", len(BODY))
        monkeypatch.setitem(SOURCES, "tiny", Source("for tests", (file,), "http://owner.invalid", "none at all"))
        yield server


def test_without_a_name_it_lists_what_there_is(epass: Epass) -> None:
    answer = epass("download")
    assert answer.code == 0
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line}
    assert SOURCES.keys() <= lines.keys()
    assert "246.3 MB" in lines["svhn"]
    assert "non-commercial use only" in lines["svhn"]
    assert "see the owner's page" in lines["cifar10"]
    assert "unknown" in lines["octmnist"]


def test_a_download_says_where_the_files_are(epass: Epass, owner: Owner, tmp_path: Path) -> None:
    answer = epass("download", "tiny")
    assert answer.code == 0, answer.err
    assert (tmp_path / "data/tiny/tiny.bin").read_bytes() == BODY
    for line in ("tiny.bin  6.0 kB", "files    data/tiny/tiny.bin", "license  none at all", "http://owner.invalid"):
        assert line in answer.out


def test_a_second_download_asks_for_nothing(epass: Epass, owner: Owner, tmp_path: Path) -> None:
    assert epass("download", "tiny", "--to", tmp_path / "elsewhere").code == 0
    answer = epass("download", "tiny", "--to", tmp_path / "elsewhere")
    assert answer.code == 0
    assert f"tiny was there already: remove '{tmp_path}/elsewhere/tiny'" in answer.out
    assert len(owner.asked) == 1


def test_a_mistake_is_one_sentence(epass: Epass, owner: Owner, tmp_path: Path) -> None:
    answer = epass("download", "tinny")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "Error: Unknown data set to download 'tinny': did you mean 'tiny'?\n"

    owner.files.clear()
    answer = epass("download", "tiny")
    assert answer.code == 2
    assert answer.err.startswith("Error: The server answered 404 ")
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "data/tiny").exists()


def test_a_terminal_shows_a_bar_per_file() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with downloading(console) as progress:
        progress("first.gz", 0, 2_000_000)
        progress("first.gz", 2_000_000, 2_000_000)
        progress("second.gz", 500_000, 3_000_000)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue()
    for words in ("first.gz", "2.0/2.0 MB", "second.gz", "0.5/3.0 MB"):
        assert words in last
