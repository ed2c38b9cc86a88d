from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from epass.errors import InputError
from epass.runs import RunFolder
from epass.runs.lock import LOCK, locked


def test_a_folder_is_held_once_and_free_afterwards(tmp_path: Path) -> None:
    home = RunFolder(tmp_path / "new" / "run")
    with home.hold():
        with pytest.raises(InputError, match=rf"^'{home.path}' is in use by this process: let the work in it end"):
            home.hold().__enter__()
        assert (home.path / LOCK).read_text() == f"{os.getpid()}\n", "who failed changed nothing"
        home.create(force=False)  # its own lock is no stranger's file
    assert not any(home.path.iterdir())
    with home.hold():
        pass


def test_what_a_killed_process_left_is_no_lock_and_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("123456789\n")
    RunFolder(tmp_path).create(force=False)
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"


def test_an_error_frees_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert not any(tmp_path.iterdir())


def test_a_file_that_its_owner_removes_meanwhile_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, calls = fcntl.flock, []

    def late(number: int, how: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            (tmp_path / LOCK).unlink()
        flock(number, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path):
        assert len(calls) == 3  # the file that was gone, the next one, and the folder
        with pytest.raises(InputError, match="in use"):
            locked(tmp_path).__enter__()


def test_a_disk_without_locks_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked \\(No locks available\\)"), locked(tmp_path):
        pass


def test_a_file_is_no_place_to_hold(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "file").hold()


def test_a_lock_that_somebody_deletes_lets_nobody_in(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).unlink()
        sentence = rf"^'{tmp_path}' is in use by a process whose '.lock' was deleted: wait until it ends"
        with pytest.raises(InputError, match=sentence):
            locked(tmp_path).__enter__()
    with locked(tmp_path):
        pass


def test_a_file_system_that_locks_no_folders_still_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def refuse(number: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(number, how)

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path), pytest.raises(InputError, match="in use"):
        locked(tmp_path).__enter__()
