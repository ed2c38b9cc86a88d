from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pictures_with_copies import darker, photos
from PIL import Image
from torch import Tensor

from epass.checking import Findings, as_values, examine, facts, leaks, verdict, write_check
from epass.checking.duplicates import contradictions, digests, exact_groups
from epass.checking.findings import assign, constant_images
from epass.data import Dataset, Images, divide, from_arrays, open_dataset, survey_arrays, survey_folder
from epass.engine.copies import check_copies
from epass.errors import InputError
from epass.recipe import read_recipe

CLASSES = ["cat", "dog"]


def made(train: Tensor, labels: list[int], test: Tensor | None = None) -> Dataset:
    """A data set of two classes; the labels of the test images alternate."""
    if test is None:
        return from_arrays(train.numpy(), np.array(labels), classes=CLASSES)
    return from_arrays(train.numpy(), np.array(labels), test.numpy(), np.arange(len(test)) % 2, classes=CLASSES)


@pytest.fixture
def planted() -> Findings:
    """Train 0-19 have labels. Test 0 and 1 are train 4 and 30, test 2 is train 5, darker; train 6 is train 7."""
    train, test = photos(40), photos(12, seed=1)
    train[7] = train[6]
    train[21] = train[22] = train[20]
    train[39] = 17
    test[0], test[1], test[2] = train[4], train[30], darker(train[5])
    labels = [number % 2 for number in range(20)] + [-1] * 20
    return examine(survey_arrays(made(train, labels, test)))


def test_leaks_are_told_apart_by_where_they_lead(planted: Findings) -> None:
    labeled, unlabeled = planted.leaks_into("labeled"), planted.leaks_into("unlabeled")

    assert [(leak.test.name, leak.other.name, leak.kind) for leak in labeled] == [
        ("test 0", "train 4", "exact"),
        ("test 2", "train 5", "near"),
    ]
    assert [(leak.test.name, leak.other.name, leak.kind) for leak in unlabeled] == [("test 1", "train 30", "exact")]
    assert labeled[0].likeness == 1 > labeled[1].likeness > 0.9
    assert list(planted.leaks) == labeled + unlabeled
    assert planted.serious


def test_duplicates_are_groups_and_contradictions_are_seen(planted: Findings) -> None:
    groups = {tuple(member.name for member in group.members): group for group in planted.groups}

    assert set(groups) == {
        ("train 20", "train 21", "train 22"),
        ("train 4", "test 0"),
        ("train 5", "test 2"),
        ("train 6", "train 7"),
        ("train 30", "test 1"),
    }
    assert len(planted.groups[0].members) == 3
    assert groups["train 20", "train 21", "train 22"].kinds == {"exact"}
    assert groups["train 5", "test 2"].kinds == {"near"}
    # test 2 is a cat, train 5 a dog; an image that nobody labeled contradicts nothing
    assert [group.members[0].name for group in planted.contradictions] == ["train 5", "train 6"]
    assert [member.label for member in planted.contradictions[1].members] == ["cat", "dog"]


def test_constant_images_are_named(planted: Findings) -> None:
    assert [member.name for member in planted.constant] == ["train 39"]
    images = photos(3)
    images[1] = torch.tensor([200, 0, 10])[:, None, None]  # one color
    images[2, :2] = 5  # two channels of three
    assert constant_images(images) == [1]


def test_the_words_say_what_was_found(planted: Findings) -> None:
    assert verdict(planted).startswith("2 test images (16.7%) can be answered from memory")
    assert facts(planted) == {
        "images": "20 labeled, 20 unlabeled, 12 test",
        "unreadable": "no files",
        "leaks, labeled": "2 test images (1 exact, 1 near)",
        "leaks, unlabeled": "1 test image (1 exact)",
        "contradictions": "2 groups of duplicates with different labels",
        "duplicates": "11 images in 5 groups (4 exact, 1 near)",
        "classes": "2, 10 labeled images each",
        "constant": "1 image of one color",
        "odd files": "no files",
    }
    values = as_values(planted)
    assert values["leaks"]["labeled"][0] == {
        "test": {"name": "test 0", "part": "test", "label": "cat"},
        "other": {"name": "train 4", "part": "labeled", "label": "cat"},
        "kind": "exact",
        "likeness": 1.0,
    }
    assert values["classes"]["dog"] == {"labeled": 10, "unlabeled": 0, "test": 6}
    assert sum(group["contradicts"] for group in values["duplicates"]) == 2


def test_the_verdict_follows_what_is_gravest() -> None:
    train, test, labels = photos(20), photos(6, seed=1), [0, 1] * 5 + [-1] * 10
    assert verdict(examine(survey_arrays(made(train, labels, test)))).startswith("No test image is among")
    test[0] = train[15]
    found = examine(survey_arrays(made(train, labels, test)))
    assert verdict(found).startswith("Among the unlabeled images are copies of 1 test image")
    assert not found.serious
    train[1] = train[0]
    found = examine(survey_arrays(made(train, labels, test)))
    assert verdict(found) == "Look at 1 group of duplicates with different labels."


def test_classes_are_counted_and_imbalance_is_said() -> None:
    found = examine(survey_arrays(made(photos(40), [0] * 30 + [1] * 10, photos(1, seed=1))))

    assert found.class_counts["labeled"] == (30, 10)
    assert found.imbalance == 3
    assert facts(found)["classes"] == (
        "2, 10 to 30 labeled images each; 'cat' has 3.0 times as many as 'dog'; without test images: dog"
    )


@pytest.mark.parametrize("with_test", [True, False])
def test_images_are_divided_as_for_training(with_test: bool) -> None:
    train = photos(60)
    dataset = made(train, [0, 1, 0, 1, -1] * 12, photos(10, seed=1) if with_test else None)
    pixels = train if dataset.test is None else torch.cat([train, dataset.test.pixels])

    parts = assign(dataset, 8, seed=3)
    split = divide(dataset, labels=8, seed=3, include_labeled=False)

    for part, images in (("labeled", split.labeled), ("unlabeled", split.unlabeled), ("test", split.test)):
        mine = Images(pixels[[place == part for place in parts]], torch.empty(0))
        assert sorted(digests(mine)) == sorted(digests(images))


def test_leaks_of_a_split_are_exact_ones_into_the_labeled_images_only() -> None:
    train, test = photos(20), photos(6, seed=1)
    test[1], test[3], test[4], test[5] = train[9], train[15], darker(train[2]), train[9]
    split = divide(made(train, [0, 1] * 5 + [-1] * 10, test), labels=None, seed=0)

    assert leaks(split) == [(1, 9), (5, 9)]


def test_contradictions_are_exact_copies_with_other_labels() -> None:
    train = photos(12)
    train[5], train[8], train[9], train[11] = train[2], train[2], darker(train[4]), train[3]
    labels = torch.tensor([0, 1] * 6)

    prints = digests(Images(train, labels))
    assert contradictions(prints, labels) == [[2, 5, 8]]  # those of 3 and 11 agree, and 9 is only like 4
    assert contradictions(prints[:5], labels[:5]) == []


def test_copies_are_shown_by_a_check_that_reads_the_images_as_training_does() -> None:
    train = photos(8)
    train[3] = train[0]
    dataset = made(train, [0, 1] * 4, photos(4, seed=1))
    recipe = read_recipe("digits-simmatch").with_settings({"data.name": "wide.npz", "data.image_size": 16})
    doubt = check_copies(recipe, dataset, divide(dataset, labels=None, seed=0), allow_leak=False)
    assert doubt.endswith(
        "'train 0' (cat) and 'train 3' (dog): correct them (epass check wide.npz --image-size 16 lists all)."
    )


def test_the_digits_have_no_leaks() -> None:
    assert leaks(divide(open_dataset("digits"), labels=None, seed=0)) == []


def test_equal_pixels_have_equal_digests() -> None:
    images = photos(4)
    images[2] = images[0]
    turned = Images(images.permute(0, 1, 3, 2), torch.empty(0))  # not contiguous

    assert exact_groups(digests(turned)) == [[0, 2], [1], [3]]
    images[2, 0, 5, 5] ^= 1
    assert len(exact_groups(digests(turned))) == 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "photos"
    for number, image in enumerate(photos(24, side=40)):
        place = home / ("unlabeled" if number >= 16 else f"labeled/{CLASSES[number % 2]}") / f"{number:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place)
    return home


def test_a_folder_is_read_as_for_training(folder: Path) -> None:
    survey, dataset = survey_folder(folder, 32), open_dataset(str(folder), image_size=32)

    assert torch.equal(survey.dataset.train.pixels, dataset.train.pixels)
    assert torch.equal(survey.dataset.train.labels, dataset.train.labels)
    assert (survey.dataset.name, survey.dataset.classes) == (dataset.name, dataset.classes)
    assert (survey.dataset.mean, survey.dataset.augment) == (dataset.mean, dataset.augment)
    assert survey.train_names[0] == "labeled/cat/00.png"
    assert survey.unreadable == ()
    assert survey.files[0] == ("labeled/cat/00.png", 40, 40, "RGB")


def test_every_damaged_file_is_named_and_the_others_are_read(folder: Path) -> None:
    (folder / "labeled/cat/02.png").write_text("no image")
    whole = (folder / "unlabeled/20.png").read_bytes()
    (folder / "unlabeled/20.png").write_bytes(whole[: len(whole) // 2])

    survey = survey_folder(folder, 32)

    assert [name for name, _ in survey.unreadable] == ["labeled/cat/02.png", "unlabeled/20.png"]
    assert survey.unreadable[0][1] == "cannot be read (not an image): replace or remove it"
    assert len(survey.dataset.train) == len(survey.train_names) == 22
    assert "labeled/cat/02.png" not in survey.train_names
    (folder / "labeled/cat/02.png").unlink()
    (folder / "unlabeled/20.png").unlink()
    assert torch.equal(open_dataset(str(folder), image_size=32).train.pixels, survey.dataset.train.pixels)
    assert torch.equal(open_dataset(str(folder), image_size=32).train.labels, survey.dataset.train.labels)
    found = examine(survey)
    assert found.serious
    assert verdict(found).startswith("Replace or remove 2 files")


def test_a_class_of_damaged_files_is_refused(folder: Path) -> None:
    for path in (folder / "labeled/dog").iterdir():
        path.write_text("no image")

    with pytest.raises(InputError, match=r"labeled images of class 'dog' in .* can be read"):
        survey_folder(folder, 32)


def test_a_test_set_of_damaged_files_is_refused(folder: Path) -> None:
    (folder / "test/cat").mkdir(parents=True)
    (folder / "test/cat/1.png").write_text("no image")

    with pytest.raises(InputError, match="None of the test images in"):
        survey_folder(folder, 32)


def test_odd_files_are_explained(folder: Path) -> None:
    Image.new("RGB", (300, 60), "red").save(folder / "unlabeled/wide.png")
    Image.new("L", (50, 50), 3).save(folder / "unlabeled/gray.png")
    Image.new("RGB", (20, 50), "blue").save(folder / "unlabeled/small.png")

    found = examine(survey_folder(folder, 32))

    assert [tuple(odd) for odd in found.odd] == [
        ("unlabeled/gray.png", "mode L, where most files have RGB"),
        ("unlabeled/small.png", "20 x 50 pixels: enlarged to 32 x 32"),
        ("unlabeled/small.png", "20 x 50 pixels: 60% of it lie outside of the central square"),
        ("unlabeled/wide.png", "300 x 60 pixels: 80% of it lie outside of the central square"),
    ]
    assert facts(found)["odd files"] == "3 files"


def test_the_page_shows_the_images_and_escapes_names(tmp_path: Path) -> None:
    train, test = photos(20), photos(70, seed=1)
    test[:65] = train[0]
    dataset = from_arrays(train.numpy(), np.arange(20) % 2, test.numpy(), np.arange(70) % 2, classes=["<b>", "dog"])

    page = write_check(tmp_path / "page.html", examine(survey_arrays(dataset)), dataset).read_text()

    assert "The first 60 of 65 test images." in page
    assert "66 images, exact, 8 shown" in page
    assert page.count('src="data:image/png;base64,') == 2 * 60 + 8
    assert "<b>&lt;b&gt;</b>" in page
    assert "<b><b>" not in page
    assert "can be answered from memory" in page
    assert "Odd files" not in page
    assert "--accent" in page  # the style of the other pages
    assert ".strip" in page


def test_the_page_shows_each_image_itself(tmp_path: Path) -> None:
    import base64
    import io
    import re

    train, test = photos(20, channels=1), photos(4, channels=1, seed=1)
    test[3] = train[7]
    dataset = made(train, [0, 1] * 10, test)

    page = write_check(tmp_path / "page.html", examine(survey_arrays(dataset)), dataset).read_text()

    shown = [np.array(Image.open(io.BytesIO(base64.b64decode(text)))) for text in re.findall(r"base64,([^\"]+)", page)]
    assert len(shown) == 4  # the leak, and the group with different labels
    assert all(np.array_equal(image, train[7, 0].numpy()) for image in shown)
