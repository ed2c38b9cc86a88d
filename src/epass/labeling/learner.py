"""What the studio knows of its model: it asks the process that learns, and answers what pages want to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import one_of
from ..machine.cpu import count_cores
from .beliefs import BELIEFS, SEMI_SUPERVISED, TYPICAL, Beliefs, Ids, digest_of, read_beliefs
from .enough import enough, standing, why_no_accuracy
from .maps import read_map
from .pace import Due, Pace
from .steps import NUMBERS
from .views import BELIEVED, describe_bins

if TYPE_CHECKING:
    from .project import Changed, Project

HISTORY, LOG = "history.jsonl", "worker.log"
ATTEMPTS = 3  # to start a process that ends by itself, without having learned anything
PATIENCE = 0.5  # seconds in which it may end by itself
FAIR = "Measured on those of your labels that are a fair sample of the folder, each left out in turn."
NOT_FAIR = (
    "Measured on all of your labels, each left out in turn. If they are not a fair sample of the folder, nor is this: "
    "doubtful images are harder than most. A few more labels of suggested images, and it is."
)
LISTED = 100  # images by disagreement, which every image has some of
Publish = Callable[[str, Any], None]


class Learner:
    """The model of a project, as far as it is known in this process, which never imports torch."""

    def __init__(self, project: Project, publish: Publish, *, device: str = "auto") -> None:
        """`publish` is told of a new model, of progress and of what people should know, from threads of its own."""
        self.project, self.publish, self.device = project, publish, device
        self.digest = digest_of(project.names)
        self.beliefs: Beliefs | None = self._fitting(read_beliefs(project.home / BELIEFS))
        self.history = _read_history(project.home / HISTORY)
        self._map: dict[str, Any] | None = None
        self._pace, self._change = Pace(), Condition()
        self._process: subprocess.Popen[str] | None = None
        self._failures, self._closed = 0, False
        self._asker: Thread | None = None

    def start(self) -> None:
        """Begin to learn, in the background."""
        self.project.on_change(self._hear)
        self._launch()
        self._asker = Thread(target=self._ask, name="learner", daemon=True)
        self._asker.start()

    def close(self) -> None:
        """End the process, whatever it is doing: all that it wrote is whole."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if (process := self._process) is not None:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._asker is not None:
            self._asker.join(PATIENCE)

    # What pages ask for
    def summary(self) -> dict[str, Any] | None:
        """How good the model is and how that is known; None as long as there is none."""
        beliefs, labels = self.beliefs, self.project.labels
        if beliefs is None or beliefs.how is None:
            return None
        facts, rows = beliefs.facts, standing(list(self.history))
        left = int(((labels < 0) & (self.project.marks == 0)).sum())
        newest = {row["labels"]: row for row in rows if row["how"] == beliefs.how}
        return {
            "n": beliefs.n,
            "labels": facts["labels"],
            "how": beliefs.how,
            "accuracy": facts["accuracy"],
            "about": _about(facts) or why_no_accuracy(self._counts()),
            "labels_only": facts["labels_only"],
            "helped": facts["helped"],
            "history": [newest[count] for count in sorted(newest)],
            "enough": enough(rows, left),
            "seconds": facts["seconds"],
            "behind": int(self._news(beliefs).sum()),
            "unreadable": int((labels[beliefs.unreadable] >= 0).sum()),
        }

    def ids(self, view: str, **which: int) -> list[int]:
        """The images of a view, those to look at first in front."""
        one_of("view", view, BELIEVED)
        beliefs, labels = self.beliefs, self.project.labels
        if view == "suggested":
            return self._suggested(beliefs)
        if beliefs is None:
            return []
        if view == "unlike":
            return [image for image in beliefs.unlike.tolist() if self.project.marks[image] == 0]
        if view == "suspects":
            return [image for image in beliefs.suspects.tolist() if labels[image] == beliefs.taught[image]]
        if view == "disagreement":
            open_ones = np.flatnonzero((labels < 0) & np.isfinite(beliefs.disagreement))
            return _sorted(open_ones, -beliefs.disagreement)[:LISTED]
        guess, known = self._guess(beliefs), labels >= 0
        if view == "mistakes":
            chosen = known & (guess >= 0) & (guess != labels)
        elif view == "cell":
            chosen = known & (labels == which["true"]) & (guess == which["guess"])
        else:
            chosen = ~known & (guess == which["class"])
        return _sorted(np.flatnonzero(chosen), -beliefs.confidence)

    def facts(self, ids: Iterable[int]) -> list[dict[str, Any]]:
        """What the model believes about images, and why each is worth a look."""
        beliefs, names = self.beliefs, {facts.id: facts.name for facts in self.project.classes()}
        if beliefs is None:
            return [{"guess": None, "confidence": None, "why": None, "disagreement": None} for _ in ids]
        guess, suggested = self._guess(beliefs), set(beliefs.suggested.tolist())
        fair = set(beliefs.facts.get("fair", ()))
        unlike, suspects = set(beliefs.unlike.tolist()), set(beliefs.suspects.tolist())
        rows = []
        for image in ids:
            taken, label = int(guess[image]), int(self.project.labels[image])
            why = None
            if label >= 0:
                if image in suspects and label == beliefs.taught[image]:
                    why = "the other labels speak against this one"
            elif image in fair:
                why = "part of a fair sample, by which the accuracy is measured"
            elif image in suggested and beliefs.facts["by"] == TYPICAL:
                why = "stands for a group of images like it"
            elif image in suggested and taken >= 0:
                other = names.get(int(beliefs.second[image]))
                why = f"the model hesitates between '{names[taken]}' and '{other}'" if other else None
            elif image in unlike:
                why = "unlike all other images"
            doubt = float(beliefs.disagreement[image])
            rows.append(
                {
                    "guess": taken if taken >= 0 else None,
                    "confidence": round(float(beliefs.confidence[image]), 4) if taken >= 0 else None,
                    "why": why,
                    "disagreement": round(doubt, 4) if np.isfinite(doubt) else None,
                }
            )
        return rows

    def map(self) -> dict[str, Any] | None:
        """Where images lie on the map, once it was drawn."""
        if self._map is None and (found := read_map(self.project.home, self.digest)) is not None:
            whole = len(found.ids) == len(self.project.names)
            places = found.places.ravel().tolist()
            self._map = {"xy": places, "ids": None if whole else found.ids.tolist()}
        return self._map and {"n": self.project.n, **self._map}

    def confusion(self) -> dict[str, Any] | None:
        """How often labels of each class are taken for each other, by models that did not learn them."""
        if (heard := self._heard()) is None:
            return None
        beliefs, images = heard
        classes = [facts.id for facts in self.project.classes() if facts.count]
        guess, labels = self._guess(beliefs)[images], self.project.labels[images]
        named = np.isin(guess, classes)  # a class without labels has no row, and so no column
        matrix = np.zeros((len(classes), len(classes)), dtype=np.int64)
        np.add.at(matrix, (np.searchsorted(classes, labels[named]), np.searchsorted(classes, guess[named])), 1)
        return {"classes": classes, "matrix": matrix.tolist(), "labels": len(images), "how": beliefs.how}

    def calibration(self) -> dict[str, Any] | None:
        """Whether a confidence of 80 % is right in 80 % of the cases, by the same models."""
        from ..evaluation.calibration import bin_by_confidence

        if (heard := self._heard()) is None:
            return None
        beliefs, images = heard
        right = self._guess(beliefs)[images] == self.project.labels[images]
        found = bin_by_confidence(beliefs.confidence[images].astype(np.float64), right)
        return {"bins": describe_bins(found), "ece": found.ece, "labels": len(images), "how": beliefs.how}

    def _heard(self) -> tuple[Beliefs, NDArray[np.int64]] | None:
        """The labeled images that a model was asked about which had not learned their label, if they tell anything."""
        beliefs = self.beliefs
        if beliefs is None or why_no_accuracy(self._counts()):
            return None
        images = np.flatnonzero((self.project.labels >= 0) & (self._guess(beliefs) >= 0))
        return (beliefs, images) if len(images) else None

    def _guess(self, beliefs: Beliefs) -> Ids:
        """The guesses, without those for classes that are gone."""
        known = [facts.id for facts in self.project.classes()]
        found: Ids = np.where(np.isin(beliefs.guess, known), beliefs.guess, -1)
        return found

    def _counts(self) -> dict[str, int]:
        return {facts.name: facts.count for facts in self.project.classes()}

    def _suggested(self, beliefs: Beliefs | None) -> list[int]:
        """All images without a label, those worth most in front; what somebody passed over comes last."""
        labels, marks = self.project.labels, self.project.marks
        left = (labels < 0) & (marks == 0)
        first: list[int] = []
        if beliefs is None:  # nobody has looked at the images yet: neighbors in the folder are often alike
            rest = _spread(left)
        else:
            first = [image for image in beliefs.suggested.tolist() if left[image]]
            left[first] = False
            rest = _spread(left) if beliefs.how is None else _sorted(np.flatnonzero(left), beliefs.margin)
        return [
            *first,
            *rest,
            *(image for mark in ("unsure", "skip") for image in np.flatnonzero(marks == NUMBERS[mark]).tolist()),
        ]

    def _fitting(self, beliefs: Beliefs | None) -> Beliefs | None:
        """Beliefs about these images and classes, or none."""
        if beliefs is None or beliefs.digest != self.digest or len(beliefs.taught) != len(self.project.names):
            return None
        known = {facts.id for facts in self.project.classes()}
        ours = beliefs.n <= self.project.n and set(np.unique(beliefs.taught).tolist()) - {-1} <= known
        return beliefs if ours else None

    # The process that learns
    def _hear(self, changed: Changed) -> None:
        if changed.ids:
            with self._change:
                self._pace.answered(time.monotonic(), len(changed.ids))
                self._change.notify_all()

    def _launch(self) -> None:
        """Start the process, tell it where the images are, and let it learn what is known already."""
        threads = str(max(1, count_cores() - 1))
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        home, current = self.project.home, self.beliefs
        with (home / LOG).open("w") as log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, **dict.fromkeys(names, threads)},
                start_new_session=True,  # Ctrl-C is for the server, which ends it in good order
            )
        assert process.stdin is not None
        assert process.stdout is not None
        Thread(target=self._listen, args=(process, process.stdout), name="beliefs", daemon=True).start()
        self._pace = Pace()
        shown = current is not None and current.how == SEMI_SUPERVISED and self._is_current(current)
        opening = {
            "folder": str(self.project.folder),
            "home": str(home),
            "names": list(self.project.names),
            "digest": self.digest,
            "device": self.device,
            "map": self.map() is not None,
        }
        self._send(process.stdin, opening)
        self._request(process.stdin, "all", quiet=shown)

    def _is_current(self, beliefs: Beliefs) -> bool:
        return not self._news(beliefs).any()

    def _news(self, beliefs: Beliefs) -> NDArray[np.bool_]:
        """The images whose label was not learned yet; that of an image which cannot be read never is."""
        news: NDArray[np.bool_] = beliefs.taught != self.project.labels
        news[beliefs.unreadable] = False
        return news

    def _request(self, pipe: IO[str], what: Due, *, quiet: bool = False) -> None:
        n = self.project.n  # before the labels: a change in between is learned now, and again
        labels, marks = self.project.labels.copy(), self.project.marks.copy()
        known, marked = np.flatnonzero(labels >= 0), np.flatnonzero(marks)
        self._pace.asked(what)
        said = {
            "n": n,
            "all": what == "all",
            "quiet": quiet,
            "labels": np.stack([known, labels[known]], 1).tolist(),
            "marks": np.stack([marked, marks[marked]], 1).tolist(),
        }
        self._send(pipe, said)

    def _send(self, pipe: IO[str], request: Mapping[str, Any]) -> None:
        with suppress(OSError, ValueError):  # whoever listens to the process finds out that it ended
            pipe.write(json.dumps(request) + "\n")
            pipe.flush()

    def _ask(self) -> None:
        """Request what is due."""
        with self._change:
            while not self._closed:
                process, due = self._process, self._pace.due(time.monotonic())
                if due is None or process is None or process.stdin is None:
                    self._change.wait(self._pace.wait(time.monotonic()))
                else:
                    self._request(process.stdin, due)

    def _listen(self, process: subprocess.Popen[str], answers: IO[str]) -> None:
        """Take what the process says; start another one if it ended by itself."""
        for line in answers:
            with suppress(ValueError):  # a process that was killed may have written half a line
                self._take(json.loads(line))
        process.wait()
        for pipe in (process.stdin, answers):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        with self._change:
            if self._closed:
                return
            self._failures += 1
            again = self._failures < ATTEMPTS
            outcome = "it was started again" if again else "it will not be started again before the studio is"
            reason = _last_line(self.project.home / LOG)
            sentence = f"The process that learns ended unexpectedly{reason}: {outcome}, and all labels are safe."
            self._process = None
            if again:
                self._launch()
        self.publish("progress", {"done": True})
        self.publish("notice", {"sentence": sentence, "kind": "warning"})

    def _take(self, said: dict[str, Any]) -> None:
        """One line of the process."""
        event = said.pop("event")
        if event in ("progress", "notice"):
            self.publish(event, said)
        elif event == "done":
            with self._change:
                self._failures = 0
                self._pace.done(said["what"])
                self._change.notify_all()
        elif event == "taught":
            row = {**said["row"], "at": round(time.time(), 1)}
            self.history.append(row)
            with suppress(OSError), (self.project.home / HISTORY).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        else:  # beliefs, or the map
            self.beliefs = self._fitting(read_beliefs(self.project.home / BELIEFS)) or self.beliefs
            self.publish("model", self.summary())


def _about(facts: Mapping[str, Any]) -> str | None:
    """What an accuracy was measured on, if there is one."""
    return (FAIR if facts["sampled"] else NOT_FAIR) if facts["accuracy"] else None


def _read_history(path: Path) -> list[dict[str, Any]]:
    """The rows of earlier days; those that a crash left torn are left out."""
    rows = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                row = json.loads(line)
                known = isinstance(row, dict) and {"n", "labels", "how", "accuracy"} <= set(row)
                if known and {type(row["n"]), type(row["labels"])} == {int}:
                    rows.append(row)
    return rows


def _last_line(path: Path) -> str:
    """What a process said at its end, for a sentence."""
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f" ({lines[-1][:200].rstrip('.')})" if lines else ""
    return ""


def _sorted(images: NDArray[np.int64], by: NDArray[Any]) -> list[int]:
    found: list[int] = images[np.argsort(by[images], kind="stable")].tolist()
    return found


def _spread(chosen: NDArray[np.bool_]) -> list[int]:
    """The chosen images in an order whose beginning is spread over the folder, and that does not depend on which."""
    steps = np.arange(1, len(chosen) + 1) * ((5**0.5 - 1) / 2) % 1
    order = np.argsort(np.argsort(steps, kind="stable"), kind="stable")
    found: list[int] = order[chosen[order]].tolist()
    return found
