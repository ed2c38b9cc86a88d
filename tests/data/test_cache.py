from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from epass.data import Dataset, open_dataset
from epass.data.read import cache
from epass.data.read.cache import cache_folder
from epass.data.read.decode import decode


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for level, name in enumerate(["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), level).save(root / name)
    return root


@pytest.fixture
def folder() -> Path:
    found = cache_folder()
    assert found is not None
    return found


class Reader:
    """Opens a data set, counts what is decoded and keeps what is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.decoded = 0

        def count(image: Path, size: int) -> torch.Tensor:
            self.decoded += 1
            return decode(image, size)

        monkeypatch.setattr("epass.data.read.decode.decode", count)

    def __call__(self, path: Path, **settings: int) -> tuple[Dataset, int]:
        self.decoded = 0
        made = open_dataset(str(path), notice=self.said.append, **settings)
        return made, self.decoded


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


def test_the_second_reading_decodes_nothing_and_says_so(read: Reader, photos: Path) -> None:
    first, decoded = read(photos)
    assert (decoded, read.said) == (4, [])
    second, decoded = read(photos)
    assert decoded == 0
    assert torch.equal(first.train.pixels, second.train.pixels)
    assert torch.equal(first.train.labels, second.train.labels)
    assert (first.mean, first.classes) == (second.mean, second.classes)
    assert len(read.said) == 1
    assert read.said[0].startswith("Read 4 images from the cache in 0.")
    assert read.said[0].endswith(" s.")


def test_the_same_folder_by_another_path_is_the_same(
    read: Reader, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(photos)
    monkeypatch.chdir(photos)
    assert read(Path("."))[1] == 0
    monkeypatch.chdir(photos.parent)
    assert read(Path("photos"))[1] == 0


def test_archives_and_tables_are_cached_too(read: Reader, photos: Path) -> None:
    archive = Path(shutil.make_archive(str(photos.parent / "photos"), "zip", photos))
    table = photos / "t.csv"
    table.write_text("path,label\ncat/1.png,a\ndog/1.png,b\n")
    assert [read(archive)[1], read(archive)[1]] == [4, 0]
    assert [read(table)[1], read(table)[1]] == [2, 0]
    table.write_text("path,label\ncat/1.png,y\ndog/1.png,x\n")  # labels may change without decoding again
    made, decoded = read(table)
    assert (decoded, made.classes, made.train.labels.tolist()) == (0, ("x", "y"), [1, 0])
    table.write_text("path,label\ndog/1.png,y\ncat/1.png,x\n")
    made, decoded = read(table)
    assert (decoded, made.train.pixels[:, 0, 0, 0].tolist()) == (2, [2, 0])
    Image.new("L", (8, 8), 88).save(photos / "dog/2.png")
    shutil.make_archive(str(photos.parent / "photos"), "zip", photos)
    made, decoded = read(archive)
    assert (decoded, made.train.pixels[-1, 0, 0, 0].item()) == (4, 88)


def test_a_changed_file_is_seen(read: Reader, photos: Path) -> None:
    read(photos)
    changed = photos / "dog/2.png"
    before = changed.stat()
    data = bytearray(changed.read_bytes())
    time.sleep(0.02)  # the clock of some file systems ticks only every few milliseconds
    Image.new("L", (8, 8), 77).save(changed)
    changed.write_bytes(changed.read_bytes().ljust(len(data), b"\0"))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copying program would
    made, decoded = read(photos)
    assert decoded == 4
    assert made.train.pixels[-1, 0, 0, 0] == 77


def test_names_sizes_and_the_decoder_are_in_the_key(
    read: Reader, photos: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(photos)
    (photos / "dog/2.png").rename(photos / "dog/3.png")
    assert read(photos)[1] == 4
    assert len(list(folder.iterdir())) == 1  # the older entry is gone
    assert read(photos, image_size=16)[1] == 4
    assert len(list(folder.iterdir())) == 2  # another size is another entry
    assert (read(photos)[1], read(photos, image_size=16)[1]) == (0, 0)
    monkeypatch.setattr(cache, "DECODER", cache.DECODER + 1)
    assert read(photos)[1] == 4
    monkeypatch.setattr("PIL.__version__", "99")
    assert read(photos)[1] == 4


@pytest.mark.parametrize("damage", ["flipped", "short", "cut in half", "empty", "no array", "another", "pickled"])
def test_a_damaged_entry_is_decoded_again_and_replaced(read: Reader, photos: Path, folder: Path, damage: str) -> None:
    expected = read(photos)[0].train.pixels.clone()
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    position = len(data) // 2
    entry.write_bytes(
        {
            "flipped": data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
            "short": data[:-1],
            "cut in half": data[:position],
            "empty": b"",
            "no array": b"nothing to see here",
            "another": data.replace(b"(4, 3, 32, 32)", b"(2, 6, 32, 32)"),
            "pickled": b"",
        }[damage]
    )
    if damage == "pickled":
        np.save(entry, np.array([object()]), allow_pickle=True)
    made, decoded = read(photos)
    assert decoded == 4
    assert torch.equal(made.train.pixels, expected)
    assert read(photos)[1] == 0


def test_the_bytes_of_another_entry_do_not_pass(read: Reader, photos: Path, folder: Path) -> None:
    read(photos)
    (other,) = folder.iterdir()
    data = other.read_bytes()
    Image.new("L", (8, 8), 99).save(photos / "dog/2.png")
    (photos / "dog/2.png").rename(photos / "dog/3.png")
    read(photos)
    (entry,) = folder.iterdir()
    entry.write_bytes(data)
    made, decoded = read(photos)
    assert (decoded, made.train.pixels[-1, 0, 0, 0].item()) == (4, 99)


def test_writing_to_the_pixels_changes_nothing_on_disk(read: Reader, photos: Path) -> None:
    read(photos)
    made, _ = read(photos)
    made.train.pixels.fill_(200)
    made, decoded = read(photos)
    assert (decoded, made.train.pixels[:, 0, 0, 0].tolist()) == (0, [0, 1, 2, 3])


def test_only_the_owner_may_look_into_a_new_cache(
    read: Reader, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "deep/cache"))
    read(photos)
    (entry,) = (tmp_path / "deep/cache").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (entry.parent, entry)] == [0o700, 0o600]


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for chosen, xdg, expected in [
        ("~/mine", "/xdg", tmp_path / "mine"),
        ("", "/xdg", Path("/xdg/epass")),
        ("", "relative", tmp_path / ".cache/epass"),
        ("", "", tmp_path / ".cache/epass"),
        ("off", "/xdg", None),
    ]:
        monkeypatch.setenv("EPASS_CACHE", chosen)
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache_folder() == expected


def test_who_has_no_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "EPASS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 3)  # as in a container, whose user is a number only
    assert cache_folder() is None


def test_the_cache_can_be_off(read: Reader, photos: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")
    assert [read(photos)[1], read(photos)[1]] == [4, 4]
    assert list(folder.iterdir()) == []


def test_a_full_disk_costs_a_sentence_and_no_more(
    read: Reader, photos: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.warns(UserWarning, match="cannot be kept in .*No space left on device.*EPASS_CACHE") as caught:
        made, decoded = read(photos)
    assert (len(caught), decoded, len(made.train)) == (1, 4, 4)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_the_writing_itself_may_fail(read: Reader, photos: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(folder / "none")))
    with pytest.warns(UserWarning, match="No space left on device"):
        assert read(photos)[1] == 4


def test_a_cache_that_is_no_folder(read: Reader, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be kept in .*file' \\(File exists\\)"):
        assert read(photos)[1] == 4


def test_what_nobody_uses_is_removed(read: Reader, photos: Path, folder: Path) -> None:
    day = 24 * 3600
    read(photos, image_size=16)
    for name, days in {"used.npy": 29, "unused.npy": 31, "other.txt": 99}.items():
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (0, time.time() - days * day))
    (entry,) = (path for path in folder.glob("*.npy") if path.stat().st_size)
    os.utime(entry, (0, time.time() - 29 * day))
    read(photos, image_size=16)  # to use it is to keep it
    assert time.time() - entry.stat().st_mtime < day
    read(photos)
    assert {path.name for path in folder.iterdir()} >= {"used.npy", "other.txt", entry.name}
    assert not (folder / "unused.npy").exists()


CHILD = """
import sys, time
from pathlib import Path
from epass.data import open_dataset
from epass.data.read import cache
path, how = sys.argv[1:]
if how == "stop":  # everything is written, but not yet renamed
    def stop(*_):
        print("writing", flush=True)
        time.sleep(600)
    Path.replace = stop
print("ready", flush=True)
sys.stdin.readline()
for _ in range(1 if how == "stop" else 20):
    made = open_dataset(path)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    if how == "again":
        for entry in cache.cache_folder().glob("*.npy"):
            entry.unlink(missing_ok=True)
"""


def start(photos: Path, how: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-W", "error", "-c", CHILD, str(photos), how]
    child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n", child.communicate()[1]
    return child


def test_a_killed_writer_leaves_nothing_that_counts(read: Reader, photos: Path, folder: Path) -> None:
    child = start(photos, "stop")
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "writing\n"
    (partial,) = folder.iterdir()
    assert partial.name.endswith(".part")
    assert read(photos)[1] == 4  # half an entry is none, and a writer that lives keeps its file
    assert partial.exists()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert read(photos, image_size=16)[1] == 4
    assert [path.name for path in folder.iterdir() if path.suffix != ".npy"] == []
    assert read(photos)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["once", "again"])
def test_two_processes_at_once(read: Reader, photos: Path, folder: Path, how: str) -> None:
    children = [start(photos, how) for _ in range(2)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        _, problems = child.communicate(timeout=600)
        assert (child.returncode, problems) == (0, "")
    assert [path.name for path in folder.iterdir() if path.suffix != ".npy"] == []
    if how == "once":
        assert read(photos)[1] == 0
