"""Every mistake: exit code 2, one sentence with its cause and a way out, nothing written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from calling import Answer, Epass, Trained

TINY = ("train", "--recipe", "tiny.toml")


def assert_refused(answer: Answer, *words: str) -> None:
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "digits", "--method", "simatch"), ["'simatch'", "did you mean 'simmatch'?"]),
        ((*TINY, "--method", "simatch"), ["'simatch'", "did you mean 'simmatch'?"]),
        ((*TINY, "--net", "smal"), ["network 'smal'", "did you mean 'small'?"]),
        (("train", "--recipe", "digits-simatch"), ["recipe 'digits-simatch'"]),
        (("train", "--recipe", "missing.toml"), ["no recipe file missing.toml"]),
        ((*TINY, "--set", "method.treshold=0.9"), ["did you mean 'method.threshold'?"]),
        ((*TINY, "--set", "methd.warmup_steps=9"), ["did you mean 'method.warmup_steps'?"]),
        ((*TINY, "--set", "method.threshold"), ["NAME=VALUE"]),
        ((*TINY, "--set", "method.threshold=high"), ["method.threshold is a number", '"high"']),
        ((*TINY, "--set", "plan.steps=2.5"), ["plan.steps is a whole number"]),
        ((*TINY, "--set", "seed=first"), ["seed is a whole number", "first"]),
        ((*TINY, "--set", "plan.optimizer=lion"), ["'sgd', 'adam', 'adamw'"]),
        ((*TINY, "--labels", "20", "--set", "data.head_labels=8"), ["data.head_labels decides", "--labels has no say"]),
        (
            (*TINY, "--method", "fixmatch", "--projectors", "3"),
            ["'fixmatch' has no embedding", "comatch, iomatch, simmatch"],
        ),
        ((*TINY, "--projectors", "0"), ["projector.size must be at least 1"]),
        ((*TINY, "--steps", "0"), ["plan.steps must be at least 1"]),
        ((*TINY, "--labels", "3000"), ["use at most"]),
        ((*TINY, "--labels", "45"), ["40 or 50"]),
        ((*TINY, "--seed", "-1"), ["from 0 to"]),
        ((*TINY, "--budget", "soon"), ["'soon'", "10m"]),
        ((*TINY, "--budget", "0s"), ["'0s'", "10m"]),
        ((*TINY, "--budget", "10m", "--steps", "5"), ["give one of them"]),
        ((*TINY, "--budget", "10m", "--set", "plan.steps=5"), ["give one of them"]),
        ((*TINY, "--resume", "--force"), ["give one of them"]),
        ((*TINY, "--device", "cdua"), ["device 'cdua'", "did you mean 'cuda'?"]),
        (("train",), ["digits", "folder"]),
        (("train", "--resume"), ["--out"]),
        (("train", "--resume", "--out", "nowhere"), ["no run at 'nowhere'"]),
        ((*TINY, "digts"), ["did you mean 'digits'?"]),
        ((*TINY, "photos/birds"), ["no file or folder 'photos/birds'"]),
        (("train", "nofolder"), ["no file or folder 'nofolder'", "the nearest folder that exists"]),
        (("train", "dogs"), ["no file or folder 'dogs'"]),  # which is not near enough to 'digits'
        (("train", "digits", "--image-siz", "8"), ["Unknown flag '--image-siz': did you mean '--image-size'?"]),
        (("train", "digits", "--threshold", "0.9"), ["Unknown flag '--threshold': say --set method.threshold=0.9."]),
        (("compare", "digits", "--lr=0.1"), ["Unknown flag '--lr': say --set plan.lr=0.1."]),
        (("train", "digits", "--lr"), ["say --set plan.lr=VALUE."]),
        (("evaluate", "nowhere", "--lr", "0.1"), ["Unknown flag '--lr': --help lists all."]),
        (("train", "--labels", "many"), ["Invalid value for '--labels'"]),
        (("trian",), ["No such command 'trian'", "'train'"]),
        ((*TINY, "--set", "image_size=16"), ["Unknown setting 'image_size': did you mean 'data.image_size'?"]),
        ((*TINY, "--weights", "none.pth"), ["no file 'none.pth'"]),
        ((*TINY, "--weights", "published"), ["'small' comes without published weights"]),
        ((*TINY, "--weights", "a.pth", "--from", "b"), ["--from and --weights", "give one of them"]),
        (("evaluate", "nowhere"), ["no run at 'nowhere'"]),
        (("methods", "simatch"), ["did you mean 'simmatch'?"]),
        (("recipes", "none-such"), ["recipe 'none-such'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_sentence(epass: Epass, tmp_path: Path, arguments: tuple[str, ...], words: list[str]) -> None:
    answer = epass(*arguments)

    assert_refused(answer, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    "command",
    [
        ("train", "no/such/data", "--recipe", "tiny.toml"),
        ("pretrain", "no/such/data"),
        ("compare", "no/such/data", "--recipe", "tiny.toml"),
        ("demo",),
        ("reproduce", "parameters"),
        ("reproduce", "usb", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    epass: Epass, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert_refused(epass(*command, "--out", "file/run"), "'file/run' cannot be a folder", "choose another place")
    assert_refused(epass(*command, "--out", "/proc/none"), "'/proc/none' cannot be written", "choose a place that")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_with_a_run_is_refused_before_anything_is_read(epass: Epass, trained: Trained) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in trained.folder.rglob("*"))

    answer = epass("train", "no/such/data", "--recipe", "tiny.toml", "--out", trained.folder)

    assert_refused(answer, "already holds a run", "--resume", "--force")
    assert sorted((path, path.stat().st_mtime_ns) for path in trained.folder.rglob("*")) == before


@pytest.mark.parametrize("flags", [[], ["--force"], ["--resume"]])
def test_a_folder_with_other_files_is_never_touched(epass: Epass, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")

    assert_refused(epass(*TINY, "--out", "thesis", *flags), "'thesis' is not empty and holds no run")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_recipe_without_data_needs_some(epass: Epass, tmp_path: Path) -> None:
    (tmp_path / "any.toml").write_text((tmp_path / "tiny.toml").read_text().replace('name = "digits"', ""))

    assert_refused(epass("train", "--recipe", "any.toml"), "Say which images", "digits")


def test_a_file_is_no_run_folder(epass: Epass) -> None:
    assert_refused(epass(*TINY, "--out", "tiny.toml"), "'tiny.toml' is a file")


def test_resume_names_what_differs(epass: Epass, trained: Trained) -> None:
    answer = epass(*TINY, "--resume", "--out", trained.folder, "--set", "method.threshold=0.5", "--seed", "7")

    assert_refused(
        answer, "another recipe", "method.threshold: not set -> 0.5", "projector.size: 3 -> 1", "seed: 0 -> 7"
    )


def test_evaluate_names_the_classes_that_differ(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    labels = np.array([0, 1, 2] * 4)
    np.savez(tmp_path / "three.npz", train_images=np.zeros((12, 8, 8), dtype=np.uint8), train_labels=labels)

    assert_refused(epass("evaluate", trained.folder, "--data", "three.npz"), "lacks 3, 4, 5, 6, 7, 8, 9")


def test_a_place_that_cannot_be_written_any_more_is_no_traceback(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.train.check_folder", lambda path: None)
    answer = epass(*TINY, "--out", "tiny.toml/run")

    assert answer.code == 1
    assert answer.err == "Error: Not a directory: 'tiny.toml/run'.\n"
