"""Two runs on the images that both were tested on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import InputError
from ..evaluation import SCORES
from ..evaluation.arrays import log_softmax
from ..report.summary import Group
from ..report.verdict import compare
from ..runs import Predictions, Run, names_of_test_images

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tested(NamedTuple):
    """The test images of a run by name, and what its model says about them."""

    run: Run
    names: list[str]
    places: dict[str, int]  # by name
    classes: Sequence[str]
    guesses: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @classmethod
    def of(cls, run: Run) -> Tested | None:
        """None where there is no test, or it is not over."""
        if run.predictions is None or run.model is None or run.results is None or "last" not in run.results:
            return None
        logits, labels = run.predictions
        classes = run.model["classes"]
        if logits.shape[1] != len(classes):
            raise InputError(f"'{run.path}' is damaged: its answers are not about its {len(classes)} classes.")
        names = names_of_test_images(run.path, len(labels))
        sure = np.exp(log_softmax(logits.astype(np.float64))).max(axis=1)
        return cls(run, names, {name: place for place, name in enumerate(names)}, classes, logits.argmax(axis=1), sure)

    def truth(self, place: int) -> str:
        assert self.run.predictions is not None
        return str(self.classes[int(self.run.predictions.labels[place])])

    def guess(self, place: int) -> str:
        return str(self.classes[int(self.guesses[place])])

    def wrong(self, places: Sequence[int]) -> NDArray[np.bool_]:
        assert self.run.predictions is not None
        return np.asarray((self.guesses != self.run.predictions.labels)[list(places)])

    def with_answers(self, wrong: NDArray[np.bool_], label: str) -> Group:
        """The run as if all its test images were of one class: two runs may give their classes other numbers."""
        error, truth = float(wrong.mean()), np.zeros(len(wrong), dtype=np.int64)
        answers = Predictions(np.eye(2, dtype=np.float32)[wrong.astype(np.int64)], truth)
        told = {**(self.run.results or {}), "last": {"error": error}}
        run = replace(self.run, predictions=answers, results=told, environment={"seed": 0})
        return Group(label, "", 1, {}, (run,))


def verdict(one: Tested, other: Tested, same: Sequence[tuple[int, int]], labels: Sequence[str]) -> str:
    """Which of the two is better, on the images that both were tested on, and is that more than luck?"""
    if not same:
        return "The two were tested on different images, so there is nothing to compare."
    number = f"{len(same):,} test image{'s' * (len(same) != 1)} of both"
    wrong = [tested.wrong([place[side] for place in same]) for side, tested in enumerate((one, other))]
    if np.array_equal(wrong[0], wrong[1]):
        return f"There is no difference: of {number}, {labels[0]} and {labels[1]} miss the same {wrong[0].sum():,}."
    ours, theirs = one.with_answers(wrong[0], labels[0]), other.with_answers(wrong[1], labels[1])
    error = SCORES["error"].text
    facts = f"of {number} {labels[0]} misses {error(ours.errors[0])} and {labels[1]} {error(theirs.errors[0])}"
    question = (
        f"{labels[0]} is better than {labels[1]}",
        f"{labels[0]} is worse than {labels[1]}",
        f"there is no clear difference between {labels[0]} and {labels[1]}",
    )
    return compare(ours, theirs).sentence(question, facts)
