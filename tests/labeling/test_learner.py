from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epass.labeling.beliefs import (
    BELIEFS,
    LABELS_ONLY,
    SEMI_SUPERVISED,
    UNCERTAIN,
    Beliefs,
    digest_of,
    read_beliefs,
)
from epass.labeling.learner import HISTORY, Learner
from epass.labeling.pace import Pace
from epass.labeling.project import Change, Project
from epass.labeling.worker import Worker

COUNT = 40
LONG = 60.0  # seconds that a busy machine may take for what takes a few


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Dark images and light ones, in turn."""
    random, folder = np.random.default_rng(0), tmp_path / "photos"
    folder.mkdir()
    for number in range(COUNT):
        pixels = random.integers(0, 100, (8, 8, 3), dtype=np.uint8) + np.uint8(120 * (number % 2))
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    with closing(Project(folder, lambda _: None)) as found:
        found.add_class("dark")
        found.add_class("light")
        yield found


def label(project: Project, images: range | list[int], mark: str | None = None) -> None:
    labels = [None if mark else image % 2 for image in images]
    pairs = zip(images, labels, strict=True)
    project.answer([Change(image, label, mark, None, None) for image, label in pairs], "tab")


def wait(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + LONG
    while not (found := what()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


def believed(project: Project, **changes: Any) -> Beliefs:
    """What a model might believe that was taught the first twelve images, with image 3 taken for a dark one."""
    guess, taught = np.arange(COUNT, dtype=np.int32) % 2, np.full(COUNT, -1, dtype=np.int32)
    taught[:12], guess[3] = guess[:12], 0
    shares = np.linspace(0.99, 0.5, COUNT, dtype=np.float32)
    accuracy = {"value": 11 / 12, "low": 0.6, "high": 0.99, "labels": 12}
    facts = {
        "how": SEMI_SUPERVISED,
        "by": UNCERTAIN,
        "fair": [13],
        "labels": 12,
        "accuracy": accuracy,
        "labels_only": accuracy,
    }
    found = Beliefs(
        n=project.n,
        digest=digest_of(project.names),
        taught=taught,
        guess=guess,
        second=1 - guess,
        confidence=shares,
        margin=2 * shares - 1,
        disagreement=1 - shares,
        suggested=np.array([30, 20, 13], dtype=np.int32),
        unlike=np.array([17], dtype=np.int32),
        suspects=np.array([3], dtype=np.int32),
        facts={**facts, "helped": None, "sampled": True, "seconds": 1.0},
    )
    return replace(found, **changes)


def test_labels_are_learned_soon_and_everything_after_a_few_or_a_pause() -> None:
    pace = Pace()
    assert pace.due(0) is pace.wait(0) is None
    pace.answered(10, 1)
    assert pace.due(10.4) is None
    assert pace.wait(10.4) == pytest.approx(0.1)
    assert pace.due(10.6) == "labels"
    pace.asked("labels")
    pace.answered(11, 1)
    assert pace.due(14) is None  # never two at once
    pace.done("labels")
    assert pace.due(14) == "labels"
    assert pace.due(16.1) == "all"  # five seconds of quiet
    pace.asked("all")
    pace.done("labels")
    assert pace.due(30) is pace.wait(30) is None
    pace.answered(31, 6)
    assert pace.due(31.6) == "labels"  # as long as everything is being learned from, the labels alone are
    pace.done("all")
    assert pace.due(31.6) == "all"


def test_answers_without_a_pause_are_learned_too() -> None:
    pace = Pace()
    for now in (0.0, 0.45, 0.9, 1.35):
        assert pace.due(now) is None
        pace.answered(now, 1)
    pace.news = 1
    pace.answered(1.8, 1)
    assert pace.due(1.95) is None
    assert pace.due(2.05) == "labels"
    pace.answered(2.05, 3)
    assert pace.due(2.06) == "all"


def test_before_anything_is_known_suggestions_are_spread_over_the_folder(project: Project) -> None:
    learner = Learner(project, lambda *_: None)
    assert learner.summary() is None
    found = learner.ids("suggested")
    assert sorted(found) == list(range(COUNT))
    assert np.diff(sorted([-1, *found[:8], COUNT])).max() <= 10
    label(project, [found[0]])
    label(project, [found[1]], "skip")
    label(project, [found[2]], "unsure")
    label(project, [found[3]], "none")
    assert learner.ids("suggested") == [*found[4:], found[2], found[1]]
    assert learner.facts([0]) == [{"guess": None, "confidence": None, "why": None, "disagreement": None}]
    assert learner.ids("mistakes") == []


def test_views_follow_from_beliefs_and_from_the_labels_of_now(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epass.labeling.learner.LISTED", 2)
    label(project, range(12))
    believed(project).write(project.home / BELIEFS)
    learner = Learner(project, lambda *_: None)
    label(project, [20, 21])
    label(project, [22], "skip")
    assert learner.ids("suggested")[:3] == [30, 13, 39]  # then those with the smallest margin
    assert learner.ids("suggested")[-1] == 22
    assert learner.ids("mistakes") == learner.ids("suspects") == learner.ids("cell", true=1, guess=0) == [3]
    assert learner.ids("unlike") == [17]
    assert learner.ids("disagreement") == [39, 38]
    assert learner.ids("guessed", **{"class": 1})[:3] == [13, 15, 17]
    doubtful, fair, suspect, odd = learner.facts([30, 13, 3, 17])
    assert fair["why"] == "part of a fair sample, by which the accuracy is measured"
    assert doubtful["why"] == "the model hesitates between 'dark' and 'light'"
    assert (suspect["guess"], suspect["why"]) == (0, "the other labels speak against this one")
    assert odd["why"] == "unlike all other images"
    summary = learner.summary()
    assert summary is not None
    assert (summary["labels"], summary["behind"]) == (12, 2)
    assert "fair sample" in summary["about"]
    found = learner.confusion()
    assert found is not None
    assert found["matrix"] == [[7, 0], [1, 6]]
    bins = learner.calibration()
    assert bins is not None
    assert sum(each["count"] for each in bins["bins"]) == 14
    json.dumps([summary, found, bins], allow_nan=False)


def test_the_growth_of_labels_that_were_taken_back_is_not_shown(project: Project) -> None:
    label(project, range(12))
    believed(project).write(project.home / BELIEFS)
    known = {"how": SEMI_SUPERVISED, "accuracy": 0.9, "low": 0.8, "high": 1.0, "changed": 0.0}
    rows = [known | {"n": n, "labels": labels} for n, labels in ((1, 10), (2, 40), (3, 12))]
    torn = known | {"n": None, "labels": 12}
    (project.home / HISTORY).write_text("\n".join(map(json.dumps, [*rows, torn])))
    summary = Learner(project, lambda *_: None).summary()
    assert summary is not None
    assert summary["history"] == [rows[0], rows[2]]


def test_a_label_of_an_image_that_cannot_be_read_is_not_behind(project: Project) -> None:
    label(project, range(12))
    facts = believed(project).facts
    label(project, [20, 21])
    believed(project, facts={**facts, "unreadable": [20, 30]}).write(project.home / BELIEFS)
    summary = Learner(project, lambda *_: None).summary()
    assert summary is not None
    assert (summary["behind"], summary["unreadable"]) == (1, 1)  # 21 is the one, 20 the other


def test_a_class_that_was_merged_is_guessed_no_more(project: Project) -> None:
    label(project, range(12))
    believed(project).write(project.home / BELIEFS)
    learner = Learner(project, lambda *_: None)
    project.merge_classes(1, 0)
    assert {row["guess"] for row in learner.facts(range(COUNT))} == {0, None}
    assert learner.confusion() is None  # one class is left


def test_beliefs_about_other_images_or_classes_are_not_taken(project: Project) -> None:
    label(project, range(12))
    path = project.home / BELIEFS
    others: list[dict[str, Any]] = [{"digest": "other"}, {"n": 99}, {"taught": np.full(COUNT, 5, dtype=np.int32)}]
    for other in others:
        believed(project, **other).write(path)
        assert Learner(project, lambda *_: None).beliefs is None
    path.write_bytes(b"damaged")
    assert Learner(project, lambda *_: None).beliefs is None
    (project.home / HISTORY).write_text('{"n": 1}\n{"n": 1, "labels": 2, "how": "labels only", "accuracy": null}\n{"n')
    assert len(Learner(project, lambda *_: None).history) == 1


@pytest.mark.slow
def test_a_model_appears_improves_survives_a_kill_and_ends_at_once(project: Project) -> None:
    events: list[tuple[str, Any]] = []
    learner = Learner(project, lambda kind, value: events.append((kind, value)), device="cpu")
    learner.start()
    try:
        wait(lambda: learner.beliefs)
        assert learner.summary() is None
        label(project, learner.ids("suggested")[:6])
        wait(lambda: (learner.summary() or {}).get("how") == SEMI_SUPERVISED)
        wait(lambda: len(learner.history) >= 2)
        assert {row["how"] for row in learner.history} == {LABELS_ONLY, SEMI_SUPERVISED}
        assert (learner.summary() or {})["accuracy"] is None
        assert "Too few labels" in (learner.summary() or {})["about"]
        guesses = [row["guess"] == image % 2 for image, row in enumerate(learner.facts(range(COUNT)))]
        assert np.mean(guesses) > 0.7
        assert wait(learner.map)["ids"] is None
        before = learner._process
        assert before is not None
        os.kill(before.pid, signal.SIGKILL)
        wait(lambda: [value for kind, value in events if kind == "notice"])
        assert "started again" in next(value["sentence"] for kind, value in events if kind == "notice")
        label(project, [image for image in range(COUNT) if project.labels[image] < 0][:2])
        wait(lambda: (found := learner.summary()) and found["behind"] == 0 and found["how"] == SEMI_SUPERVISED)
        after = learner._process
        assert after is not None
        label(project, [image for image in range(COUNT) if project.labels[image] < 0][:6])
    finally:
        learner.close()
    assert after.poll() is not None
    again = Learner(project, lambda *_: None)
    assert (again.summary() or {})["how"] == SEMI_SUPERVISED
    assert len(again.history) == len(learner.history)


@pytest.mark.slow
def test_a_process_that_cannot_start_is_given_up_with_a_sentence(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    events: list[tuple[str, Any]] = []
    learner = Learner(project, lambda kind, value: events.append((kind, value)))
    learner.start()
    try:
        said = wait(
            lambda: [v["sentence"] for kind, v in events if kind == "notice" and "not be started" in v["sentence"]]
        )
        assert "all labels are safe" in said[0]
        label(project, range(12))
        assert learner.summary() is None
    finally:
        learner.close()


def test_the_process_of_the_server_never_imports_torch() -> None:
    code = "import sys, epass.labeling.learner; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_labels_are_learned_between_two_steps_of_what_takes_longer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epass.labeling.teach.SHORTER", 15)
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    opening = {"folder": str(project.folder), "home": str(project.home), "names": list(project.names)}
    requests.put({**opening, "digest": digest_of(project.names), "device": "cpu", "map": True})
    answers = StringIO()
    worker = Worker(requests, answers)

    def said() -> list[str]:
        lines = [json.loads(line) for line in answers.getvalue().splitlines()]
        return [line.get("what", line["event"]) for line in lines if line["event"] in ("beliefs", "done")]

    def teach(n: int, images: range, *, everything: bool) -> None:
        labels = [(image, image % 2) for image in images]
        worker.learn({"n": n, "labels": labels, "marks": [], "all": everything, "quiet": False})

    teach(1, range(4), everything=True)
    assert said() == ["beliefs", "labels"]
    worker.go_on()
    teach(2, range(6), everything=True)  # waits for its turn
    assert said() == ["beliefs", "labels"] * 2
    while worker.learning is not None:
        worker.go_on()
    assert said()[4:] == ["beliefs", "all"]
    found = read_beliefs(project.home / BELIEFS)
    assert found is not None
    assert (found.how, found.n) == (SEMI_SUPERVISED, 1)
    worker.go_on()
    while worker.learning is not None:
        worker.go_on()
    found = read_beliefs(project.home / BELIEFS)
    assert found is not None
    assert (found.how, found.n) == (SEMI_SUPERVISED, 2)
