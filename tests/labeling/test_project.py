"""What people say about photos, how it is undone, and how two of them do not overwrite each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from photo_folder import PNG, make, opened, say, seen, state

from epass.errors import InputError
from epass.labeling.project import Change, Changed, ClassFacts, Conflict, Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = opened(make(tmp_path / "photos"))
    yield project
    project.close()


def test_answers_are_there_again(tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    assert say(project, 0, 1) == Changed(3, [0], "'lake' for 0.png", False)
    say(project, 1, "skip")
    say(project, 2, "unsure")
    say(project, 3, "none")
    say(project, 4, 0)
    say(project, 4, None)
    assert project.labels.tolist() == [1, -1, -1, -1, -1, -1]
    assert project.marks.tolist() == [0, 1, 2, 3, 0, 0]
    before, n = state(project), project.n
    project.close()
    again = Project(tmp_path / "photos", pytest.fail)
    assert (state(again), again.n) == (before, n)
    assert list(again.names) == [f"{number}.png" for number in range(6)]
    again.close()


def test_a_label_takes_the_place_of_a_mark_and_the_other_way_round(project: Project) -> None:
    say(project, 0, "skip")
    say(project, 0, 1)
    assert (project.labels[0], project.marks[0]) == (1, 0)
    say(project, 0, "none")
    assert (project.labels[0], project.marks[0]) == (-1, 3)


def test_two_tabs_do_not_overwrite_each_other(project: Project) -> None:
    say(project, 0, 0, "one")
    with pytest.raises(Conflict, match=r"0\.png changed in another tab") as caught:
        project.answer([Change(1, 1, None, None, None), Change(0, 1, None, None, None)], "two")
    assert caught.value.rows == [0]
    assert project.labels.tolist() == [0, -1, -1, -1, -1, -1]  # all or nothing
    with pytest.raises(Conflict):
        project.answer([Change(0, 1, None, None, "skip")], "two")
    n = project.n
    assert project.answer([Change(0, 0, None, None, None)], "two") == Changed(n, [], "Nothing changed", False)
    assert project.answer([Change(0, 1, None, 0, None)], "two").ids == [0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (Change(6, 0, None, None, None), "There is no image 6"),
        (Change(-1, 0, None, None, None), "There is no image -1"),
        (Change(0, 7, None, None, None), "There is no class 7"),
        (Change(0, -1, None, None, None), "There is no class -1"),
        (Change(0, -2, None, None, None), "There is no class -2"),
        (Change(0, None, "skipp", None, None), "did you mean 'skip'"),
        (Change(0, 0, "skip", None, None), "not both"),
    ],
)
def test_senseless_answers_are_refused(project: Project, change: Change, problem: str) -> None:
    n = project.n
    with pytest.raises(InputError, match=problem):
        project.answer([change], "tab")
    with pytest.raises(InputError, match="twice"):
        project.answer([Change(0, 0, None, None, None)] * 2, "tab")
    assert project.n == n


ACTIONS: dict[str, Callable[[Project], object]] = {
    "label": lambda project: say(project, 0, 1),
    "another label": lambda project: say(project, 5, 1),
    "clear": lambda project: say(project, 5, None),
    "mark": lambda project: say(project, 5, "none"),
    "many": lambda project: project.answer([Change(id, 1, None, *seen(project, id)) for id in range(6)], "tab"),
    "add": lambda project: project.add_class("river", "tab"),
    "rename": lambda project: project.rename_class(0, "wood", "tab"),
    "merge": lambda project: project.merge_classes(0, 1, "tab"),
    "remove": lambda project: project.remove_class(2, "tab"),
    "key": lambda project: project.set_key(0, "9", "tab"),
    "no key": lambda project: project.set_key(0, "", "tab"),
    "key of an action": lambda project: project.set_key("undo", "z", "tab"),
    "import": lambda project: project.take_in("x.csv", b"file,label\n0.png,river\n1.png,lake\n", False, "tab"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_everything_can_be_undone_also_after_a_restart(action: str, tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    project.add_class("sea", "other")
    say(project, 5, 0, "other")
    say(project, 4, "skip", "other")
    before = state(project)
    for restart in (False, True):
        ACTIONS[action](project)
        after = state(project)
        assert after != before
        if restart:
            project.close()
            project = Project(tmp_path / "photos", pytest.fail)
            assert state(project) == after
        assert project.undo("tab").said.startswith("Undid: ")
        assert state(project) == before
        with pytest.raises(InputError, match="nothing left to undo"):
            project.undo("tab")
    project.close()


def test_undo_goes_back_step_by_step_and_leaves_others_alone(project: Project) -> None:
    say(project, 0, 0, "one")
    say(project, 1, 0, "two")
    say(project, 2, 1, "one")
    assert project.undo("one").ids == [2]
    assert project.undo("one").said == "Undid: 'forest' for 0.png"
    assert project.labels.tolist() == [-1, 0, -1, -1, -1, -1]
    with pytest.raises(InputError, match="nothing left"):
        project.undo("new")
    assert project.undo("two").ids == [1]


def test_what_others_changed_since_is_not_undone_but_the_step_before_is(project: Project) -> None:
    say(project, 1, 1, "one")
    say(project, 0, 0, "one")
    say(project, 0, 1, "two")
    with pytest.raises(Conflict, match=r"0\.png changed since") as caught:
        project.undo("one")
    assert caught.value.rows == [0]
    assert project.undo("one").ids == [1]


def test_a_class_that_has_labels_by_now_and_one_that_changed_stay(project: Project) -> None:
    project.add_class("sea", "one")
    say(project, 0, 2, "two")
    with pytest.raises(Conflict, match="'sea' has labels by now"):
        project.undo("one")
    project.rename_class(0, "wood", "one")
    project.rename_class(0, "trees", "two")
    with pytest.raises(Conflict, match="'trees' changed since"):
        project.undo("one")
    project.rename_class(2, "ocean", "one")
    project.add_class("sea", "two")
    with pytest.raises(Conflict, match="Another class is called 'sea'"):
        project.undo("one")


def test_a_class_comes_back_with_another_key_if_somebody_took_its_own(project: Project) -> None:
    project.remove_class(0, "one")
    project.set_key(1, "1", "two")
    project.undo("one")
    assert project.classes() == [ClassFacts(0, "forest", "2", 0), ClassFacts(1, "lake", "1", 0)]


def test_what_no_tab_did_any_tab_may_undo(project: Project) -> None:
    project.rename_class(0, "wood")
    assert project.undo("any").said == "Undid: 'forest' is called 'wood'"


def test_classes_are_renamed_merged_and_removed_and_labels_follow(project: Project) -> None:
    say(project, 0, 0)
    say(project, 1, 1)
    assert project.rename_class(0, "  Wald ").classes
    assert project.merge_classes(0, 1) == Changed(6, [0], "'Wald' merged into 'lake'", True)
    assert project.classes() == [ClassFacts(1, "lake", "2", 2)]
    with pytest.raises(InputError, match="'lake' has 2 labels: merge"):
        project.remove_class(1)
    project.add_class("new")
    assert [known.id for known in project.classes()] == [1, 2]  # numbers never come again
    project.remove_class(2)
    project.add_class("newer")
    assert project.classes()[-1] == ClassFacts(3, "newer", "1", 0)
    for senseless in (lambda: project.merge_classes(1, 1), lambda: project.rename_class(0, "x")):
        with pytest.raises(InputError):
            senseless()


@pytest.mark.parametrize("name", ["Größe", "森", "<script>alert(1)</script>", "=1+1", "a/b", "..", "👩‍👩‍👧", "x" * 100])
def test_a_class_may_have_any_name(name: str, tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    project.add_class(name)
    say(project, 0, 2)
    project.close()
    again = Project(tmp_path / "photos", pytest.fail)
    assert again.classes()[2].name == name
    again.close()


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "a\0", "\u202eexe", "forest", " forest "])
def test_but_none_that_nobody_can_see_or_tell_apart(name: str, project: Project) -> None:
    with pytest.raises(InputError):
        project.add_class(name)
    with pytest.raises(InputError):
        project.rename_class(1, name)


def test_the_same_letters_in_other_bytes_are_the_same_name(project: Project) -> None:
    project.add_class("Caf\u00e9")
    with pytest.raises(InputError, match="already"):
        project.add_class("Cafe\u0301")


def test_keys_come_by_themselves_until_there_are_none(project: Project) -> None:
    for number in range(40):
        project.add_class(f"class {number}")
    keys = [known.key for known in project.classes()]
    assert keys[:11] == [*"1234567890", "a"]
    assert not {*keys} & {*project.keys.values()}
    assert keys[-1] == ""
    given = [key for key in keys if key]
    assert len(given) == len({*given})


def test_a_key_belongs_to_one(project: Project) -> None:
    project.set_key(0, "Q")
    assert project.classes()[0].key == "q"
    for key, problem in [
        ("2", "belongs to the class 'lake'"),
        ("u", "belongs to 'undo'"),
        ("Enter", "belongs to 'accept'"),
        ("Tab", "is no key"),
        (" ", "is no key"),
        ("ab", "is no key"),
        ("\0", "is no key"),
    ]:
        with pytest.raises(InputError, match=problem):
            project.set_key(0, key)
    with pytest.raises(InputError, match="belongs to the class 'forest'"):
        project.set_key("skip", "q")
    with pytest.raises(InputError, match="did you mean 'skip'"):
        project.set_key("skipp", "q")
    with pytest.raises(InputError, match="is no key"):
        project.set_key("skip", "")
    project.set_key("skip", "F2")
    project.set_key(1, "s")
    assert (project.keys["skip"], project.classes()[1].key) == ("F2", "s")


def test_class_folders_are_labels_and_stay_the_class_that_they_became(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", "ant/0.png", "ant/1.png", "bee/2.png")
    project = Project(folder, lambda sentence: None)
    assert [(known.name, known.key, known.count) for known in project.classes()] == [("ant", "1", 2), ("bee", "2", 1)]
    project.rename_class(0, "wasp")
    say(project, 0, None)
    project.close()
    make(folder, "ant/9.png", "cat/8.png")
    again = Project(folder, lambda sentence: None)
    assert dict(zip(again.names, again.labels.tolist(), strict=True)) == {
        "ant/0.png": -1,
        "ant/1.png": 0,
        "ant/9.png": 0,
        "bee/2.png": 1,
        "cat/8.png": 2,
    }
    assert [known.name for known in again.classes()] == ["wasp", "bee", "cat"]
    again.merge_classes(0, 1)
    again.close()
    make(folder, "ant/99.png")
    last = Project(folder, lambda sentence: None)
    assert last.labels[list(last.names).index("ant/99.png")] == 1
    assert [known.name for known in last.classes()] == ["bee", "cat"]
    last.close()


def test_what_was_said_about_a_photo_waits_until_it_is_back(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    project = opened(folder)
    say(project, 5, 1)
    project.close()
    (folder / "5.png").rename(tmp_path / "5.png")
    opened(folder).close()
    project = opened(folder)
    project.merge_classes(1, 0)
    project.close()
    (tmp_path / "5.png").rename(folder / "5.png")
    again = opened(folder)
    assert again.labels[5] == 0
    again.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    project = opened(make(tmp_path / "photos"))
    with pytest.raises(InputError, match="in use by this process"):
        opened(tmp_path / "photos")
    project.close()
    project.close()
    with pytest.raises(InputError, match="closing"):
        project.add_class("late")
    opened(tmp_path / "photos").close()


def test_only_a_folder_of_photos_is_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    for name, problem in [
        ("empty", "holds no photos"),
        ("text.txt", "not a folder"),
        ("nowhere", "no file or folder"),
    ]:
        with pytest.raises(InputError, match=problem):
            Project(tmp_path / name, pytest.fail)
    assert not (tmp_path / "empty" / ".epass-studio").exists()
    make(tmp_path / "photos", ".epass-studio", "0.png")
    with pytest.raises(InputError, match="cannot be written to"):
        Project(tmp_path / "photos", pytest.fail)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    opened(folder).close()
    for name in (".import-x.csv", ".snapshot.json.1.part"):
        (folder / ".epass-studio" / name).write_text("half")
    opened(folder).close()
    assert sorted(path.name for path in (folder / ".epass-studio").iterdir()) == ["journal.jsonl", "thumbs"]


def test_its_own_files_are_no_photos(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos", "ant/0.png", "bee/1.png")
    (folder / ".epass-studio" / "thumbs").mkdir(parents=True)
    (folder / ".epass-studio" / "thumbs" / "x.png").write_bytes(PNG)
    project = Project(folder, pytest.fail)
    assert list(project.names) == ["ant/0.png", "bee/1.png"]
    project.close()


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    folder, secret = make(tmp_path / "photos"), tmp_path / "secret.png"
    secret.write_bytes(PNG)
    (folder / "link.png").symlink_to(secret)
    (folder / "inside.png").symlink_to("0.png")
    notices: list[str] = []
    project = opened(folder, notices.append)
    assert "link.png" not in project.names
    assert "link.png" in notices[0]
    assert project.path(list(project.names).index("inside.png")) == (folder / "0.png").resolve()
    assert project.path(1).read_bytes() == PNG
    (folder / "1.png").unlink()
    (folder / "1.png").symlink_to(secret)
    (folder / "2.png").unlink()
    (folder / "3.png").unlink()
    os.mkfifo(folder / "3.png")
    for id in (1, 2, 3):
        with pytest.raises(InputError, match="no longer a file in this folder"):
            project.path(id)
    for id in (-1, 99):
        with pytest.raises(InputError, match="There is no image"):
            project.path(id)
    project.close()


@pytest.mark.parametrize("link", [".epass-studio", ".epass-studio/journal.jsonl", ".epass-studio/thumbs/ab"])
def test_a_strangers_folder_cannot_make_us_write_elsewhere(link: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    (tmp_path / "elsewhere").mkdir()
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        Project(folder, pytest.fail)
    assert not any((tmp_path / "elsewhere").iterdir())


def test_a_name_that_is_no_text_leads_to_its_file(tmp_path: Path) -> None:
    folder = make(tmp_path / "photos")
    path = os.fsencode(folder) + b"/\xff.png"
    with open(path, "wb") as file:
        file.write(PNG + b"odd")
    project = opened(folder)
    id = list(project.names).index("\\xff.png")
    assert project.path(id).read_bytes() == PNG + b"odd"
    say(project, id, 1)
    project.close()
    again = opened(folder)
    assert again.labels[id] == 1
    again.close()


def test_listeners_hear_of_every_change_once_and_may_ask(project: Project) -> None:
    heard: list[tuple[Changed, int]] = []
    project.on_change(lambda changed: heard.append((changed, project.classes()[0].count)))
    say(project, 0, 0)
    say(project, 0, 0)
    project.rename_class(0, "wood")
    assert [(changed.n, count) for changed, count in heard] == [(3, 1), (4, 1)]


def test_many_threads_answer_at_once_and_every_answer_has_its_number(project: Project) -> None:
    numbers: list[int] = []

    def work(id: int) -> None:
        for count in range(20):
            numbers.append(say(project, id, count % 2, f"tab {id}").n)
            if count % 5 == 4:
                numbers.append(say(project, id, "skip", f"tab {id}").n)
                numbers.append(project.undo(f"tab {id}").n)

    threads = [threading.Thread(target=work, args=(id,)) for id in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(3, 3 + len(numbers)))
    assert project.n == max(numbers)


def test_nobody_changes_labels_behind_the_journals_back(project: Project) -> None:
    with pytest.raises(ValueError, match="read-only"):
        project.labels[0] = 1


def test_classes_that_may_be_one_are_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    project = opened(make(tmp_path / "photos"), said.append)
    assert said == []
    project.add_class("Lake ", "tab")
    words = "'lake' and 'Lake' are 2 classes that differ only in capital letters, blanks or the like"
    assert said == [f"{words}: make them one if they are the same."]
    say(project, 0, 1)
    project.add_class("sea", "tab")
    assert len(said) == 1
    project.rename_class(3, "FOREST", "tab")
    assert "(and 1 more like this)" in said[1]
    project.close()
    again = Project(tmp_path / "photos", said.append)
    assert len(said) == 3  # whoever opens the folder may be somebody else
    again.close()


def test_class_folders_and_tables_may_bring_classes_that_are_alike(tmp_path: Path) -> None:
    said: list[str] = []
    project = Project(make(tmp_path / "photos", "sea/1.png", "sea/3.png", "Sea/2.png"), said.append)
    assert len(said) == 1
    assert "'Sea' and 'sea'" in said[0]
    project.take_in("more.csv", b"path,label\nsea/3.png,SEA\n", force=True)
    assert "'Sea', 'sea' and 'SEA' are 3 classes" in said[1]
    project.close()
