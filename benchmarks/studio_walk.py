"""From no label to 60 in the studio, without a browser: what accuracy after how many seconds?

Whoever answers knows the class of a photo by its folder, and the model does not: all photos are copied into one folder
without classes. Photos that lie in no class folder are skipped from the start: nobody can answer them, so they are not
suggested, but learned from. Answers follow the order of the studio's own suggestions, one every `--pause` seconds, as a
person would give them; after 12, 30 and 60 of them the walk stops until the model has learned all, and the table gets a
row:

    labels, seconds           since the first photo could be shown; the photos are looked at in the meantime
    waited_guesses            seconds from the last answer to guesses that know it, by labels only
    waited_model              the same with the unlabeled images
    error_labels_only, error  of the photos of known class that have no label: by labels only, and as the page shows it
    shown, low, high          the accuracy that the page shows, and its interval

    python benchmarks/studio_walk.py scenes --out docs/results/studio.csv
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from epass.data.read.folder import EXTENSIONS
from epass.labeling.beliefs import LABELS_ONLY, SEMI_SUPERVISED
from epass.labeling.examples import read_examples
from epass.labeling.learner import Learner
from epass.labeling.project import Change, Project
from epass.labeling.teach import Teacher
from epass.machine.cpu import count_cores
from epass.machine.device import device_name

STOPS = (12, 30, 60)
LONGEST = 600.0  # seconds that a model may take
COLUMNS = (
    "labels",
    "classes",
    "seconds",
    "waited_guesses",
    "waited_model",
    "error_labels_only",
    "error",
    "how",
    "shown",
    "low",
    "high",
    "enough",
    "commit",
    "machine",
)


def without_classes(folder: Path, home: Path) -> dict[str, str]:
    """Copy all photos into `home`, and return the class of each, "" where nobody knows."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    truth = {}
    for number, path in enumerate(found):
        inside = path.relative_to(folder).parts[:-1]
        name = f"{number:06d}{path.suffix}"
        shutil.copyfile(path, home / name)
        known = inside and inside[0] not in ("labeled", "test", "train", "unlabeled")
        truth[name] = inside[0] if known else inside[1] if len(inside) > 1 else ""
    return truth


class Walk:
    """A person who knows the answers, in front of a studio without a page."""

    def __init__(self, project: Project, learner: Learner, truth: dict[str, str]) -> None:
        self.project, self.learner = project, learner
        self.truth = [truth[name] for name in project.names]
        self.teacher: Teacher | None = None  # of labels only, which the page soon shows no more

    def skip_unknown(self) -> None:
        """Pass over what has no answer."""
        unknown = [image for image, true in enumerate(self.truth) if not true]
        self.project.answer([Change(image, None, "skip", None, None) for image in unknown], "walk")

    def answer(self) -> None:
        """Label the first suggestion."""
        image = self.learner.ids("suggested")[0]
        names = {facts.name: facts.id for facts in self.project.classes()}
        if self.truth[image] not in names:
            self.project.add_class(self.truth[image])
            names = {facts.name: facts.id for facts in self.project.classes()}
        self.project.answer([Change(image, names[self.truth[image]], None, None, None)], "walk")

    def error(self, guess: np.ndarray) -> float:
        """The share of wrong guesses about photos of known class that have no label."""
        names = {facts.id: facts.name for facts in self.project.classes()}
        asked = [image for image, true in enumerate(self.truth) if true and self.project.labels[image] < 0]
        return float(np.mean([names.get(int(guess[image])) != self.truth[image] for image in asked]))

    def error_of_labels_only(self) -> float:
        """The same by logistic regression on the labels of now."""
        project, device = self.project, torch.device("cpu")
        if self.teacher is None:
            self.teacher = Teacher(read_examples(project.folder, project.names, "", device, lambda *_: None), device)
        known = np.flatnonzero(project.labels >= 0).tolist()
        self.teacher.learn_labels(self.teacher.lesson(0, [(image, int(project.labels[image])) for image in known], []))
        assert self.teacher.labels_only is not None
        guess = np.full(len(project.names), -1)
        guess[self.teacher.examples.ids] = self.teacher.labels_only.guesses
        return self.error(guess)

    def row(self, began: float, answered: float) -> dict[str, Any]:
        """Wait until all is learned, and say how good it is."""
        n = self.project.n
        wait_for(lambda: any(row["n"] >= n and row["how"] == LABELS_ONLY for row in self.learner.history))
        waited_guesses = time.monotonic() - answered
        wait_for(lambda: (found := self.learner.beliefs) and found.n >= n and found.how == SEMI_SUPERVISED)
        waited_model, seconds = time.monotonic() - answered, time.monotonic() - began
        wait_for(lambda: any(row["n"] >= n and row["how"] == SEMI_SUPERVISED for row in self.learner.history))
        time.sleep(1)  # the accuracy is published right after its row
        beliefs, summary = self.learner.beliefs, self.learner.summary()
        assert beliefs is not None
        assert summary is not None
        accuracy = summary["accuracy"] or {"value": None, "low": None, "high": None}
        return {
            "labels": int((self.project.labels >= 0).sum()),
            "classes": sum(facts.count > 0 for facts in self.project.classes()),
            "seconds": seconds,
            "waited_guesses": waited_guesses,
            "waited_model": waited_model,
            "error_labels_only": self.error_of_labels_only(),
            "error": self.error(beliefs.guess),
            "how": summary["how"],
            "shown": accuracy["value"],
            "low": accuracy["low"],
            "high": accuracy["high"],
            "enough": summary["enough"]["verdict"],
        }


def wait_for(what: Callable[[], Any]) -> None:
    end = time.monotonic() + LONGEST
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("The model takes too long.")
        time.sleep(0.02)


def machine() -> str:
    return f"{device_name(torch.device('cpu'))}, {count_cores()} cores"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--out", type=Path, default=Path("studio.csv"))
    parser.add_argument("--pause", type=float, default=2.0, help="seconds a person takes for an answer")
    parser.add_argument("--stops", type=int, nargs="+", default=STOPS)
    options = parser.parse_args(arguments)
    commit = ""
    with suppress(OSError):
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    facts, rows = {"commit": commit, "machine": machine()}, []
    with tempfile.TemporaryDirectory() as folder:
        truth = without_classes(options.photos, Path(folder))
        with closing(Project(Path(folder), print)) as project:
            began = time.monotonic()
            learner = Learner(project, lambda kind, value: print(value["sentence"]) if kind == "notice" else None)
            walk = Walk(project, learner, truth)
            walk.skip_unknown()
            with closing(learner):
                learner.start()
                wait_for(lambda: learner.beliefs)
                print(f"{len(truth):,} photos, first suggestions after {time.monotonic() - began:.1f} s", flush=True)
                answered = time.monotonic()
                for stop in options.stops:
                    while (project.labels >= 0).sum() < stop:
                        time.sleep(max(0.0, answered + options.pause - time.monotonic()))
                        walk.answer()
                        answered = time.monotonic()
                    row = {**walk.row(began, answered), **facts}
                    rows.append({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
                    print({key: rows[-1][key] for key in COLUMNS[:-2]}, flush=True)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
