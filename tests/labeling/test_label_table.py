"""labels.csv follows the labels, and the labels follow labels.csv."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from photo_folder import make, opened, say

from epass.app.label import label
from epass.data.read.folder import list_folder
from epass.data.read.listing import name_inside
from epass.errors import InputError
from epass.labeling import project as module
from epass.labeling.project import Project


def as_trained(folder: Path) -> dict[str, str]:
    """The labels that `epass train` finds in a folder."""
    listing = list_folder(folder, labels_needed=False)
    texts = [listing.classes[number] if number >= 0 else "" for number in listing.labels]
    return {name_inside(file, folder): text for file, text in zip(listing.train, texts, strict=True) if text}


def labels(project: Project) -> dict[str, str]:
    names = {known.id: known.name for known in project.classes()}
    found = zip(project.names, project.labels.tolist(), strict=True)
    return {name: names[number] for name, number in found if number >= 0}


def table(folder: Path) -> str:
    return (folder / "labels.csv").read_text(encoding="utf-8")


def test_answers_that_the_table_lacks_are_written_without_another_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE", 0.01)
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 0, 0)
    project.close()
    (folder / "labels.csv").unlink()  # as after a kill within the first second
    project = opened(folder)
    for _ in range(6000):
        if (folder / "labels.csv").exists():
            break
        time.sleep(0.01)
    assert table(folder) == "path,label\n0.png,forest\n"
    project.close()


def test_a_table_in_capital_letters_is_read_and_written_not_hidden_by_another(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    (folder / "Labels.CSV").write_text("path,label\n1.png,sea\n", encoding="utf-8")
    project = opened(folder)
    assert labels(project) == {"1.png": "sea"}
    say(project, 0, 0)
    project.close()
    assert not (folder / "labels.csv").exists()
    assert as_trained(folder) == labels(project) == {"0.png": "sea", "1.png": "sea"}


def test_the_table_is_written_soon_and_on_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE", 0.01)
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 0, 0)
    for _ in range(6000):
        if (folder / "labels.csv").exists():
            break
        time.sleep(0.01)
    assert table(folder) == "path,label\n0.png,forest\n"
    monkeypatch.setattr(module, "LATE", 1000)
    say(project, 1, 1)
    say(project, 2, "skip")
    project.close()
    assert as_trained(folder) == {"0.png": "forest", "1.png": "lake"}


def test_rows_may_name_a_photo_by_another_way(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", "a/0.png", "a/1.png")
    (folder / "labels.csv").write_text("path,label\na\\0.PNG,ant\n./a/1.png,bee\n", encoding="utf-8")
    project = opened(folder)
    assert (labels(project)["a/0.png"], labels(project)["a/1.png"]) == ("ant", "bee")
    project.rename_class(next(known.id for known in project.classes() if known.name == "ant"), "wasp")
    project.close()
    assert table(folder) == "path,label\na\\0.PNG,wasp\n./a/1.png,bee\n"


def test_nothing_is_written_where_folders_say_everything(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", "ant/0.png", "bee/1.png")
    project = Project(folder, pytest.fail)
    project.close()
    assert not (folder / "labels.csv").exists()
    project = Project(folder, pytest.fail)
    project.rename_class(0, "wasp")
    project.close()
    assert table(folder) == "path,label\nant/0.png,wasp\n"
    assert as_trained(folder) == {"ant/0.png": "wasp", "bee/1.png": "bee"}


def test_what_the_table_cannot_say_is_said(tmp_path: Path) -> None:
    notices: list[str] = []
    project = Project(make(tmp_path / "photos", "ant/0.png", "bee/1.png"), notices.append)
    say(project, 0, "none")
    project.write_labels()
    say(project, 1, None)
    project.close()
    assert len(notices) == 1
    assert "which labels.csv cannot say" in notices[0]


def test_what_others_wrote_is_taken_in_once_and_all_else_in_the_table_stays(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    first = "who;file;class\nme;0.png;ant\nyou;5.png;\n;gone.png;bee\n"
    (folder / "labels.csv").write_text(first, encoding="utf-8")
    notices: list[str] = []
    project = Project(folder, notices.append)
    assert labels(project) == {"0.png": "ant"}
    assert notices == [
        "'gone.png' in labels.csv is no photo here: it is left as it stands.",
        "1 label taken over from labels.csv.",
    ]
    with pytest.raises(InputError, match="nothing left to undo"):
        project.undo("tab")
    say(project, 5, 0)
    say(project, 4, 0)
    project.close()
    assert table(folder) == "who;file;class\nme;0.png;ant\nyou;5.png;ant\n;gone.png;bee\n;4.png;ant\n"
    assert (folder / "labels.csv.bak").read_text(encoding="utf-8") == first
    notices.clear()
    Project(folder, notices.append).close()
    assert notices == []


def test_labels_that_changed_while_it_was_closed(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    project = opened(folder)
    for id, answer in enumerate([0, 0, 0, "skip"]):
        say(project, id, answer)
    project.close()
    (folder / "labels.csv").write_text("path,label\n0.png,lake\n1.png,\n4.png,new\n", encoding="utf-8")
    notices: list[str] = []
    again = Project(folder, notices.append)
    assert labels(again) == {"0.png": "lake", "4.png": "new"}
    assert again.marks[3] == 1
    assert notices == ["4 labels taken over from labels.csv."]
    again.close()


def test_labels_that_a_terminal_gives_while_it_is_open(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    notices: list[str] = []
    project = opened(folder, notices.append)
    say(project, 0, 0)
    project.write_labels()
    (tmp_path / "said.csv").write_text("file,label\n1.png,lake\n")
    with pytest.warns(UserWarning, match="There is a single label of forest, lake"):
        label(folder, tmp_path / "said.csv").result()
    say(project, 2, 1)
    project.write_labels()
    assert labels(project) == as_trained(folder) == {"0.png": "forest", "1.png": "lake", "2.png": "lake"}
    assert notices == ["1 label taken over from labels.csv."]
    project.close()


def test_an_end_before_the_table_was_written_takes_nothing_back(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 0, 0)
    project.write_labels()
    old = (folder / "labels.csv").read_bytes()
    say(project, 0, 1)
    say(project, 1, 1)
    project.close()
    (folder / "labels.csv").write_bytes(old)  # as if it had ended between the two files
    again = Project(folder, pytest.fail)
    assert labels(again) == {"0.png": "lake", "1.png": "lake"}
    again.close()
    assert as_trained(folder) == labels(again)


def test_without_its_journal_the_table_is_all_there_is(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 0, 1)
    project.close()
    (folder / ".epass-studio" / "journal.jsonl").unlink()
    again = Project(folder, lambda sentence: None)
    assert labels(again) == {"0.png": "lake"}
    again.close()


def test_a_deleted_table_is_written_again(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 0, 1)
    project.close()
    (folder / "labels.csv").unlink()
    Project(folder, pytest.fail).close()
    assert as_trained(folder) == {"0.png": "lake"}


def test_tables_of_something_else_and_broken_ones_are_not_touched(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    for content in (
        "a,b\n1,2\n",
        'path,label\n"0.png\n',
        "path,label\n0.png,a\n0.png,b\n",
        f"path,label\n0.png,{'x' * 101}\n",
    ):
        (folder / "labels.csv").write_text(content)
        with pytest.raises(InputError, match=r"labels\.csv|letters"):
            Project(folder, pytest.fail)
        assert table(folder) == content
    (folder / "labels.csv").unlink()
    notices: list[str] = []
    project = opened(folder, notices.append)
    (folder / "labels.csv").write_text("a,b\n")
    say(project, 0, 1)
    project.write_labels()
    project.write_labels()
    project.close()
    assert table(folder) == "a,b\n"
    assert len(notices) == 1
    assert notices[0].startswith("The labels are safe, but labels.csv is not up to date: ")


def test_a_table_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    (tmp_path / "elsewhere.csv").write_text("path,label\n0.png,secret\n")
    (folder / "labels.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(InputError, match="is a link"):
        Project(folder, lambda sentence: None)


def test_names_that_no_table_can_hold_do_not_spoil_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", " a.png", "b,c.png", "=d.png", 'e"f.png', "g\nh.png")
    project = opened(folder)
    for id in range(5):
        say(project, id, id % 2)
    known = labels(project)
    project.close()
    assert as_trained(folder) == {name: text for name, text in known.items() if name != " a.png"}
    again = Project(folder, pytest.fail)
    assert labels(again) == known
    again.close()
    assert as_trained(folder) == {name: text for name, text in known.items() if name != " a.png"}


def test_the_column_that_is_read_is_the_one_that_is_written(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    (folder / "labels.csv").write_text("class,path,label\nx,0.png,ant\n")
    project = Project(folder, lambda sentence: None)
    project.rename_class(0, "bee")
    project.close()
    assert table(folder) == "class,path,label\nx,0.png,bee\n"
