from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from calling import Epass
from PIL import Image


def pixels(count: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 255, (count, 8, 8), dtype=np.uint8)


def save(path: Path, train_labels: list[int], **twins: int) -> None:
    """40 images and a test set of 8, of which `test_3=5` is the training image 5."""
    train, test = pixels(40), pixels(8, seed=1)
    for name, number in twins.items():
        test[int(name.removeprefix("test_"))] = train[number]
    np.savez(
        path, train_images=train, train_labels=np.array(train_labels), test_images=test, test_labels=np.arange(8) % 2
    )


HALF = [0, 1] * 10 + [-1] * 20


def test_a_clean_data_set(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "clean.npz", HALF)

    answer = epass("check", "clean.npz")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("No test image is among the labeled or unlabeled ones")
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "images 20 labeled, 20 unlabeled, 8 test" in lines
    assert "leaks, labeled no test images" in lines
    assert "side by side" not in answer.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.npz", "tiny.toml"]


def test_a_leak_into_the_labeled_images_is_exit_code_one(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", HALF, test_3=5, test_4=30)

    answer = epass("check", "leak.npz", "--out", "report.html")

    assert (answer.code, answer.err) == (1, "")
    assert "  test 3 (test, 1) = train 5 (labeled, 1), exact 1.00\n" in answer.out
    assert "  test 4 (test, 0) = train 30 (unlabeled), exact 1.00\n" in answer.out
    assert answer.out.endswith("Open the page: report.html\n")
    assert "Test images among the labeled ones" in Path("report.html").read_text()


def test_a_leak_into_the_unlabeled_images_is_said(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", HALF, test_4=30)

    answer = epass("check", "leak.npz")

    assert answer.code == 0
    assert "Among the unlabeled images are copies of 1 test image" in answer.out


def test_labels_and_seed_decide_what_is_labeled(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", [0, 1] * 20, test_3=5)

    def part(seed: int) -> str:
        answer = epass("check", "leak.npz", "--labels", "20", "--seed", str(seed), "--json")
        found = json.loads(answer.out)
        assert found["images"] == {"labeled": 20, "unlabeled": 20, "test": 8, "held_out": False}
        assert (found["labels"], found["seed"]) == (20, seed)
        (name,) = [name for name, leaks in found["leaks"].items() if leaks]
        assert answer.code == int(name == "labeled")
        assert found["serious"] is (name == "labeled")
        return str(name)

    assert {part(seed) for seed in range(6)} == {"labeled", "unlabeled"}


def test_the_digits_are_clean(epass: Epass) -> None:
    answer = epass("check", "digits", "--json")

    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["leaks"] == {"labeled": [], "unlabeled": []}
    assert found["images"] == {"labeled": 1442, "unlabeled": 0, "test": 355, "held_out": False}
    assert not any(group["contradicts"] for group in found["duplicates"])


def test_a_folder_with_damaged_files_names_them_all(epass: Epass, tmp_path: Path) -> None:
    for number, image in enumerate(pixels(30)):
        place = tmp_path / "photos" / ("ab"[number % 2]) / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((40, 40)).save(place)
    damaged = [f"{'ab'[number % 2]}/{number}.png" for number in range(8)]
    for name in damaged:
        (tmp_path / "photos" / name).write_text("nothing")

    answer = epass("check", "photos")

    assert answer.code == 1
    for name in damaged:
        assert f"  {name} cannot be read (not an image): replace or remove it\n" in answer.out
    assert "4 test (held out from the labeled images)" in answer.out


def test_what_has_too_few_labels_to_train_is_looked_at_all_the_same(epass: Epass, tmp_path: Path) -> None:
    for number, image in enumerate(pixels(12)):
        part = "labeled/cat" if number == 0 else "labeled/dog" if number < 5 else "unlabeled"
        place = tmp_path / "photos" / part / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((40, 40)).save(place)
    (tmp_path / "photos/labeled/dog/copy.png").write_bytes((tmp_path / "photos/labeled/cat/0.png").read_bytes())

    refused, answer = epass("train", "photos"), epass("check", "photos")

    sentence = " ".join(refused.err.split()).removeprefix("Error: ")
    assert sentence.startswith("Class 'cat' has 1 labeled training image, but without a test set")
    told = " ".join(answer.out.split())
    assert (answer.code, answer.err) == (1, "")
    assert told.startswith(f"Training would refuse this. {sentence}")
    assert "images 6 labeled, 7 unlabeled, 0 test unreadable" in told, "and nothing is held out"
    assert "'dog' has 5.0 times as many as 'cat' constant" in told, (
        "and no class is without test images more than others"
    )
    assert "contradictions 1 group of duplicates with different labels" in told
    assert json.loads(epass("check", "photos", "--json").out)["refusal"] == sentence

    answer = epass("check", "photos", "--labels", "2")  # which is what asks for too much
    assert (answer.code, answer.out) == (2, "")
    assert " ".join(answer.err.split()) == f"Error: {sentence}"

    (tmp_path / "photos/labeled/dog/1.png").write_text("nothing")
    told = " ".join(epass("check", "photos").out.split())
    assert told.startswith("Replace or remove 1 file that cannot be read")
    assert f"labels {sentence}" in told
    told = " ".join(epass("check", "photos", "--labels", "2").err.split())
    assert (
        told
        == f"Error: 'labeled/dog/1.png' cannot be read (not an image): replace or remove it. Without it: {sentence}"
    )


def test_damaged_files_of_archives_and_tables_are_all_named(epass: Epass, tmp_path: Path) -> None:
    rows = ["path,label"]
    for number, image in enumerate(pixels(30)):
        Image.fromarray(image).resize((40, 40)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{'ab'[number % 2]}")
    for name in ("0.png", "1.png"):
        (tmp_path / name).write_text("nothing")
    (tmp_path / "photos.csv").write_text("\n".join(rows) + "\nmissing.png,a\n")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for number in range(30):
            archive.write(tmp_path / f"{number}.png", f"{'ab'[number % 2]}/{number}.png")
    packed, image = (tmp_path / "photos.zip").read_bytes(), (tmp_path / "2.png").read_bytes()
    (tmp_path / "photos.zip").write_bytes(packed.replace(image, image[:-20] + bytes(20), 1))

    table, archive = epass("check", "photos.csv"), epass("check", "photos.zip")

    assert (table.code, archive.code) == (1, 1)
    for name in ("0.png cannot be read (not an image)", "1.png cannot be read (not an image)", "missing.png"):
        assert f"  {name}" in table.out
    for name in ("a/0.png cannot be read (not an image)", "b/1.png cannot be read", "a/2.png cannot be read (Bad CRC"):
        assert f"  {name}" in archive.out


def test_long_lists_are_cut(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", HALF, **{f"test_{number}": number for number in range(8)})

    answer = epass("check", "leak.npz")

    assert answer.out.count(" = train ") == 5
    assert "  ... and 3 more\n" in answer.out
    assert answer.out.endswith("To see the images side by side: --out report.html\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("digts",), "did you mean 'digits'?"),
        (("photos/none",), "no file or folder 'photos/none'"),
        (("digits", "--labels", "45"), "40 or 50"),
        (("digits", "--seed", "-1", "--labels", "40"), "out of range"),
        (("digits", "--out", "none/report.html"), "'none/report.html' cannot be written"),
        (("digits", "--image-size", "2"), "too small"),
        (("",), "no file or folder ''"),
    ],
)
def test_a_mistake_in_a_check_is_one_sentence(
    epass: Epass, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = epass("check", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


def test_training_refuses_a_leak_unless_it_is_allowed(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", HALF, test_3=5)
    line = ["train", "leak.npz", "--recipe", "tiny.toml", "--labels", "20", "--steps", "1", "--out", "run"]

    refused = epass(*line)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "Error: 1 of 8 test images are among the labeled ones: remove them (see epass check "
        f"{tmp_path / 'leak.npz'} --seed 0 --labels 20) or train all the same with --allow-leak.\n"
    )
    assert not Path("run").exists()
    allowed = epass(*line, "--allow-leak")
    assert allowed.code == 0, allowed.err
    again = epass("train", "--resume", "--out", "run")  # the decision was made when the run was started
    assert again.code == 0, again.err


def test_training_accepts_test_images_among_the_unlabeled_ones(epass: Epass, tmp_path: Path) -> None:
    save(tmp_path / "leak.npz", HALF, test_3=30)

    answer = epass("train", "leak.npz", "--recipe", "tiny.toml", "--labels", "20", "--steps", "1", "--out", "run")

    assert answer.code == 0, answer.err
