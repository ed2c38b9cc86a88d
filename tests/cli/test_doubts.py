"""Commands say what somebody may not have meant about the data that they open."""

from __future__ import annotations

from pathlib import Path

import pytest
from calling import Epass, Trained

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
