"""Commands say what somebody may not have meant about the data that they open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from calling import Epass, Trained

from epass.app.doubts import doubtful_classes
from noise_photos import save

PASSED = "Warning: Passed over 3 files of kinds that are not read (.heic 2, .avif 1): convert them to JPEG.\n"
TINY = ("--features", "none", "--net", "small", "--set", "net.width=4", "--steps", "1", "--device", "cpu")


@pytest.fixture
def phone(epass: Epass, tmp_path: Path) -> Path:
    """Photos of two classes, and three files beside them that are not read."""
    save([f"{label}/{number:02d}.png" for label in ("cat", "dog") for number in range(8)], seed=0)
    for name in ("cat/a.HEIC", "dog/b.heic", "dog/c.avif"):
        (tmp_path / "photos" / name).write_bytes(b"any")
    return tmp_path / "photos"


def test_train_and_check_and_compare_say_what_they_pass_over(epass: Epass, phone: Path) -> None:
    for command in (
        ("check", "photos"),
        ("train", "photos", *TINY),
        ("compare", "photos", "--methods", "fixmatch", "--out", "compared", *TINY),
    ):
        answer = epass(*command)
        assert PASSED in answer.err, command


def test_suggest_says_what_it_passes_over(epass: Epass, phone: Path) -> None:
    (phone / "unlabeled").mkdir()
    (phone / "cat").rename(phone / "unlabeled" / "cat")
    (phone / "dog").rename(phone / "unlabeled" / "dog")
    assert PASSED in epass("suggest", "photos", "--n", "3", "--device", "cpu").err


def test_predict_says_what_it_passes_over(epass: Epass, phone: Path, trained: Trained) -> None:
    answer = epass("predict", trained.folder, "photos")
    assert (answer.code, answer.err) == (0, PASSED)


def test_whoever_is_given_other_images_says_what_is_passed_over(epass: Epass, phone: Path) -> None:
    phone.rename("learned")
    save([f"{label}/{number:02d}.png" for label in ("cat", "dog") for number in range(8)], seed=1)
    for path in sorted(Path("learned").glob("*/?.*")):
        path.rename(Path("photos", path.relative_to("learned")))
    assert epass("train", "learned", *TINY, "--out", "run").code == 0
    for command in (
        ("evaluate", "run", "--data", "photos"),
        ("calibrate", "run", "--data", "photos"),
        ("export", "run", "--formats", "torch", "--images", "photos"),
    ):
        answer = epass(*command)
        assert answer.code == 0, answer.err
        assert PASSED in answer.err, command


def test_a_step_is_timed_without_what_cannot_be_read(
    epass: Epass, phone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epass.engine.timing.warm_up", lambda work, device: 1.0)
    (phone / "cat" / "00.png").write_text("no image")
    batch = ("--labeled-batch", "2", "--unlabeled-ratio", "1", "--image-size", "8")
    answer = epass("bench", "photos", "--net", "small", *batch, "--steps", "1", "--device", "cpu")
    assert answer.code == 0, answer.err
    left_out = "Warning: 1 file of 'photos' cannot be used and is left out: cat/00.png.\n"
    assert answer.err == PASSED + left_out


TWO = "'SEA' and 'sea' are 2 classes that differ only in capital letters, blanks or the like: make them one if they are"
NONE = "'?' is taken for a class, with 4 labels: give no label where nobody knows.\n"


@pytest.fixture
def table(epass: Epass) -> str:
    """Photos with labels that three people typed."""
    names = [f"a/{number:02d}.png" for number in range(24)]
    save(names, seed=0)
    labels = ["sea"] * 8 + ["SEA"] * 4 + [" shore"] * 8 + ["?"] * 4
    rows = [f"{name},{label}\n" for name, label in zip(names, labels, strict=True)]
    Path("photos/table.csv").write_text("path,label\n" + "".join(rows))
    return "photos/table.csv"


def test_classes_that_differ_in_capital_letters_and_those_that_say_nothing(epass: Epass, table: str) -> None:
    for command in ("check", table), ("train", table, *TINY):
        said = epass(*command).err
        assert f"Warning: {TWO} the same.\nWarning: {NONE}" in said, command


def test_label_says_so_too_however_the_classes_came_in(epass: Epass, table: str) -> None:
    Path("flat").mkdir()
    for photo in Path("photos/a").iterdir():
        photo.rename(Path("flat", photo.name))
    Path("labels.csv").write_text(Path(table).read_text().replace("\na/", "\n"))
    assert epass("label", "flat", "labels.csv").err == f"Warning: {TWO} the same.\nWarning: {NONE}"
    Path("more.csv").write_text("path,label\n00.png,Sea\n")
    said = epass("label", "flat", "more.csv", "--force").err
    assert "'Sea' is a new class, and there was 'sea' already" in said
    assert TWO in said


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (("cat", "dog"), []),
        (("a", "b", "na", "Na", "none", "no", "unknowable"), ["'na' and 'Na' are 2 classes"]),
        (("Möwe", "Mo\u0308we"), ["differ only in"]),
        (("old  town", "Old town "), ["differ only in"]),
        (("A", "a", "B", "b"), ["'A' and 'a' are 2 classes .* \\(and 1 more like this\\): make"]),
        (("cat", "Unsorted"), ["'Unsorted' is taken for a class, with 1 label: give no label where nobody knows"]),
        (("NA", "None", "Unknown", "x"), ["'NA' is taken for a class, with 1 label \\(and 2 more like this\\): give"]),
    ],
)
def test_which_classes_are_doubtful(classes: tuple[str, ...], words: list[str]) -> None:
    found = [*doubtful_classes(dict.fromkeys(classes, 1))]
    assert len(found) == len(words)
    assert all(re.search(pattern, sentence) for pattern, sentence in zip(words, found, strict=True))
