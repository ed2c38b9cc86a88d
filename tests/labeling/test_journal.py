"""What is on disk after anything that can happen to a disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from photo_folder import make, opened, say, seen, state

from epass.errors import InputError
from epass.labeling import journal as module
from epass.labeling import project as project_module
from epass.labeling.journal import Journal, seal, unseal


def silent(sentence: str) -> None:
    pass


def written(home: Path, count: int) -> Journal:
    journal = Journal(home, silent)
    for n in range(1, count + 1):
        journal.append({"n": n, "said": f"zwölf\n{n}"})
    return journal


def test_a_sealed_line_is_one_line_of_json_and_any_changed_byte_is_noticed() -> None:
    value = {"n": 1, "said": "zwölf\n\u2028"}
    line = seal(value)
    assert unseal(line) == value
    assert line.count(b"\n") == 1
    for place in range(len(line)):
        with pytest.raises(ValueError, match="as it was written"):
            unseal(line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :])
        with pytest.raises(ValueError, match="as it was written"):
            unseal(line[:place])


def test_a_torn_last_line_is_dropped_with_a_notice_and_the_journal_goes_on(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    whole = (tmp_path / "journal.jsonl").read_bytes()
    second = whole.rindex(b"\n", 0, -1) + 1
    for end in range(second + 1, len(whole)):
        (tmp_path / "journal.jsonl").write_bytes(whole[:end])
        notices: list[str] = []
        journal = Journal(tmp_path, notices.append)
        assert [record["n"] for record in journal.records] == [1, 2]
        assert notices == ["The last line of 'journal.jsonl' was never written to its end: that answer is not kept."]
        journal.append({"n": 3, "said": "again"})
        journal.close()
        again = Journal(tmp_path, pytest.fail)
        assert again.records[-1] == {"n": 3, "said": "again"}
        again.close()


@pytest.mark.parametrize("damage", ["byte", "line", "order"])
def test_a_damaged_middle_is_refused_and_nothing_is_changed(damage: str, tmp_path: Path) -> None:
    journal = written(tmp_path, 4)
    journal.write_snapshot({"n": 1})
    journal.close()
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    if damage == "byte":
        lines[1] = lines[1].replace(b"said", b"sand")
    elif damage == "line":
        del lines[1]
    else:
        lines[1:3] = lines[2:0:-1]
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"Line 2 of \d of .*damaged: put back a copy.*goes back to '.*snapshot.json'"):
        Journal(tmp_path, pytest.fail)
    assert (tmp_path / "journal.jsonl").read_bytes() == b"".join(lines)


def test_a_journal_without_its_snapshot_and_a_damaged_snapshot_are_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(seal({"n": 7}))
    with pytest.raises(InputError, match="Line 1 of 1"):
        Journal(tmp_path, silent)
    (tmp_path / "snapshot.json").write_bytes(seal({"n": 6})[:-3])
    with pytest.raises(InputError, match=r"snapshot\.json' is damaged"):
        Journal(tmp_path, silent)


def test_an_old_journal_beside_a_newer_snapshot_leaves_no_gap(tmp_path: Path) -> None:
    journal = written(tmp_path, 2)
    journal.write_snapshot({"n": 9})
    journal.close()
    journal = Journal(tmp_path, silent)
    assert journal.records == []
    journal.append({"n": 10})
    journal.close()
    assert [record["n"] for record in Journal(tmp_path, silent).records] == [10]


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = opened(make(tmp_path / "photos"))
    say(project, 0, 0)
    before, n, real = state(project), project.n, os.write

    def full(number: int, data: bytes) -> int:
        if len(data) > 20:
            return real(number, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", full)
        with pytest.raises(InputError, match=r"No space left on device.*did not happen: make room"):
            project.answer([project_module.Change(1, 1, None, *seen(project, 1))], "tab")
    assert (state(project), project.n) == (before, n)
    say(project, 2, 1)
    after = state(project)
    project.close()
    again = opened(tmp_path / "photos", pytest.fail)
    assert state(again) == after
    again.close()


def test_after_a_disk_that_failed_nothing_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = written(tmp_path, 1)

    def fails(number: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", fails)
        with pytest.raises(InputError, match="Input/output error"):
            journal.append({"n": 2})
    with pytest.raises(InputError, match="start it again"):
        journal.append({"n": 2})
    journal.close()
    assert len(Journal(tmp_path, pytest.fail).records) == 1


def test_a_journal_that_somebody_takes_away_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(tmp_path, 2)
    with monkeypatch.context() as patch:

        def fails(path: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr("epass.files.force_to_disk", fails)
        with pytest.raises(OSError, match="Input/output error"):
            journal.shorten(journal.size)
    with pytest.raises(InputError, match="no longer there"):
        journal.append({"n": 3})
    journal.close()
    journal = Journal(tmp_path, pytest.fail)
    assert len(journal.records) == 2
    journal.path.unlink()
    with pytest.raises(InputError, match="no longer there"):
        journal.append({"n": 3})
    journal.close()


def test_compaction_loses_nothing_and_what_was_done_last_can_still_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 600)
    folder = make(tmp_path / "photos", "a/0.png", "a/1.png", "b/2.png")
    project = opened(folder)
    project.rename_class(1, "bee", "tab")
    project.set_key("undo", "z", "tab")
    project.add_class("gone", "other")
    for count in range(40):
        say(project, count % 3, count % 2 or "skip")
    say(project, 2, 2)
    project.merge_classes(2, 0, "other")  # the lines that stay speak of a class that the snapshot does not know
    (folder / "a" / "1.png").rename(tmp_path / "away.png")
    length = project._journal.size
    project._compact()
    assert project._journal.size < length / 4
    say(project, 0, 0)
    before = state(project)
    project.close()
    (tmp_path / "away.png").rename(folder / "a" / "1.png")
    again = opened(folder)
    assert state(again) == before
    assert again.undo("tab").said == "Undid: 'a' for a/0.png"
    assert again.undo("other").said == "Undid: 'gone' merged into 'a'"
    assert again.undo("tab").said == "Undid: 'gone' for b/2.png"
    assert again.undo("tab").said == "Undid: 'bee' for a/0.png"
    again.close()


def test_an_end_between_snapshot_and_new_journal_counts_nothing_twice(tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    say(project, 0, 0)
    say(project, 0, "skip")
    project._journal.write_snapshot({"n": project.n, **project._board.state()})
    say(project, 1, 1)
    project.undo("tab")
    before, n = state(project), project.n
    project.close()
    again = opened(tmp_path / "photos", pytest.fail)
    assert (state(again), again.n) == (before, n)
    assert again.undo("tab").said == "Undid: Skipped 0.png"
    again.close()


def test_a_journal_grows_no_longer_than_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_module, "LONG", 3000)
    monkeypatch.setattr(module, "KEPT", 500)
    project = opened(make(tmp_path / "photos"))
    for count in range(30):
        say(project, 0, count % 2)
    project.close()
    assert (tmp_path / "photos/.epass-studio/journal.jsonl").stat().st_size < 1000
    again = opened(tmp_path / "photos", pytest.fail)
    assert (again.n, again.labels[0]) == (32, 1)
    again.close()


@pytest.mark.parametrize(
    "record",
    [
        {"n": 3, "tab": "", "said": "x", "images": [["0.png", -1, 99]]},
        {"n": 3, "tab": "", "said": "x", "images": 7},
        {"n": 3, "tab": "", "said": "x", "classes": [[0, None]]},
        {"n": 3, "tab": 5, "said": "x"},
        {"n": 3},
    ],
)
def test_a_record_that_nobody_wrote_here_is_refused(record: dict[str, object], tmp_path: Path) -> None:
    opened(make(tmp_path / "photos")).close()
    with (tmp_path / "photos/.epass-studio/journal.jsonl").open("ab") as file:
        file.write(seal(record))
    with pytest.raises(InputError, match="is damaged"):
        opened(tmp_path / "photos")
