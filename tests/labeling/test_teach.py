from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from epass.data import from_vectors
from epass.labeling import teach
from epass.labeling.beliefs import LABELS_ONLY, SEMI_SUPERVISED, TYPICAL, UNCERTAIN, digest_of, read_beliefs
from epass.labeling.examples import Examples, read_examples
from epass.labeling.maps import draw_map, read_map
from epass.labeling.teach import Lesson, Opinion, Teacher, compared

COUNT, CLASSES = 90, (7, 3, 11)  # ids of classes are any numbers


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teach, "SHORTER", 15)
    monkeypatch.setattr("epass.engine.crossfit.SHORTER", 15)


def truth(image: int) -> int:
    return CLASSES[image % 3]


def examples(noise: float = 0.3) -> Examples:
    random = np.random.default_rng(0)
    centers = 3 * np.eye(3, 8)
    vectors = centers[np.arange(COUNT) % 3] + noise * random.standard_normal((COUNT, 8))
    dataset = from_vectors(vectors.astype(np.float32), [0, 1] + [-1] * (COUNT - 2), name="blobs", classes=["a", "b"])
    unlabeled = dataset.train.labeled(torch.full((COUNT,), -1))
    return Examples(replace(dataset, train=unlabeled), np.arange(COUNT), COUNT, "digest", 0)


def taught(teacher: Teacher, images: Iterator[int] | range, marks: list[tuple[int, int]] | None = None) -> Lesson:
    """Everything is learned once."""
    lesson = teacher.lesson(1, [(image, truth(image)) for image in images], marks or [])
    teacher.learn_labels(lesson)
    steps = teacher.learn_all(lesson)
    for _ in steps:
        pass
    return lesson


def test_beliefs_say_which_images_cannot_be_read() -> None:
    some = examples()._replace(ids=np.arange(COUNT) + 1, images=COUNT + 2)
    teacher = Teacher(some, torch.device("cpu"))
    found = teacher.believe(teacher.lesson(1, [(0, 7), (3, 7)], []))
    assert found.unreadable == [0, COUNT + 1]


def test_guesses_of_all_images_appear_with_an_accuracy() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    found = teacher.believe(taught(teacher, range(12)))
    assert found.how == SEMI_SUPERVISED
    assert (found.guess == [truth(image) for image in range(COUNT)]).mean() > 0.9
    assert found.facts["accuracy"]["labels"] == found.facts["labels_only"]["labels"] == 12
    assert "labels" in found.facts["helped"]
    assert np.isfinite(found.disagreement).all()
    assert found.disagreement.std() > 0


def test_no_label_is_guessed_by_a_model_that_learned_it() -> None:
    """Labels at random can be learned by heart, but not guessed."""
    random = np.random.default_rng(1)
    teacher = Teacher(examples(), torch.device("cpu"))
    labels = [(image, int(random.integers(2))) for image in range(60)]
    lesson = teacher.lesson(1, labels, [])
    teacher.learn_labels(lesson)
    assert teacher.labels_only is not None
    said = dict(labels)
    for found in (teacher.believe(lesson), *_all(teacher, lesson)):
        hits = np.mean([found.guess[image] == said[image] for image in range(60)])
        assert hits < 0.75
        assert found.facts["accuracy"]["value"] == pytest.approx(hits)


def _all(teacher: Teacher, lesson: Lesson) -> Iterator[object]:
    for _ in teacher.learn_all(lesson):
        pass
    found = teacher.believe(lesson)
    if found.how == SEMI_SUPERVISED:
        yield found


@pytest.mark.parametrize("images", [range(4), [*range(0, 30, 3), 1]])
def test_few_labels_have_guesses_and_no_accuracy(images: list[int]) -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    found = teacher.believe(taught(teacher, images))
    assert found.how == SEMI_SUPERVISED
    assert found.facts["accuracy"] is found.facts["labels_only"] is found.facts["helped"] is None
    only = images[-1]
    if len([image for image in images if truth(image) == truth(only)]) == 1:
        assert found.guess[only] == -1  # its class would be unknown without it


def test_one_class_is_no_model() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    found = teacher.believe(teacher.lesson(1, [(0, 7), (3, 7)], []))
    assert found.how is None
    assert (found.guess == -1).all()
    assert len(found.suggested)


def test_images_of_none_of_the_classes_are_not_learned_from() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    lesson = teacher.lesson(1, [(image, truth(image)) for image in range(6)], [(50, 3), (51, 2), (52, 1)])
    _, split = teacher.divided(lesson)
    assert sorted(split.positions.unlabeled) == [image for image in range(COUNT) if image != 50]
    assert (split.unlabeled.labels == -1).all()


def test_typical_images_come_first_then_those_the_model_hesitates_about(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    marks = [(image, 1) for image in range(30, 40)]
    first = teacher.believe(teacher.lesson(0, [], marks))
    assert first.facts["by"] == TYPICAL
    assert len(set(first.suggested.tolist())) == teach.FIRST
    assert {truth(image) for image in first.suggested.tolist()} == set(CLASSES)
    lesson = teacher.lesson(1, [(image, truth(image)) for image in first.suggested.tolist()[:3]], marks)
    teacher.learn_labels(lesson)
    assert teacher.believe(lesson).suggested.tolist() == first.suggested.tolist()[3:]  # nothing moves under the hand
    lesson = taught(teacher, range(12), marks)
    later = teacher.believe(lesson)
    assert later.facts["by"] == TYPICAL
    fair = later.facts["fair"]
    assert set(fair) < set(later.suggested.tolist())
    assert fair == sorted(fair)
    assert set(fair) <= set([row for row in teacher.order.tolist() if lesson.left[row]][: teach.BATCH])
    monkeypatch.setattr(teach, "TYPICAL_EACH", 4)
    doubtful = teacher.believe(lesson)
    assert doubtful.facts["by"] == UNCERTAIN
    assert doubtful.suggested.tolist() != later.suggested.tolist()
    for found in (later, doubtful):
        assert not {*range(12), *range(30, 40)} & set(found.suggested.tolist())


def test_a_class_with_a_single_label_is_asked_about() -> None:
    teacher = Teacher(examples(0.05), torch.device("cpu"))
    lesson = taught(teacher, [*range(0, 36, 3), *range(1, 36, 3), 2])
    found = teacher.believe(lesson)
    assert teacher.shown is not None
    likely = teacher.shown.probs[:, lesson.classes.tolist().index(truth(2))]
    usual = np.setdiff1d(np.flatnonzero(lesson.left), teacher.unlike)
    assert found.suggested[0] == usual[likely[usual].argmax()]


def test_an_accuracy_is_measured_on_a_fair_sample_as_soon_as_there_is_one() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    hard = teacher.order[30:50].tolist()  # chosen by whatever is not chance
    fair, skipped = teacher.order[:13].tolist(), int(teacher.order[5])
    few = teacher.lesson(1, [(image, truth(image)) for image in [*hard, *fair[:5]]], [])
    assert not few.sample.any()
    asked = [image for image in [*hard, *fair] if image != skipped]
    lesson = teacher.lesson(2, [(image, truth(image)) for image in asked], [(skipped, 1)])
    assert set(lesson.labeled[lesson.sample].tolist()) == set(fair) - {skipped}
    teacher.learn_labels(lesson)
    found = teacher.believe(lesson)
    assert found.facts["accuracy"]["labels"] == 12
    assert found.facts["sampled"]
    upcoming = [image for image in teacher.order.tolist() if lesson.left[image]]
    assert found.suggested[1:4:2].tolist() == upcoming[:2]  # every other suggestion makes the sample larger
    lesson = teacher.lesson(3, [(image, truth(image)) for image in asked[1:]], [(skipped, 1)])
    teacher.learn_labels(lesson)
    upcoming = [image for image in teacher.order.tolist() if lesson.left[image]]
    assert teacher.believe(lesson).suggested[0] == upcoming[0]  # also for those who answer one of each list


def test_an_earlier_accuracy_is_told_with_what_it_was_measured_on() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    fair, other = teacher.order[:13].tolist(), teacher.order[30:50].tolist()
    before = teacher.believe(taught(teacher, [*fair, *other]))
    assert (before.facts["accuracy"]["labels"], before.facts["sampled"]) == (13, True)
    lesson = teacher.lesson(2, [(image, truth(image)) for image in other], [])
    teacher.learn_labels(lesson)
    known, steps = teacher.semi, teacher.learn_all(lesson)
    while teacher.semi is known:  # then there are guesses, and their accuracy is measured next
        next(steps)
    assert not lesson.sample.any()
    found = teacher.believe(lesson)
    assert (found.facts["labels"], found.facts["accuracy"]["labels"], found.facts["sampled"]) == (20, 13, True)


def test_a_wrong_label_is_suspected() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    labels = [(image, truth(image)) for image in range(45)]
    labels[6] = (6, truth(7))
    lesson = teacher.lesson(1, labels, [])
    teacher.learn_labels(lesson)
    assert teacher.believe(lesson).suspects[:1].tolist() == [6]


def opinion(how: str, wrong: int) -> Opinion:
    labels = np.arange(40) % 2
    lesson = Lesson(
        1, np.array([0, 1]), np.arange(40), labels, np.zeros(40, bool), np.ones(40, bool), np.ones(40, bool)
    )
    said = np.eye(2)[np.where(np.arange(40) < wrong, 1 - labels, labels)]
    return Opinion(how, lesson, said, said, 1.0)


@pytest.mark.parametrize(
    ("semi", "labels_only", "words", "worse"),
    [(20, 2, "did not help", True), (2, 20, "helped", False), (4, 5, "cannot tell yet", False)],
)
def test_labels_that_were_left_out_say_whether_unlabeled_images_helped(
    semi: int, labels_only: int, words: str, worse: bool
) -> None:
    sentence, found = compared(opinion(SEMI_SUPERVISED, semi), opinion(LABELS_ONLY, labels_only))
    assert words in (sentence or "")
    assert f"misses {semi}" in (sentence or "")
    assert found is worse


def test_the_better_model_is_shown_and_a_new_class_is_not_missed() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    lesson = taught(teacher, range(12))
    assert teacher.choose(lesson) is teacher.semi
    teacher.worse = True
    assert teacher.choose(lesson) is teacher.labels_only
    teacher.worse = False
    more = teacher.lesson(2, [*((image, truth(image)) for image in range(12)), (20, 99)], [])
    teacher.learn_labels(more)
    assert teacher.choose(more) is teacher.labels_only


def test_the_history_tells_guesses_that_proved_right() -> None:
    teacher = Teacher(examples(), torch.device("cpu"))
    lesson = taught(teacher, range(12))
    teacher.believe(lesson)
    more = teacher.lesson(2, [(image, truth(image)) for image in range(15)] + [(15, truth(16))], [])
    row = teacher.learn_labels(more)
    assert (row["asked"], row["right"]) == (4, 3)
    assert 0 <= row["changed"] < 0.2
    assert teacher.learn_labels(more)["asked"] == 0


def test_beliefs_are_kept_and_damage_is_no_belief(tmp_path: Path) -> None:
    teacher, path = Teacher(examples(), torch.device("cpu")), tmp_path / "beliefs.npz"
    found = teacher.believe(taught(teacher, range(12)))
    found.write(path)
    again = read_beliefs(path)
    assert again is not None
    assert again.facts == found.facts
    assert again.guess.tolist() == found.guess.tolist()
    path.write_bytes(path.read_bytes()[:500])
    assert read_beliefs(path) is None
    assert read_beliefs(tmp_path / "nothing") is None


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(4)]
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(tmp_path / name)
    (tmp_path / names[1]).write_bytes(b"no image")
    (tmp_path / names[2]).unlink()
    found = read_examples(tmp_path, names, digest_of(names), torch.device("cpu"), lambda *_: None)
    assert found.ids.tolist() == [0, 3]
    assert (found.images, found.unreadable, len(found.dataset.train)) == (4, 2, 2)


def test_a_map_is_drawn_once_and_holds_every_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.labeling.maps.ARRANGED", 60)
    assert draw_map(examples(), tmp_path)
    assert not draw_map(examples(), tmp_path)
    found = read_map(tmp_path, "digest")
    assert found is not None
    assert found.ids.tolist() == list(range(COUNT))
    assert (found.places.min(), found.places.max()) == (0, 10_000)
    assert read_map(tmp_path, "other images") is None
    kinds = np.arange(COUNT) % 3
    middles = np.stack([found.places[kinds == kind].mean(0) for kind in range(3)])
    nearest = np.square(found.places[:, None] - middles).sum(2).argmin(1)
    assert (nearest == kinds).mean() > 0.9
