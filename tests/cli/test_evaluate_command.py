"""A test that is none is not told as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained

from epass.data import Dataset, open_dataset


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
