"""From images without a label to a model, by labeling what is suggested."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import Epass, Trained, call
from PIL import Image

COLUMNS = ["file", "why", "guess", "confidence", "known", "label"]
CLASSES = ("left", "top")


@pytest.fixture
def photos() -> Path:
    """Forty small pictures, half of them bright on the left and half at the top, in a folder."""
    folder, random = Path("photos"), np.random.default_rng(0)
    for number in range(40):
        pixels = random.integers(0, 60, (8, 8))
        pixels[:, :4] += 150 * (1 - number % 2)
        pixels[:4] += 150 * (number % 2)
        (folder / "more").mkdir(parents=True, exist_ok=True)
        name = f"{'more/' * (number > 30)}{number}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
    return folder


def rows(path: str | Path = "suggested.csv") -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def true_class(name: str) -> str:
    return CLASSES[int(Path(name).stem) % 2]


def fill_in(path: str = "suggested.csv", **others: str) -> None:
    found = rows(path)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, found[0].keys(), delimiter=";")  # as a spreadsheet may save it
        writer.writeheader()
        writer.writerows({**row, "label": others.get(row["file"], true_class(row["file"]))} for row in found)


def train(epass: Epass, photos: Path, steps: int = 3) -> Any:
    few = [part for key in ("plan.labeled_batch=4", "plan.unlabeled_ratio=1", "net.width=4") for part in ("--set", key)]
    small = ("--method", "fixmatch", *few, "--image-size", "8", "--out", "run")
    answer = epass("train", photos, "--steps", str(steps), *small)
    assert answer.code == 0, answer.err
    return answer


def test_suggest_label_train_and_suggest_again(epass: Epass, photos: Path) -> None:
    answer = epass("suggest", photos, "--n", "6")
    assert (answer.code, answer.err) == (0, "")
    assert "6 of 40 images without a label: each in the middle of a group" in answer.out
    assert "more in the files" not in answer.out
    assert answer.out.endswith("Next: epass label photos suggested.csv\n")
    first = rows()
    assert list(first[0]) == COLUMNS
    chosen = [row["file"] for row in first if row["why"] == "typical"]
    assert {true_class(name) for name in chosen} == {*CLASSES}
    assert (first[0]["guess"], first[0]["label"]) == ("", "")

    fill_in()
    answer = epass("label", photos, "suggested.csv")
    assert (answer.code, answer.err) == (0, "")
    assert f"{len(first)} added, 0 changed, 0 as before" in answer.out
    assert "left " in answer.out
    assert "(new)" in answer.out
    assert answer.out.endswith("Next: epass train photos\n")
    assert {row["path"]: row["label"] for row in rows(photos / "labels.csv")} == {
        row["file"]: true_class(row["file"]) for row in first
    }

    trained = train(epass, photos)
    assert f"labels.csv: the labels of {len(first)} images" in trained.out

    answer = epass("suggest", "run", "--n", "5")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("Next: epass label photos suggested-2.csv\n")
    again = rows("suggested-2.csv")
    uncertain = [row for row in again if row["why"] == "uncertain"]
    assert len(uncertain) == 5
    assert not {row["file"] for row in uncertain} & {row["file"] for row in first}
    assert {row["guess"] for row in uncertain} <= {*CLASSES}
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in uncertain)

    fill_in("suggested-2.csv")  # what was labeled since is not suggested again, although the run has not seen it
    assert epass("label", photos, "suggested-2.csv").code == 0
    answer = epass("suggest", "run", "--n", "50", "--out", "third.csv")
    assert answer.code == 0
    left = {row["file"] for row in rows("third.csv") if row["why"] == "uncertain"}
    assert f"\n... and {len(left) - 10} more in the files" in answer.out
    assert left.isdisjoint(row["file"] for row in [*first, *again])
    assert len(left) == 40 - len({row["file"] for row in [*first, *again]})


def test_a_run_that_hid_labels_may_ask_for_them(epass: Epass, trained: Trained) -> None:
    answer = epass("suggest", trained.folder, "--n", "7", "--json")
    found = json.loads(answer.out)
    assert found["candidates"] == 1442 - 40
    assert sum(one["why"] == "uncertain" for one in found["suggestions"]) == 7
    assert next(iter(rows()[0])) == "row"
    assert Path("suggested.html").exists()
    assert "Next:" not in epass("suggest", trained.folder, "--n", "1").out  # nobody can label built-in digits


def test_a_calibrated_run_is_as_sure_as_predict_says(epass: Epass, photos: Path) -> None:
    labels = [f"{number}.png,{true_class(str(number))}" for number in range(12)]
    (photos / "labels.csv").write_text("\n".join(["path,label", *labels]))
    train(epass, photos)
    assert epass("suggest", "run", "--n", "28", "--out", "before.csv").code == 0
    before = {row["file"]: float(row["confidence"]) for row in rows("before.csv")}
    model = json.loads(Path("run/model.json").read_text())
    calibration = {"temperature": 0.05, "labels": 40, "source": "validation"}
    Path("run/model.json").write_text(json.dumps({**model, "calibration": calibration}))

    assert epass("suggest", "run", "--n", "28", "--out", "after.csv").code == 0
    assert epass("predict", "run", photos).code == 0
    sure = {row["file"]: float(row["confidence"]) for row in rows("predictions.csv")}
    after = {row["file"]: float(row["confidence"]) for row in rows("after.csv")}
    assert len(after) == 28
    assert after == pytest.approx({name: sure[name] for name in after}, abs=1e-4)
    assert max(abs(after[name] - before[name]) for name in after) > 0.05


def test_labels_that_look_wrong_and_odd_images_have_lists_of_their_own(epass: Epass, photos: Path) -> None:
    random = np.random.default_rng(1)
    Image.fromarray(random.integers(0, 2, (8, 8), dtype=np.uint8) * 255).save(photos / "odd.png")
    lines = [f"{name}.png,{true_class(str(name))}" for name in range(24) if name != 4]
    (photos / "labels.csv").write_text("\n".join(["path,label", "4.png,top", *lines]))
    answer = epass("suggest", photos, "--n", "3")
    assert "1 of 24 labels are listed because they look wrong" in answer.out
    found = {row["why"]: row for row in reversed(rows())}
    wrong = found["label error"]
    assert [wrong[key] for key in ("file", "guess", "known")] == ["4.png", "left", "top"]
    assert found["outlier"]["file"] == "odd.png"
    assert found["typical"]["guess"] in CLASSES  # logistic regression has seen the labels

    page = Path("suggested.html").read_text(encoding="utf-8")
    assert page.count("<h2>") == 3
    assert 'data-name="4.png" data-known="top"' in page
    assert "http" not in page.replace("http-equiv", "")
    Path("labeled.csv").write_text('"file","known","label"\n"4.png","top","left"\n')  # as the page saves it
    answer = epass("label", photos, "labeled.csv")
    assert (answer.code, answer.err) == (0, "")  # whoever was shown the old label may replace it
    assert "0 added, 1 changed, 0 as before" in answer.out
    assert rows(photos / "labels.csv")[0] == {"path": "4.png", "label": "left"}
    assert "4.png,top" in (photos / "labels.csv.bak").read_text()


def exported(name: str, *choices: str, **facts: Any) -> dict[str, Any]:
    """A task as Label Studio exports it."""
    result = [{"type": "choices", "from_name": "label", "value": {"choices": [*choices]}}]
    return {
        "id": 7,
        "data": {"image": f"/data/local-files/?d=photos/{name}", **facts},
        "annotations": [{"result": result}],
    }


def test_label_studio_gets_tasks_and_its_export_is_taken_in(epass: Epass, photos: Path) -> None:
    (photos / "labels.csv").write_text("path,label\n0.png,left\n1.png,top\n")
    answer = epass("suggest", photos, "--n", "2", "--out", "tasks.json")
    assert answer.out.endswith("Next: epass label photos EXPORT.json\n")
    task = json.loads(Path("tasks.json").read_text())[0]
    name = task["data"]["file"]
    assert task["data"]["image"] == f"/data/local-files/?d=photos/{name}"
    (prediction,) = task["predictions"]
    assert prediction["result"][0]["value"]["choices"][0] in CLASSES
    assert epass("label", photos, "tasks.json").err.startswith("Error: 'tasks.json' holds no label yet")

    skipped = {**exported("2.png", "top"), "annotations": [{"was_cancelled": True, "result": []}]}
    short = [{"image": "x", "file": "5.png", "label": "top"}, {"file": "6.png", "label": {"choices": ["left"]}}]
    tasks = [exported("3.png", "top"), exported("x", "top", file="more/31.png"), skipped, *short]
    Path("export.json").write_text(json.dumps(tasks))
    assert "4 added" in epass("label", photos, "export.json").out
    taken = {row["path"]: row["label"] for row in rows(photos / "labels.csv")[2:]}
    assert taken == {"3.png": "top", "more/31.png": "top", "5.png": "top", "6.png": "left"}


def test_vectors_are_suggested_and_labeled_by_their_rows(epass: Epass) -> None:
    random = np.random.default_rng(0)
    np.save("songs.npy", np.eye(4)[np.arange(40) % 2] + 0.1 * random.normal(size=(40, 4)))
    assert epass("suggest", "songs.npy", "--n", "4").out.endswith("Next: epass label songs.npy suggested.csv\n")
    assert not Path("suggested.html").exists()
    found = rows()
    assert {int(row["row"]) % 2 for row in found[:4]} == {0, 1}
    told = {row: "ab"[row % 2] for row in range(20)} | {8: "b"}
    Path("answers.csv").write_text("row,label\n" + "".join(f"{row},{label}\n" for row, label in told.items()))
    answer = epass("label", "songs.npy", "answers.csv")
    assert (answer.code, answer.err) == (0, "")
    assert len(rows("songs.csv")) == 40
    plan = ("--steps", "3", "--method", "fixmatch", "--set", "plan.labeled_batch=4", "--set", "net.hidden=8")
    assert "labeled     16 vectors" in epass("train", "songs.npy", *plan, "--out", "run").out
    assert epass("suggest", "run", "--n", "2", "--out", "more.csv").code == 0
    assert all(int(row["row"]) >= 20 for row in rows("more.csv") if row["why"] == "uncertain")
    wrong = [(row["row"], row["guess"], row["known"]) for row in rows("more.csv") if row["why"] == "label error"]
    assert wrong == [("8", "a", "b")]


def test_rows_of_vectors_are_those_of_their_table_although_some_are_for_tests(epass: Epass) -> None:
    lines = [
        f"{'test' if row < 3 else ''},{'ab'[row % 2] if row < 5 else ''},{row % 2},{1 - row % 2}" for row in range(9)
    ]
    Path("t.csv").write_text("\n".join(["split,label,x,y", *lines]))
    assert epass("suggest", "t.csv", "--n", "9").code == 0
    assert sorted(int(row["row"]) for row in rows()) == [5, 6, 7, 8]
    Path("a.csv").write_text("row,label\n8,c\n")
    assert epass("label", "t.csv", "a.csv").code == 0
    assert [row["label"] for row in rows("t.csv")] == ["a", "b", "a", "b", "a", "", "", "", "c"]


def test_a_table_of_images_is_labeled_in_its_own_column(epass: Epass, photos: Path) -> None:
    names = ["0.png", "./1.png", str((photos / "2.png").absolute()), "3.png"]
    lines = [f"{name};{text}" for name, text in zip(names, ("left", "top", "", ""), strict=True)]
    (photos / "list.csv").write_text("\n".join(["image;class", *lines]))
    assert epass("suggest", photos / "list.csv").code == 0
    assert {row["file"] for row in rows()} == {"2.png", "3.png"}
    fill_in()
    assert epass("label", photos / "list.csv", "suggested.csv").code == 0
    assert (photos / "list.csv").read_text().splitlines()[3:] == [f"{names[2]};left", "3.png;top"]


def refused(answer: Any, *words: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


def test_labels_are_not_lost_by_mistake(epass: Epass, photos: Path) -> None:
    table = photos / "labels.csv"
    table.write_text("path,label,who\n0.png,left,me\n1.png,top,me\n")
    before = table.read_bytes()

    def said(text: str, *flags: str) -> Any:
        Path("new.csv").write_text(f"file,label\n{text}\n")
        return epass("label", photos, "new.csv", *flags)

    refused(said("0.png,top"), "'0.png' is 'left' so far and 'top' in row 2 of 'new.csv'", "--force")
    refused(said("2.png,left\n./2.png,top"), "'2.png' is 'left' in row 2", "'top' in row 3: keep one")
    refused(said("99.png,left\n98.png,left"), "'99.png' in row 2 of 'new.csv' (and 1 more) is nothing that 'photos'")
    refused(said("2.png,"), "holds no label yet")
    assert table.read_bytes() == before
    assert not table.with_name("labels.csv.bak").exists()
    answer = said("0.png,top\n2.png,lefd", "--force")
    assert answer.code == 0
    assert "'lefd' is a new class, and there was 'left' already" in answer.err
    assert table.read_text() == "path,label,who\n0.png,top,me\n1.png,top,me\n2.png,lefd,\n"
    assert table.with_name("labels.csv.bak").read_bytes() == before
    assert "single label of lefd" in answer.err


def test_labels_may_name_an_image_by_any_way_that_leads_to_it(epass: Epass, photos: Path) -> None:
    ways = ["0.png", str((photos / "1.png").absolute()), "photos/2.png", "more\\31.png", "./photos/../photos/3.png"]
    ways += [str((photos / "more").absolute() / ".." / "more" / "33.png"), "photos\\more\\35.png"]
    Path("new.csv").write_text("file,label\n" + "".join(f"{way},left\n" for way in ways))
    answer = epass("label", photos, "new.csv")
    assert answer.code == 0, answer.err
    given = {row["path"] for row in rows(photos / "labels.csv")}
    assert given == {"0.png", "1.png", "2.png", "3.png", "more/31.png", "more/33.png", "more/35.png"}

    def said(way: str, label: str = "left") -> Any:
        Path("new.csv").write_text(f"file,label\n0.png,left\n{way},{label}\n")
        return epass("label", photos, "new.csv")

    refused(said("photos/0.png", "top"), "'0.png' is 'left' in row 2", "'top' in row 3: keep one")
    refused(
        said("/elsewhere/more/32.png"), "'/elsewhere/more/32.png' in row 3", ": 'more/32.png' is there: write it so."
    )
    refused(said("other\\4.png"), ": '4.png' is there: write it so.")
    Path("99.png").write_bytes((photos / "0.png").read_bytes())
    for outside in ("../99.png", str(Path("99.png").absolute()), "99.png", "photos/../99.png"):
        refused(said(outside), "is nothing that 'photos' has to train on: give the data")


def test_rows_of_the_folders_own_table_that_windows_wrote_are_changed_and_not_written_twice(
    epass: Epass, photos: Path
) -> None:
    (photos / "labels.csv").write_text("path,label\nmore\\31.PNG,left\n0.png,top\n")
    Path("new.csv").write_text("file,label\nmore/31.png,top\n")
    refused(epass("label", photos, "new.csv"), "'more/31.png' is 'left' so far and 'top' in row 2")
    assert epass("label", photos, "new.csv", "--force").code == 0
    assert (photos / "labels.csv").read_text().splitlines() == ["path,label", "more\\31.PNG,top", "0.png,top"]


def test_a_label_in_another_unicode_form_is_no_new_class(epass: Epass, photos: Path) -> None:
    (photos / "labels.csv").write_text("path,label\n0.png,Mo\u0308we\n1.png,left\n", encoding="utf-8")
    Path("new.csv").write_text("file,label\n2.png,M\u00f6we\n", encoding="utf-8")
    answer = epass("label", photos, "new.csv")
    assert answer.code == 0
    assert "new class" not in answer.err
    assert "Mo\u0308we 2" in answer.out


def test_a_table_that_windows_wrote_is_labeled(epass: Epass, photos: Path) -> None:
    lines = [f"more\\{number}.png,{CLASSES[number % 2] if number < 36 else ''}" for number in range(31, 40)]
    (photos / "list.csv").write_text("\n".join(["path,label", *lines]))
    assert epass("suggest", photos / "list.csv").code == 0
    fill_in()
    answer = epass("label", photos / "list.csv", "suggested.csv")
    assert answer.code == 0, answer.err
    assert all(row["label"] for row in rows(photos / "list.csv"))


def test_what_cannot_be_suggested_or_labeled_is_refused(epass: Epass, photos: Path) -> None:
    refused(epass("suggest", "digits"), "Every image of 'digits' has a label already")
    refused(epass("suggest", photos, "--out", "list.txt"), "ends in .csv, .json or .html")
    Path("mine.html").touch()
    refused(epass("suggest", photos, "--out", "mine.csv"), "'mine.html' exists and may hold labels")
    refused(epass("suggest", "photso"), "There is no file or folder 'photso'")
    np.save("v.npy", np.eye(3))
    refused(epass("suggest", "v.npy", "--out", "v.html"), "Vectors have no pictures")
    refused(epass("label", "digits", "v.npy"), "'digits'")
    refused(epass("label", photos, "nothing.csv"), "There is no file or folder 'nothing.csv'")
    refused(epass("label", photos, "mine.html"), "'Save the labels'")
    Path("bad.json").write_text('{"a": 1}')
    refused(epass("label", photos, "bad.json"), "no export of Label Studio (it is no list of tasks)")
    Path("two.json").write_text(json.dumps([exported("2.png", "a", "b")]))
    refused(epass("label", photos, "two.json"), "task 1 has 2 choices for '2.png': keep one")
    (photos / "labels.csv").write_text("id,breed\n1,x\n")
    Path("new.csv").write_text("file,label\n0.png,left\n")
    refused(epass("label", photos, "new.csv"), "a table of something else")


def test_an_outlier_is_not_typical_and_is_labeled_only_if_nothing_else_is_left() -> None:
    from epass.app.pools import Pool
    from epass.app.suggest import next_ones

    vectors = np.eye(4)[np.arange(40) % 2] + 0.05 * np.random.default_rng(0).normal(size=(40, 4))
    vectors[7] = [0, 0, 3, 0]  # a group of its own
    pool = Pool("songs", None, vectors, "numbers", np.full(40, -1), np.arange(40))  # type: ignore[arg-type]
    assert 7 in {one.place for one in next_ones(pool, 3, without=[])}
    assert 7 not in {one.place for one in next_ones(pool, 3, without=[7])}
    assert len(next_ones(pool, 40, without=[7])) == 40


def test_python_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.app.suggest import suggest

    monkeypatch.chdir(tmp_path)
    np.save("v.npy", np.random.default_rng(0).normal(size=(9, 4)))
    result = suggest("v.npy", n=3).result()
    assert len(result.values["suggestions"]) == 3
    assert result.files == {"table": Path("suggested.csv")}
    assert call("suggest", "v.npy", "--n", "0").code == 2
