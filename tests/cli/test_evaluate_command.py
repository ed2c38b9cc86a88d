"""A test that is none, or of some classes only, is not told as one of all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained

from epass.data import Dataset, open_dataset
from noise_photos import save


@pytest.fixture
def digits() -> Dataset:
    return open_dataset("digits")


def save_train(digits: Dataset, positions: list[int]) -> None:
    pixels, labels = digits.train.pixels.numpy()[positions], digits.train.labels.numpy()[positions]
    np.savez("other.npz", train_images=pixels, train_labels=labels)


def parts(run: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((run / "split.json").read_text())
    return found


def test_images_whose_labels_the_run_has_learned_are_no_test(epass: Epass, trained: Trained, digits: Dataset) -> None:
    labeled = parts(trained.folder)["labeled"]
    save_train(digits, labeled)
    answer = epass("evaluate", trained.folder, "--data", "other.npz")
    assert answer.code == 0
    assert answer.err == (
        "Warning: 40 of 40 images of 'other.npz' are labeled images that the run has learned from: what it says about "
        "these is no test.\n"
    )

    unlabeled = sorted({*parts(trained.folder)["unlabeled"]} - {*labeled})
    save_train(digits, [*unlabeled[:50], labeled[3], labeled[5]])
    assert "Warning: 2 of 52 images of 'other.npz'" in epass("evaluate", trained.folder, "--data", "other.npz").err

    save_train(digits, unlabeled[:50])  # whose labels it has not seen
    assert epass("evaluate", trained.folder, "--data", "other.npz").err == ""
    assert epass("evaluate", trained.folder, "--data", "digits").err == ""  # its own test


def test_where_nobody_can_tell_what_the_run_has_learned_that_is_said(
    epass: Epass, trained: Trained, digits: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    recipe = Path("run/recipe.toml").read_text()
    Path("run/recipe.toml").write_text(recipe.replace('name = "digits"', 'name = "gone.npz"'))
    save_train(digits, list(range(50)))
    answer = epass("evaluate", "run", "--data", "other.npz")
    assert answer.code == 0
    assert answer.err.startswith("Warning: Whether the run has seen the labels of 'other.npz' cannot be checked: ")


def test_a_class_without_a_test_image_is_told_by_whoever_tests(epass: Epass, digits: Dataset) -> None:
    warning = "No test image is of 3, 7: the test error says nothing about them."
    assert digits.test is not None
    pixels, labels = digits.test.pixels.numpy(), digits.test.labels.numpy()
    kept = ~np.isin(labels, (3, 7))
    train = {"train_images": digits.train.pixels.numpy(), "train_labels": digits.train.labels.numpy()}
    np.savez("other.npz", **train, test_images=pixels[kept], test_labels=labels[kept])
    trained = epass("train", "other.npz", "--recipe", "tiny.toml", "--out", "run")
    assert trained.code == 0
    assert f"Warning: {warning}" in trained.err
    assert f"{kept.sum()} images, none of 3, 7" in trained.out
    assert warning in json.loads(Path("run/results.json").read_text())["alarms"]
    assert warning in Path("run/report.html").read_text(encoding="utf-8")
    told = epass("evaluate", "run", "--json")
    assert told.err == f"Warning: {warning}\n"
    assert json.loads(told.out)["alarms"] == [warning]


def test_classes_in_another_unicode_form_are_those_of_the_model(epass: Epass) -> None:
    for seed, umlaut in enumerate(("\u00f6", "o\u0308")):
        save([f"{label}/{number:02d}.png" for label in (f"M{umlaut}we", "dog") for number in range(8)], seed=seed)
        Path("photos").rename(f"photos-{seed}")
    tiny = ("--features", "none", "--net", "small", "--set", "net.width=4", "--steps", "1", "--device", "cpu")
    assert epass("train", "photos-0", *tiny, "--out", "run").code == 0
    answer = epass("evaluate", "run", "--data", "photos-1")
    assert (answer.code, answer.err) == (0, "")
