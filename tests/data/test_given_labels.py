"""Labels in a table inside of a folder of images."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass import label
from epass.data import Vectors, divide, open_dataset, side_of_photos, survey_folder
from epass.data.read.folder import list_folder

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make("1.png", "cat/2.png", labels="path,label")` a folder."""

    def made(*names: str, labels: str | None = None) -> Path:
        root = tmp_path / "photos"
        for level, name in enumerate(names):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), level).save(root / name)
        if labels is not None:
            (root / "labels.csv").write_text(labels, encoding="utf-8")
        return root

    return made


def labels_of(folder: Path) -> dict[str, str]:
    made = open_dataset(str(folder))
    numbers = zip(made.train_names, made.train.labels.tolist(), strict=True)
    return {name: made.classes[number] if number >= 0 else "" for name, number in numbers}


FLAT = ("1.png", "2.png", "3.png", "more/4.png")
TABLE = "path,label\n1.png,dog\n./3.png,cat\nmore/4.png,\n"


def test_images_in_no_class_folder_get_the_labels_of_a_table(make: Make) -> None:
    folder = make(*FLAT, labels=TABLE)
    assert labels_of(folder) == {"1.png": "dog", "2.png": "", "3.png": "cat", "more/4.png": ""}
    made = open_dataset(str(folder))
    assert (made.classes, made.parts) == (("cat", "dog"), {"labels.csv": "the labels of 2 images"})
    assert survey_folder(folder).dataset.classes == ("cat", "dog")


def test_images_beside_the_parts_are_not_used_beside_a_table_either(make: Make) -> None:
    folder = make("labeled/a/1.png", "labeled/b/2.png", "3.png", labels="path,label\nlabeled/b/2.png,c\n")
    assert labels_of(folder) == {"labeled/a/1.png": "a", "labeled/b/2.png": "c"}
    assert open_dataset(str(folder)).unused == ("1 image beside the folders",)


def test_runs_beside_unlabeled_images_are_no_classes(make: Make) -> None:
    folder = make(
        "unlabeled/1.png",
        "unlabeled/2.png",
        "runs/first/1.png",
        labels="path,label\nunlabeled/1.png,a\nunlabeled/2.png,b\n",
    )
    for name in ("recipe.toml", "environment.json"):
        (folder / "runs" / "first" / name).touch()
    assert labels_of(folder) == {"unlabeled/1.png": "a", "unlabeled/2.png": "b"}
    assert open_dataset(str(folder)).unused == ("runs",)


def test_a_table_in_capital_letters_is_the_same_table(make: Make, refused) -> None:
    folder = make(*FLAT, labels=TABLE)
    (folder / "labels.csv").rename(folder / "Labels.CSV")
    assert labels_of(folder) == {"1.png": "dog", "2.png": "", "3.png": "cat", "more/4.png": ""}
    assert open_dataset(str(folder)).parts == {"Labels.CSV": "the labels of 2 images"}
    (folder / "new.csv").write_text("path,label\n2.png,dog\n")
    list(label(str(folder), str(folder / "new.csv")))
    assert not (folder / "labels.csv").exists()  # beside it
    assert labels_of(folder)["2.png"] == "dog"
    (folder / "1.png").unlink()
    with refused("in row 2 of Labels.CSV"):
        open_dataset(str(folder))
    (folder / "labels.csv").write_text("path,label\n2.png,cat\n3.png,dog\n")  # the usual name goes before
    assert labels_of(folder)["2.png"] == "cat"


def test_without_the_table_they_are_refused_as_before(make: Make, refused) -> None:
    with refused("1.png' lies outside of the class folders"):
        open_dataset(str(make(*FLAT)))


def test_a_folder_of_nothing_but_images_says_what_to_do(make: Make, refused) -> None:
    with refused("have no classes", "give every class a folder", "epass suggest "):
        open_dataset(str(make("1.png", "2.png")))


@pytest.mark.parametrize("names", [FLAT, FLAT[:3]], ids=["folders in it", "flat"])
def test_a_table_of_other_columns_is_named_where_nothing_else_says_the_classes(
    make: Make, refused, names: tuple[str, ...]
) -> None:
    folder = make(*names, labels="Dateiname;Klasse\n1.png;dog\n3.png;cat\n")
    sentence = f"'{folder}/labels.csv' is a table of something else than paths and labels"
    with refused(sentence, "has 'Dateiname', 'Klasse': call the two columns 'path' and 'label'"):
        open_dataset(str(folder))
    with refused(sentence):  # before somebody labels what cannot be taken in afterwards
        list_folder(folder, labels_needed=False)
    (folder / "labels.csv").write_text("1.png,dog\n3.png,cat\n")
    with refused("its first row has '1.png', 'dog'"):
        open_dataset(str(folder))


def test_a_table_of_other_columns_says_nothing_where_folders_say_the_classes(make: Make) -> None:
    made = open_dataset(str(make("labeled/cat/1.png", "labeled/dog/2.png", "3.png", labels="when,who\n2020,me\n")))
    assert (made.classes, made.unused) == (("cat", "dog"), ("1 image beside the folders",))


def test_a_split_in_the_table_of_a_folder_is_refused_where_it_is_not_training(make: Make, refused) -> None:
    folder = make(*FLAT[:3], labels="path,label,Split\n1.png,dog,train\n2.png,,\n3.png,cat,Training\n")
    assert labels_of(folder) == {"1.png": "dog", "2.png": "", "3.png": "cat"}
    for split, column in (("test", "split"), ("VAL", "Split"), ("holdout", "SPLIT")):
        (folder / "labels.csv").write_text(f"path,label,{column}\n1.png,dog,train\n2.png,dog,{split}\n3.png,cat,\n")
        with refused(f"Row 3 of '{folder}/labels.csv' has the split '{split}'", f"give '{folder}/labels.csv', or"):
            open_dataset(str(folder))


def test_unlabeled_images_of_a_layout_get_labels_and_class_folders_are_corrected(make: Make) -> None:
    parts = ("labeled/cat/1.png", "labeled/dog/2.png", "unlabeled/3.png", "unlabeled/4.png", "test/cat/5.png")
    table = "file,label\nunlabeled/3.png,emu\nlabeled/dog/2.png,cat\nunlabeled/4.png,dog\n"
    folder = make(*parts, labels=table)
    expected = {"labeled/cat/1.png": "cat", "labeled/dog/2.png": "cat", "unlabeled/3.png": "emu"}
    assert labels_of(folder) == {**expected, "unlabeled/4.png": "dog"}
    made = open_dataset(str(folder))
    assert made.test is not None
    assert made.classes[made.test.labels[0]] == "cat"


def test_a_test_folder_needs_no_labeled_folder_beside_a_table(make: Make) -> None:
    for names in (("1.png", "2.png"), ("unlabeled/1.png", "unlabeled/2.png")):
        folder = make(*names, "test/cat/5.png", labels=f"path,label\n{names[0]},cat\n{names[1]},dog\n")
        made = open_dataset(str(folder))
        assert made.train_names == names
        assert divide(made, seed=0).test.labels.tolist() == [0]
        for name in names:
            (folder / name).unlink()


def test_rows_that_cannot_be_meant_are_refused(make: Make, refused) -> None:
    folder = make(*FLAT, labels=TABLE + "5.png,cat\n")
    with refused("5.png' in row 5 of labels.csv is not there (no such file)"):
        open_dataset(str(folder))
    (folder / "5.txt").write_text("no image")
    (folder / "labels.csv").write_text(TABLE + "5.txt,cat\n")
    with refused("5.txt' in row 5 of labels.csv is no image to train on"):
        open_dataset(str(folder))
    assert len(open_dataset(str(folder), skip_unreadable=True).train) == 4
    (folder / "labels.csv").write_text(TABLE + "more/../1.png,cat\n")
    with refused("Rows 2 and 5", "both name '1.png'"):
        open_dataset(str(folder))
    (folder / "labels.csv").write_text("path,label\n,cat\n")
    with refused("Row 2", "has no path"):
        open_dataset(str(folder))
    (folder / "labels.csv").write_text("path,label\n1.png,cat\n")
    with refused("single class 'cat'"):
        open_dataset(str(folder))


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("./1.JPG", "1.JPG"),
        ("more\\4.png", "more/4.png"),
        (".\\more\\4.png", "more/4.png"),
        ("photos/1.JPG", "1.JPG"),
        ("HOME/photos/more/4.png", "more/4.png"),  # as it is from above the folder
        ("../photos/1.JPG", "1.JPG"),
        ("WHOLE/more/4.png", "more/4.png"),
        ("1.jpg", "1.JPG"),
        ("More\\4.PNG", "more/4.png"),
        ("Mo\u0308we.png", "M\u00f6we.png"),
        ("M\u00d6WE.png", "M\u00f6we.png"),
        ("photos/2.png", "photos/2.png"),  # which is there, and so is 2.png
    ],
)
def test_a_row_may_name_an_image_by_any_way_that_leaves_no_doubt(make: Make, way: str, name: str) -> None:
    folder = make("1.JPG", "2.png", "3.png", "more/4.png", "photos/2.png", "M\u00f6we.png")
    way = way.replace("HOME", folder.parent.name).replace("WHOLE", str(folder))
    (folder / "labels.csv").write_text(f"path,label\n3.png,cat\n{way},dog\n", encoding="utf-8")
    assert {name: label for name, label in labels_of(folder).items() if label} == {"3.png": "cat", name: "dog"}


def test_a_class_in_another_unicode_form_is_the_same_class(make: Make) -> None:
    folder = make("labeled/Mo\u0308we/1.png", "labeled/cat/2.png", "unlabeled/3.png", "test/M\u00f6we/4.png")
    made = open_dataset(str(folder))
    assert made.test is not None
    assert (made.classes, made.test.labels.tolist()) == (("Mo\u0308we", "cat"), [0])
    (folder / "labels.csv").write_text("path,label\nunlabeled/3.png,M\u00f6we\n", encoding="utf-8")
    assert labels_of(folder)["unlabeled/3.png"] == "Mo\u0308we"


def test_what_a_row_may_mean_is_said_where_there_is_doubt(make: Make, refused, tmp_path: Path) -> None:
    folder = make("3.png", "a/1.png", "b/2.jpg", "x/5.png", "X/5.PNG")
    (tmp_path / "1.png").write_bytes((folder / "3.png").read_bytes())
    for way, said in (
        ("1.png", "1.png' in row 3 of labels.csv is not there (no such file; 'a/1.png' is)"),
        ("../1.png", "../1.png' in row 3 of labels.csv is no image to train on; 'a/1.png' is"),
        ("b/2.heic", "b/2.heic' in row 3 of labels.csv is not there (no such file; 'b/2.jpg' is)"),
        ("X\\5.png", "in row 3 of labels.csv is not there (no such file; 'X/5.PNG' is)"),
        ("c/7.png", "c/7.png' in row 3 of labels.csv is not there (no such file): "),
    ):
        (folder / "labels.csv").write_text(f"path,label\n3.png,cat\n{way},dog\n")
        with refused(said):
            open_dataset(str(folder))
    (folder / "labels.csv").write_text("path,label\n/other/3.png,cat\n8.png,dog\n")
    with refused("2 images of", "'/other/3.png' in row 2", "'3.png' is", "'8.png' in row 3"):
        open_dataset(str(folder))
    (folder / "labels.csv").write_text("path,label\n3.png,cat\na/1.png,dog\na\\1.png,cat\n")
    with refused("Rows 3 and 4", "both name 'a/1.png'"):
        open_dataset(str(folder))


def test_a_table_of_something_else_beside_class_folders_is_passed_over(make: Make) -> None:
    folder = make("cat/1.png", "dog/2.png", labels="id,breed\n1,x\n")
    assert labels_of(folder) == {"cat/1.png": "cat", "dog/2.png": "dog"}


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_name_that_is_no_text_gets_its_label(make: Make) -> None:
    folder = make("1.png", "2.png", labels="path,label\nM\\xf6we.png,gull\n2.png,cat\n")
    os.rename(folder / "1.png", os.fsencode(folder) + b"/M\xf6we.png")
    assert labels_of(folder) == {"2.png": "cat", "M\\xf6we.png": "gull"}


def test_what_is_to_be_labeled_needs_no_label(make: Make, tmp_path: Path) -> None:
    folder = make(*FLAT)
    made = open_dataset(str(folder), labels_needed=False)
    assert (made.classes, made.train.labels.tolist()) == ((), [-1] * 4)
    assert side_of_photos(str(folder)) == 8
    (folder / "table.csv").write_text("path,label,split\n1.png,,\n2.png,cat,\n3.png,dog,test\n")
    made = open_dataset(str(folder / "table.csv"), labels_needed=False)
    assert (made.classes, made.train.labels.tolist(), made.test) == (("cat",), [-1, 0], None)
    np.save(tmp_path / "v.npy", np.eye(3))
    made = open_dataset(str(tmp_path / "v.npy"), labels_needed=False)
    assert isinstance(made.train, Vectors)
    (tmp_path / "v.csv").write_text("label,x\ncat,1\ndog,1\n,1\n")
    made = open_dataset(str(tmp_path / "v.npy"), labels_needed=False)
    assert (made.classes, made.train.labels.tolist()) == (("cat", "dog"), [0, 1, -1])
