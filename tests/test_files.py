from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from epass.errors import InputError
from epass.files import check_folder, check_writable, from_home, write_atomically


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_path_may_begin_at_the_home_folder_or_be_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (from_home("~"), from_home("~/a b")) == (tmp_path, tmp_path / "a b")
    for name in ("~nobody has this name/photos", "~$photo.jpg", "photos~", ""):
        assert from_home(name) == from_home(Path(name)) == Path(name)


@pytest.mark.parametrize("data", [b"", b"new", bytes(range(256)) * 1000])
def test_a_file_is_made_and_replaced(tmp_path: Path, data: bytes) -> None:
    write_atomically(tmp_path / "file", b"something old and long")
    write_atomically(tmp_path / "file", data)
    assert contents(tmp_path) == {"file": data}


def test_whoever_reads_meanwhile_sees_the_old_file_until_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "file", b"old")
    seen: list[bytes] = []
    fsync, replace = os.fsync, Path.replace

    def watch_fsync(number: int) -> None:
        seen.append((tmp_path / "file").read_bytes())
        fsync(number)

    def watch_replace(path: Path, target: Path) -> Path:
        assert path.parent == target.parent  # another folder may be another disk, where a rename is a copy
        assert path.read_bytes() == b"new"
        seen.append((tmp_path / "file").read_bytes())
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(Path, "replace", watch_replace)
    write_atomically(tmp_path / "file", b"new")
    assert seen == [b"old", b"old", b"new"]


def test_first_the_bytes_reach_the_disk_then_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, int]] = []
    fsync, replace = os.fsync, Path.replace

    def watch_fsync(number: int) -> None:
        events.append(("fsync", os.fstat(number).st_ino))
        if len(events) == 1:
            assert os.fstat(number).st_size == 3  # no longer in Python's own buffer
        fsync(number)

    def watch_replace(path: Path, target: Path) -> Path:
        events.append(("rename", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(Path, "replace", watch_replace)
    write_atomically(tmp_path / "file", b"new")
    file, folder = (tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("fsync", file), ("rename", file), ("fsync", folder)]


@pytest.mark.parametrize("old", [b"old", None], ids=["old file", "no file"])
@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_failing_write_leaves_what_was_there_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None, failing: str, error: BaseException
) -> None:
    if old is not None:
        write_atomically(tmp_path / "file", old)

    def fail(*_: object) -> None:
        raise error

    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if failing == "fsync" else (Path, "replace")), fail)
        with pytest.raises(type(error)):
            write_atomically(tmp_path / "file", b"new")
    assert contents(tmp_path) == before


def test_the_temporary_name_is_hidden_and_belongs_to_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # hidden, so that no pattern for run files or checkpoints finds it; with the process, so that two do not mix
    names: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, new: (names.append(path.name), replace(path, new))[1])
    write_atomically(tmp_path / "step-00000001.safetensors", b"new")
    assert names == [f".step-00000001.safetensors.{os.getpid()}.part"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        write_atomically(tmp_path / "nowhere" / "file", b"new")
    assert str(tmp_path / "nowhere") in str(error.value.filename)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("needs /proc")
    write_atomically(tmp_path / "file", b"new")
    before = len(list(descriptors.iterdir()))
    for _ in range(5):
        write_atomically(tmp_path / "file", b"new")
    assert len(list(descriptors.iterdir())) == before


@pytest.mark.parametrize("check", [check_writable, check_folder])
def test_what_can_be_written_is_tried_and_leaves_nothing(tmp_path: Path, check: Callable[[Path], None]) -> None:
    check(tmp_path / "new")
    (tmp_path / "old").write_text("kept")
    check_writable(tmp_path / "old")
    check_folder(tmp_path)
    check_folder(tmp_path / "a" / "b")
    assert contents(tmp_path) == {"old": b"kept"}
    with pytest.raises(
        InputError, match=r"^'/proc/none' cannot be written .*: choose a place that you can write to\.$"
    ):
        check(Path("/proc/none"))


def test_below_a_file_there_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to("nowhere")
    for name, place in (("file/run", "file"), ("file/a/b", "file"), ("file", "file"), ("link", "link")):
        with pytest.raises(InputError, match=f"{name}' cannot be a folder, since '{tmp_path / place}' is none: choose"):
            check_folder(tmp_path / name)
    with pytest.raises(InputError, match="name a file in a folder that exists"):
        check_writable(tmp_path / "file" / "x.csv")
