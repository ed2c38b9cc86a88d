"""The process that learns: it reads requests line by line, and writes beliefs and a map into the project's folder.

It ends as soon as nobody is there to ask it. Whatever it writes is whole or not there, so it may be killed at any time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import InputError
from ..machine.cpu import count_cores, prepare_cpu
from .beliefs import BELIEFS

if TYPE_CHECKING:
    from .teach import Lesson

Request = dict[str, Any]
IDLE = 2.0  # seconds without a request, after which there is time for the map
BEAT = 0.3  # seconds between two signs of life


def main() -> None:
    """Answer requests until the other side closes its end."""
    if hasattr(os, "nice"):
        os.nice(10)  # the page, and everything else, comes first
    prepare_cpu()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    requests: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin, requests), daemon=True).start()
    import torch  # which takes a second, in which this may have to end

    torch.set_num_threads(max(1, count_cores() - 1))
    Worker(requests, answers).run()


def _listen(source: TextIO, requests: SimpleQueue[Request]) -> None:
    """Pass requests on; where they end, so does the process, in the middle of a step or not."""
    for line in source:
        requests.put(json.loads(line))
    os._exit(0)


class Worker:
    """What a folder's model is learned by: labels alone at once, everything in the time between."""

    def __init__(self, requests: SimpleQueue[Request], answers: TextIO) -> None:
        """`answers` are read by whoever makes the `requests`."""
        self.requests, self.answers, self.writing = requests, answers, Lock()
        self.said = 0.0  # when progress was told
        self.waiting: Lesson | None = None  # to be learned with the unlabeled images
        self.learning: Generator[tuple[int, int], None, Request] | None = None
        self.newest: Lesson | None = None
        self.open(requests.get())

    def open(self, asked: Request) -> None:
        """Read the images, which takes longest."""
        from ..machine.device import choose_device
        from .examples import read_examples
        from .teach import Teacher

        self.home, names = Path(asked["home"]), asked["names"]
        device = choose_device(asked["device"])
        try:
            examples = read_examples(Path(asked["folder"]), names, asked["digest"], device, self.progress)
        except InputError as problem:
            self.tell("notice", sentence=str(problem), kind="warning")
            while True:  # there is nothing to learn from: the other side decides when this ends
                self.requests.get()
        self.teacher = Teacher(examples, device)
        self.mapping = not asked["map"]
        self.tell("progress", done=True)
        if examples.unreadable:
            sentence = f"{examples.unreadable:,} of {len(names):,} images cannot be read: the model leaves them out."
            self.tell("notice", sentence=sentence, kind="warning")

    def run(self) -> None:
        """Do what is asked: labels alone at once, even between two steps of what takes longer."""
        while True:
            try:
                busy = self.learning is not None or self.waiting is not None
                request = self.requests.get_nowait() if busy else self.requests.get(timeout=IDLE)
            except Empty:
                if self.learning is not None or self.waiting is not None:
                    self.go_on()
                elif self.mapping:
                    self.mapping = False
                    Thread(target=self.draw_map, daemon=True).start()
                continue
            self.learn(request)

    def learn(self, request: Request) -> None:
        """Learn the labels of a request; if it asks for everything, the rest follows when there is time."""
        lesson = self.teacher.lesson(request["n"], request["labels"], request["marks"])
        self.newest = lesson
        if len(lesson.classes) >= 2:
            self.learn_labels(lesson)
        if not request["quiet"]:
            self.publish()
        self.tell("done", what="labels")
        if request["all"]:
            if len(lesson.classes) >= 2 and lesson.left.any():
                self.waiting = lesson
            else:
                self.tell("done", what="all")

    def learn_labels(self, lesson: Lesson) -> None:
        """Learn from the labels alone, unless that is what was learned last."""
        known = self.teacher.labels_only
        if known is None or known.lesson.n != lesson.n:
            self.tell("taught", row=self.teacher.learn_labels(lesson))

    def go_on(self) -> None:
        """Make the next step of what takes longer."""
        from ..training.window import NotFiniteError

        before = self.teacher.semi
        if self.learning is None:
            assert self.waiting is not None
            lesson, self.waiting = self.waiting, None
            self.learn_labels(lesson)
            self.learning = self.teacher.learn_all(lesson)
        try:
            self.progress("Learning from all photos", *next(self.learning))
            if self.teacher.semi is not before:
                self.publish()
            return
        except StopIteration as end:
            self.tell("taught", row=end.value)
        except NotFiniteError as problem:
            self.tell("notice", sentence=f"Only the labels were learned from: {problem}", kind="warning")
        self.learning = None
        self.publish()
        self.tell("progress", done=True)
        self.tell("done", what="all")

    def publish(self) -> None:
        """Write what is believed now."""
        assert self.newest is not None
        self.teacher.believe(self.newest).write(self.home / BELIEFS)
        self.tell("beliefs")

    def draw_map(self) -> None:
        """Arrange the images once; a few words say why, if that cannot be done."""
        from .maps import draw_map

        try:
            if draw_map(self.teacher.examples, self.home):
                self.tell("map")
        except InputError as problem:
            self.tell("notice", sentence=f"There is no map: {problem}", kind="info")

    def progress(self, what: str, done: int, total: int) -> None:
        """Say how far something is, now and then."""
        if time.monotonic() - self.said > BEAT:
            self.said = time.monotonic()
            self.tell("progress", what=what, done=done, total=total)

    def tell(self, event: str, **facts: Any) -> None:
        """Write one line."""
        with self.writing:
            self.answers.write(json.dumps({"event": event, **facts}) + "\n")


if __name__ == "__main__":
    main()
