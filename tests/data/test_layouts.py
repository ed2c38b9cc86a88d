"""What each folder of a data set is taken for, and what is refused because it can be read in two ways."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from epass.data import Dataset, Images, divide, open_dataset, survey_folder
from epass.errors import InputError
from epass.labeling.photos import list_photos

Make = Callable[..., str]


@pytest.fixture(params=["folder", "zip"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """`make("train/cat/1.png", ...)` writes these images, or a folder for a name with a slash at its end."""

    def write(*names: str) -> str:
        root = tmp_path / "photos"
        for level, name in enumerate(names):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(parents=True)
            else:
                Image.new("L", (8, 8), 10 * level).save(path, "png")
        if request.param == "folder":
            return str(root)
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as packed:
            for path in sorted(root.rglob("*")):
                packed.write(path, path.relative_to(tmp_path))
        return str(tmp_path / "photos.zip")

    return write


def relative(names: tuple[str, ...]) -> list[str]:
    return [name.removeprefix("photos/") for name in names]  # the folder around everything in an archive


def labels(dataset: Dataset) -> list[int]:
    return dataset.train.labels.tolist()


TRAIN = ("train/cat/1.png", "train/cat/2.png", "train/dog/1.png", "train/dog/2.png")


def test_layouts_of_before_have_the_same_images_in_the_same_order(make: Make) -> None:
    """Run folders name the images of their split, or count them: what could be read must not move."""
    made = open_dataset(
        make("labeled/b/x/1.png", "labeled/a/2.png", "labeled/a/10.png", "unlabeled/z.png", "test/b/1.png")
    )
    assert relative(made.train_names) == ["labeled/a/10.png", "labeled/a/2.png", "labeled/b/x/1.png", "unlabeled/z.png"]
    assert (labels(made), relative(made.test_names), made.validation) == ([0, 0, 1, -1], ["test/b/1.png"], 0)
    assert made.parts == {"labeled": "labeled images", "unlabeled": "unlabeled images", "test": "test images"}
    assert made.unused == made.skipped == ()


def test_plain_classes_have_the_same_images_in_the_same_order(make: Make) -> None:
    made = open_dataset(make("b/y.png", "b/x/1.png", "a/2.png", "C/1.png"))
    assert (made.classes, labels(made)) == (("C", "a", "b"), [0, 1, 2, 2])
    assert relative(made.train_names) == ["C/1.png", "a/2.png", "b/x/1.png", "b/y.png"]
    assert (made.test, made.parts, made.unused) == (None, {}, ())


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [
        ("train", "val", "test"),
        ("Training", "Valid", "TEST"),
        ("TRAIN", "validation", "testing"),
        ("labelled", "VAL", "Test"),
    ],
)
def test_parts_are_known_by_the_names_that_people_use(make: Make, train: str, val: str, test: str) -> None:
    files = [name.replace("train/", f"{train}/") for name in TRAIN]
    made = open_dataset(make(*files, f"{val}/dog/v.png", f"{test}/cat/t.png", "Unlabelled/u.png"))
    assert made.classes == ("cat", "dog")
    assert relative(made.train_names) == [*files, "Unlabelled/u.png", f"{val}/dog/v.png"]
    assert labels(made) == [0, 0, 1, 1, -1, 1]
    assert (relative(made.test_names), made.validation) == ([f"{test}/cat/t.png"], 1)
    assert made.parts == {
        train: "labeled images",
        "Unlabelled": "unlabeled images",
        val: "validation images",
        test: "test images",
    }


def test_validation_images_of_its_own_choose_a_step_and_are_not_trained_on(make: Make, refused) -> None:
    made = open_dataset(make(*TRAIN, "val/cat/v.png", "val/dog/v.png", "test/cat/t.png"))
    for settings in ({}, {"labels": 2}, {"all_labels": True}, {"include_labeled": "twice"}):
        split = divide(made, seed=3, **settings)
        assert split.validation is not None
        assert (split.positions.validation.tolist(), split.validation.labels.tolist()) == ([4, 5], [0, 1])
        assert not {4, 5} & {*split.positions.labeled.tolist(), *split.positions.unlabeled.tolist()}
        assert (len(split.test), split.held_out) == (1, False)
    with refused("'photos' has validation images of its own", "remove data.validation"):
        divide(made, seed=3, validation=0.5)


def test_the_draw_of_labels_does_not_depend_on_validation_images(make: Make) -> None:
    def draw() -> list[str]:
        made = open_dataset(make(*TRAIN, "test/cat/t.png"))
        return [made.train_names[position] for position in divide(made, seed=3, labels=2).positions.labeled]

    before = draw()
    make("val/cat/v.png")
    assert draw() == before


def test_without_a_test_folder_the_validation_images_are_the_test(make: Make) -> None:
    made = open_dataset(make(*TRAIN, "val/dog/v.png"))
    assert (relative(made.test_names), made.validation, len(made.train)) == (["val/dog/v.png"], 0, 4)
    assert made.parts == {"train": "labeled images", "val": "test images, since there are no others"}
    assert not divide(made, seed=0).held_out


def test_train_alone_is_no_class(make: Make) -> None:
    made = open_dataset(make(*TRAIN))
    assert (made.classes, labels(made), made.test) == (("cat", "dog"), [0, 0, 1, 1], None)


def test_what_is_not_used_is_listed(make: Make) -> None:
    made = open_dataset(make("labeled/a/1.png", "labeled/b/1.png", "zoo/1.png", "notes/", "loose.png"))
    assert made.unused == ("notes", "zoo", "1 image beside the folders")
    assert len(made.train) == 2


def test_folders_without_images_beside_train_are_no_classes(make: Make) -> None:
    assert open_dataset(make(*TRAIN, "annotations/", "scripts/old/")).unused == ("annotations", "scripts")


LABELED = "put the folders of all classes into one called 'labeled'"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            (*TRAIN, "cat/1.png", "dog/1.png"),
            ("parts of a data set ('train')", "move 'cat' and 'dog' elsewhere", LABELED),
        ),
        (("test/1.png", "cat/1.png", "dog/1.png"), ("('test')", "move 'cat' and 'dog' elsewhere", LABELED)),
        (("bus/1.png", "car/1.png", "train/1.png"), ("('train')", "move 'bus' and 'car' elsewhere", LABELED)),
        (("valid/1.png", "invalid/1.png"), ("('valid')", "move 'invalid' elsewhere", LABELED)),
        (("train/1.png", "test/1.png"), ("('test' and 'train')", "give every class a folder in 'train'", LABELED)),
        (("train/1.png", "val/1.png"), ("('train' and 'val')", "give every class a folder in 'train'", LABELED)),
        (
            ("val/a/1.png", "test/a/1.png"),
            ("('test' and 'val')", "add the labeled images as labeled/<class>/", LABELED),
        ),
        (("unlabeled/1.png", "a/1.png"), ("holds the single class 'a': add a second one",)),
        (("unlabeled/1.png", "a/1.png", "b/1.png", "2.png"), ("2.png' lies outside of the class folders",)),
        (("unlabeled/1.png", "a/1.png", "b/1.png", "c/"), ("c' holds no image: add images or remove it",)),
        (
            ("unlabeled/1.png", "bus/1.png", "train/1.png"),
            ("('train' and 'unlabeled')", "move 'bus' elsewhere", LABELED),
        ),
        (("unlabeled/1.png", "a/1.png", "b/1.png", "test/c/1.png"), ("Unknown test class 'c'", "a, b")),
        (("a/1.png", "b/1.png", "test/"), ("test' holds no class: give every class a folder",)),
        (("a/1.png", "b/1.png", "test/a/1.png", "test/c/1.png"), ("('test')", "move 'a' and 'b' elsewhere", LABELED)),
        (("a/1.png", "b/1.png", "test/a/1.png", "test/1.png"), ("('test')", "move 'a' and 'b' elsewhere", LABELED)),
        (
            ("train/labeled/a/1.png", "train/unlabeled/1.png", "test/a/1.png"),
            (
                "train' can be read in two ways",
                "'labeled' and 'unlabeled' as parts",
                "move them to",
                "call them otherwise",
            ),
        ),
        (("labeled/train/1.png", "labeled/val/1.png"), ("'train' and 'val' as parts", "call them otherwise")),
        (("labeled/a/1.png", "labeled/b/1.png", "labeled/unlabeled/1.png"), ("'unlabeled' as parts", "move them to")),
        ((*TRAIN, "labeled/cat/1.png"), ("'labeled' and 'train'", "both read like the labeled images")),
        ((*TRAIN, "Test/cat/1.png", "test/cat/1.png"), ("'Test' and 'test'", "both read like the test images")),
        ((*TRAIN, "val/cat/1.png", "validation/cat/1.png"), ("'val' and 'validation'", "validation images")),
        ((*TRAIN, "test/1.png"), ("test' holds images without classes", "'unlabeled'")),
        ((*TRAIN, "val/cow/1.png", "test/cat/1.png"), ("Unknown validation class 'cow'", "cat, dog")),
        (("train/a/1.png", "train/2.png", "train/b/1.png"), ("2.png' lies outside of the class folders",)),
        (("train/a/1.png", "test/a/1.png"), ("single class 'a'",)),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    refused, make: Make, names: tuple[str, ...], words: tuple[str, ...]
) -> None:
    path = make(*names)
    with refused(*words):
        open_dataset(path)


def test_classes_may_lie_beside_the_folder_of_unlabeled_images(make: Make) -> None:
    made = open_dataset(make("dog/1.png", "cat/x/1.png", "Unlabeled/y/u.png"))
    assert (made.classes, labels(made), made.test) == (("cat", "dog"), [0, 1, -1], None)
    assert relative(made.train_names) == ["cat/x/1.png", "dog/1.png", "Unlabeled/y/u.png"]
    assert made.parts == {"Unlabeled": "unlabeled images", "the others": "labeled images, a class each"}
    assert list(made.parts) == ["Unlabeled", "the others"]  # that nobody has to ask which others
    assert made.unused == made.skipped == ()
    made = open_dataset(make("val/cat/v.png", "test/dog/t.png"))
    assert (made.classes, labels(made), made.validation) == (("cat", "dog"), [0, 1, -1, 0], 1)
    assert relative(made.test_names) == ["test/dog/t.png"]


def test_what_cannot_be_used_beside_class_folders_is_named_once(make: Make) -> None:
    root = Path(make("a/1.png", "b/1.png", "unlabeled/1.png"))
    if root.is_dir():
        (root / "c.png").symlink_to("/nowhere.png")
        assert [name for name, _ in open_dataset(root, skip_unreadable=True).skipped] == ["c.png"]


def test_classes_may_lie_beside_a_test_of_these_classes(make: Make) -> None:
    made = open_dataset(make("cat/1.png", "cow/1.png", "dog/1.png", "test/cat/t.png", "test/dog/t.png"))
    assert (made.classes, labels(made)) == (("cat", "cow", "dog"), [0, 1, 2])
    assert relative(made.test_names) == ["test/cat/t.png", "test/dog/t.png"]
    assert made.parts == {"the others": "labeled images, a class each", "test": "test images"}


def test_a_table_labels_more_images_than_those_in_class_folders(tmp_path: Path) -> None:
    for number, name in enumerate(("cat/1.png", "dog/1.png", "unlabeled/2.png", "unlabeled/3.png", "loose.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 10 * number).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("path,label\nunlabeled/2.png,dog\nloose.png,cow\n")
    made = open_dataset(tmp_path)
    assert made.classes == ("cat", "cow", "dog")
    assert dict(zip(made.train_names, labels(made), strict=True)) == {
        "cat/1.png": 0,
        "dog/1.png": 2,
        "unlabeled/2.png": 2,
        "unlabeled/3.png": -1,
        "loose.png": 1,
    }
    assert made.unused == ()
    assert list_photos(tmp_path, pytest.fail)[1] == ["cat", "dog", "", "", ""]


def test_any_name_is_a_class_in_a_labeled_folder(make: Make) -> None:
    made = open_dataset(make("labeled/bus/1.png", "labeled/train/1.png", "labeled/test/1.png"))
    assert made.classes == ("bus", "test", "train")


def test_an_empty_folder_of_unlabeled_images_is_a_plain_case(make: Make) -> None:
    made = open_dataset(make("labeled/a/1.png", "labeled/b/1.png", "test/a/t.png", "unlabeled/"))
    assert made.parts["unlabeled"] == "unlabeled images, but it holds none"
    assert isinstance(made.train, Images)
    split = divide(made, seed=0)
    assert (len(split.labeled), len(split.unlabeled)) == (2, 2)  # the labeled ones, without their labels
    assert len(divide(made, seed=0, include_labeled=False).unlabeled) == 0


def test_a_check_counts_validation_images_as_such(tmp_path: Path) -> None:
    from epass.checking import as_values, examine, facts

    for number, name in enumerate((*TRAIN, "val/cat/v.png", "test/dog/t.png")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 20 * number).save(tmp_path / name)
    found = examine(survey_folder(tmp_path, 8))
    assert facts(found)["images"] == "4 labeled, 0 unlabeled, 1 validation, 1 test"
    assert as_values(found)["classes"]["cat"] == {"labeled": 2, "unlabeled": 0, "validation": 1, "test": 0}


def test_a_folder_that_cannot_be_opened_is_named(refused, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("labeled/a/1.png", "labeled/b/1.png", "unlabeled/1.png")
    whole = Path.iterdir

    def closed(self: Path):
        if self.name == "unlabeled":
            raise PermissionError(13, "Permission denied", str(self))
        return whole(self)

    monkeypatch.setattr(Path, "iterdir", closed)
    if Path(path).is_dir():
        with pytest.raises(InputError, match=r"unlabeled' cannot be opened \(Permission denied\): put a folder there"):
            open_dataset(path, skip_unreadable=True)
