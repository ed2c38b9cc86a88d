"""Train on vectors of one's own, and ask the model about new ones."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, call

CLASSES = 3
CENTERS = np.random.default_rng(0).normal(scale=3, size=(CLASSES, 8))
SHORT = ["--recipe", "vectors-fixmatch", "--steps", "20", "--set", "plan.unlabeled_ratio=1", "--set", "net.hidden=16"]


def cloud(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around a center for each class, and their classes."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return (CENTERS[labels] + random.normal(size=(count, 8))).astype(np.float32), labels


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors and a run on them; tests must not change these."""
    folder = tmp_path_factory.mktemp("vectors")
    (train, labels), (test, answers) = cloud(60, 0), cloud(30, 1)
    words = np.array(["bass", "drums", "flute"])
    arrays = {"train_vectors": train, "train_labels": words[labels]}
    np.savez(folder / "songs.npz", **arrays, test_vectors=test, test_labels=words[answers])
    np.save(folder / "new.npy", test)
    np.savez(folder / "named.npz", vectors=test[:2], names=["=one", "two"])
    np.savez(folder / "narrow.npz", vectors=test[:, :5], labels=words[answers])
    answer = call("train", folder / "songs.npz", "--labels", "6", *SHORT, "--out", folder / "run")
    assert answer.code == 0, answer.err
    assert "vectors of 8 numbers" in answer.out
    assert "6 vectors: 2 per class" in answer.out
    return folder


def rows(path: str = "predictions.csv") -> list[list[str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_new_vectors_get_the_answers_that_the_run_gave_its_test(epass: Epass, home: Path) -> None:
    answer = epass("predict", home / "run", home / "new.npy")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("30 vectors of ")
    expected = np.load(home / "run" / "predictions.npz")["logits"].argmax(1)
    head, *found = rows()
    assert head == ["row", "prediction", "confidence", "novelty", "unlike", "error"]
    assert [row[0] for row in found] == list(map(str, range(30)))
    assert [["bass", "drums", "flute"].index(row[1]) for row in found] == expected.tolist()


def test_vectors_with_names_are_called_by_them_and_none_is_a_formula(epass: Epass, home: Path) -> None:
    assert epass("predict", home / "run", home / "named.npz").code == 0
    assert [row[0] for row in rows()] == ["name", "'=one", "two"]


def test_a_model_of_vectors_is_tested_on_its_own_and_on_others(epass: Epass, home: Path) -> None:
    own = epass("evaluate", home / "run")
    assert own.out.splitlines()[0] == f"{home / 'run'} on 30 vectors of songs"
    other = epass("evaluate", home / "run", "--data", home / "songs.npz")
    assert own.out == other.out


def test_the_page_and_the_card_need_no_pictures(epass: Epass, home: Path) -> None:
    answer = epass("report", home / "run", "--card", "card.md")
    assert (answer.code, answer.err) == (0, "")
    card = Path("card.md").read_text(encoding="utf-8")
    assert "A classifier: it takes vectors of 8 numbers" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    exec(code, {})


def test_a_test_vector_among_the_labeled_ones_is_refused(epass: Epass, home: Path) -> None:
    vectors, labels = cloud(12, 0)
    np.savez("leak.npz", train_vectors=vectors, train_labels=labels, test_vectors=vectors[:3], test_labels=labels[:3])
    answer = epass("train", "leak.npz", *SHORT, "--out", "r")
    assert answer.code == 2
    assert answer.err == (
        "Error: 3 of 3 test vectors are among the labeled ones: remove them or train all the same with --allow-leak.\n"
    )


def test_vectors_that_are_the_same_and_have_two_labels_are_told_of(epass: Epass, home: Path) -> None:
    vectors, labels = cloud(12, 0)
    vectors[1] = vectors[0]
    labels[:2] = 0, 1
    np.savez(
        "twice.npz", train_vectors=vectors, train_labels=labels, test_vectors=cloud(6, 1)[0], test_labels=labels[:6]
    )
    answer = epass("train", "twice.npz", *SHORT, "--out", "r")
    assert answer.code == 0
    assert answer.err.startswith(
        "Warning: 2 labeled vectors have an exact copy with another label, such as 'train 0' (0) and 'train 1' (1): "
        "correct them.\n"
    )


WIDTH = "vectors of 5 numbers, but the model takes 8: make them as those that it learned from were made."


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("predict RUN HOME/narrow.npz", WIDTH),
        ("evaluate RUN --data HOME/narrow.npz", WIDTH),
        ("evaluate RUN --data digits", "'digits' holds images, and the model takes vectors of 8 numbers."),
        ("predict RUN -", "'-' reads paths of images, and the model takes vectors: give it a table of these."),
        (
            "calibrate RUN --data HOME/songs.npz",
            "are labeled or test vectors of the run, which cannot calibrate it: give others.",
        ),
        ("predict RUN tiny.toml", "holds no vectors: give an .npz or .npy file, or a .csv or .parquet table."),
        ("check HOME/songs.npz", "and a check looks at images: check what the vectors were made of."),
        ("train HOME/songs.npz --recipe vectors-fixmatch --image-size 8", "no image size: leave out --image-size."),
        (
            "train HOME/songs.npz --recipe vectors-fixmatch --set augment.cutout=0.2",
            "'songs' holds vectors, which have no augment.cutout: leave it out.",
        ),
        ("train HOME/songs.npz --recipe vectors-fixmatch --net small", "these are vectors: use mlp (--net)."),
        ("train HOME/songs.npz --recipe vectors-fixmatch --stream", "leave data.streaming out."),
    ],
)
def test_what_vectors_cannot_do_is_one_sentence(epass: Epass, home: Path, line: str, sentence: str) -> None:
    answer = epass(*(word.replace("RUN", str(home / "run")).replace("HOME", str(home)) for word in line.split()))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.endswith(f"{sentence}\n")


def test_a_model_of_images_refuses_vectors(epass: Epass, trained, home: Path) -> None:
    answer = epass("evaluate", trained.folder, "--data", home / "songs.npz")
    assert answer.code == 2
    assert answer.err.endswith("holds vectors, and the model takes images: give it images.\n")
