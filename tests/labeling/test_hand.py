"""Labels go out and come back, and what a stranger hands in does no harm."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from photo_folder import PNG, make, opened, say, state

from epass.errors import InputError
from epass.labeling.project import Conflict, Project

NAMES = ["0.png", "1.png", "a b/2.png", "forest/3.png", "=4.png", "ü%2F5.png", "6.png"]
CLASSES = ["forest", "a/b", "..", "=1+1", "<b>森</b>", "100 %"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = opened(make(tmp_path / "photos"))
    yield project
    project.close()


def answered(folder: Path) -> Project:
    project = Project(make(folder, *NAMES), pytest.fail)
    for name in CLASSES:
        project.add_class(name)
    for number in range(6):
        say(project, place(project, NAMES[number]), number)
    return project


def place(project: Project, name: str) -> int:
    return list(project.names).index(name)


def archive(*members: str | zipfile.ZipInfo, content: bytes = PNG) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for member in members:
            file.writestr(member, content)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["csv", "json", "folders"])
def test_what_goes_out_comes_back(kind: Literal["csv", "json", "folders"], tmp_path: Path) -> None:
    project = answered(tmp_path / "photos")
    say(project, place(project, "6.png"), "unsure")
    name, pieces = project.hand_out(kind)
    content = b"".join(pieces)
    project.close()
    other = Project(make(tmp_path / "copy" / "photos", *NAMES), pytest.fail)
    for text in CLASSES:
        other.add_class(text)
    changed = other.take_in(name, content, force=False)
    assert changed.said == f"{6 if kind == 'folders' else 7} labels from {name}"
    assert other.labels.tolist() == project.labels.tolist()
    if kind != "folders":
        assert state(other) == state(project)
    other.close()


def test_a_table_is_safe_in_a_spreadsheet(tmp_path: Path) -> None:
    project = answered(tmp_path / "photos")
    say(project, place(project, "6.png"), "none")
    name, pieces = project.hand_out("csv")
    project.close()
    rows = list(csv.reader(io.StringIO(b"".join(pieces).decode())))
    assert name == "photos-labels.csv"
    assert rows[0] == ["file", "label", "mark"]
    assert ["6.png", "", "none"] in rows
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


def test_an_archive_has_a_folder_for_each_class_that_every_system_can_make(tmp_path: Path) -> None:
    project = answered(tmp_path / "photos")
    (tmp_path / "photos" / "1.png").unlink()
    outside = tmp_path / "secret"
    outside.write_text("secret")
    (tmp_path / "photos" / "a b" / "2.png").unlink()
    (tmp_path / "photos" / "a b" / "2.png").symlink_to(outside)
    with zipfile.ZipFile(io.BytesIO(b"".join(project.hand_out("folders")[1]))) as file:
        assert file.testzip() is None
        assert {*file.namelist()} == {
            *("forest/0.png", "=1+1/forest/3.png", "%3Cb%3E森%3C%2Fb%3E/=4.png", "100 %25/ü%252F5.png", "left-out.txt")
        }
        assert file.read("left-out.txt").decode().split("\n")[1:3] == ["1.png", "a b/2.png"]
    project.close()


def test_a_class_folder_is_not_put_into_itself(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", "ant/0.png", "ant/1.png", "bee/2.png")
    project = Project(folder, pytest.fail)
    say(project, 1, 1)
    content = b"".join(project.hand_out("folders")[1])
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == ["ant/0.png", "bee/ant/1.png", "bee/2.png"]
    say(project, 1, 0)
    assert project.take_in("x.zip", content, force=True).ids == [1]
    project.close()


def test_a_photo_in_a_folder_is_told_from_one_beside_it(tmp_path: Path) -> None:
    project = Project(make(tmp_path / "photos", "forest/0.png", "0.png"), pytest.fail)
    project.add_class("forest")
    say(project, place(project, "forest/0.png"), 0)
    content = b"".join(project.hand_out("folders")[1])
    assert project.take_in("x.zip", content, force=False).ids == []
    project.close()


def test_an_archive_is_made_piece_by_piece(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    (folder / "0.png").write_bytes(os.urandom(3_000_000))
    project = opened(folder)
    say(project, 0, 0)
    pieces = list(project.hand_out("folders")[1])
    assert max(map(len, pieces)) < 1_100_000
    assert len(b"".join(pieces)) > 3_000_000
    project.close()


def test_what_label_studio_exports_is_taken_in(project: Project) -> None:
    def task(name: str, *choices: str) -> dict[str, object]:
        result = {"type": "choices", "value": {"choices": list(choices)}}
        return {"data": {"image": f"/data/local-files/?d=photos/{name}"}, "annotations": [{"result": [result]}]}

    content = json.dumps([task("0.png", "forest"), task("1.png", "sea")]).encode()
    assert project.take_in("export.json", content, False).ids == [0, 1]
    assert project.classes()[-1].name == "sea"


def test_an_archive_of_somebody_else_may_have_a_folder_around_it(project: Project) -> None:
    content = archive("sorted/forest/0.png", "sorted/new one/1.png", "sorted/readme.txt", "__MACOSX/x.png")
    assert project.take_in("Sorted.ZIP", content, False).ids == [0, 1]
    assert [known.name for known in project.classes()] == ["forest", "lake", "new one"]


def test_labels_are_replaced_only_if_somebody_says_so(project: Project) -> None:
    say(project, 0, 0)
    say(project, 1, "skip")
    content = b"file,label,mark\n0.png,lake,\n1.png,lake,\n"
    n = project.n
    with pytest.raises(Conflict, match=r"'0\.png' is 'forest' so far and 'lake' in the file") as caught:
        project.take_in("x.csv", content, False)
    assert (caught.value.rows, project.n) == ([0], n)
    with pytest.raises(Conflict, match="marked 'none'"):
        project.take_in("x.csv", b"file,label,mark\n0.png,,none\n", False)
    assert project.take_in("x.csv", content, True).ids == [0, 1]
    shown = b"file,known,label\n0.png,lake,forest\n"
    assert project.take_in("x.csv", shown, False).ids == [0]


LINK = zipfile.ZipInfo("forest/0.png")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.exe", b"", "holds no labels: give a .csv"),
        ("", b"", "holds no labels"),
        ("../../x.csv", b"", "'../../x.csv' is empty"),
        ("a\0b.csv", b"file,label\n0.png,\n", "holds no label yet"),
        ("x.csv", b"\xff\xfe", "not UTF-8"),
        ("x.csv", b"a,b\n1,2\n", "No column"),
        ("x.csv", b"file,label\n0.png\n", "1 cells"),
        ("x.csv", b"file,label\n../../etc/passwd,a\n", "no photo of this folder"),
        ("x.csv", b"file,label\n/etc/passwd,a\n", "no photo of this folder"),
        ("x.csv", b"file,label\n0.png,a\n0.png,b\n", "keep one"),
        ("x.csv", b"file,label\n0.png," + b"x" * 101 + b"\n", "101 letters"),
        ("x.csv", b"file,label\n0.png," + b"x" * 200_000 + b"\n", "proper CSV"),
        ("x.csv", "file,label\n0.png,a\u202eb\n".encode(), "cannot be shown"),
        ("x.csv", b"file,label,mark\n0.png,,skipp\n", "did you mean 'skip'"),
        ("x.json", b"{", "no export of Label Studio"),
        ("x.json", b"{}", "no list of tasks"),
        ("x.json", b"[" * 100_000, "nested too deeply"),
        ("x.json", b'[{"data": []}]', "no export of Label Studio"),
        ("x.json", b'[{"data": {"file": "0.png", "mark": ["x"]}, "annotations": []}]', "Unknown mark"),
        ("x.json", b'[{"data": {"file": "x/../../0.png"}, "label": "a"}]', "no photo of this folder"),
        ("x.zip", b"PK", "cannot be read as an archive"),
        ("x.zip", archive("0.png"), "lies in no class folder"),
        ("x.zip", archive("../0.png"), "leads out of it"),
        ("x.zip", archive("/etc/0.png"), "leads out of it"),
        ("x.zip", archive("forest/9.png"), "'9.png' in folder 'forest' of 'x.zip' is no photo"),
        ("x.zip", archive(LINK), "is a link"),
        ("x.zip", archive("a/0.png", "b/0.png"), "keep one"),
        ("x.zip", archive("readme.txt"), "holds no label yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_taken_in_is_refused_in_one_sentence(
    name: str, content: bytes, problem: str, project: Project
) -> None:
    before = state(project), project.n
    with pytest.raises(InputError, match=problem) as caught:
        project.take_in(name, content, True)
    assert (state(project), project.n) == before
    assert ".epass-studio" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not list(project.home.glob(".import-*"))


def test_an_archive_that_would_blow_up_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.data.read.archives.SMALL", 1000)
    with pytest.raises(InputError, match=r"'x\.zip' holds far more"):
        project.take_in("x.zip", archive("forest/0.png", content=bytes(1_000_000)), False)


def test_nothing_of_an_archive_is_written(project: Project) -> None:
    before = sorted(project.folder.rglob("*"))
    project.take_in("x.zip", archive("forest/0.png", content=b"other pixels"), False)
    assert sorted(project.folder.rglob("*")) == before
    assert project.path(0).read_bytes() == PNG


def test_an_unknown_kind_is_refused(project: Project) -> None:
    with pytest.raises(InputError, match="did you mean 'json'"):
        project.hand_out("jso")  # type: ignore[arg-type]
    for kind in ("csv", "json"):
        assert b"".join(project.hand_out(kind)[1]).strip() in (b"file,label,mark", b"[]")  # type: ignore[arg-type]


def test_an_image_may_be_named_by_any_way_that_leads_to_it(tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    ways = [str(tmp_path / "photos" / "0.png"), "photos/1.png", "photos\\2.png"]
    table = "path,label\n" + "".join(f"{way},lake\n" for way in ways)
    assert project.take_in("ways.csv", table.encode(), force=False).ids == [0, 1, 2]
    project.close()
