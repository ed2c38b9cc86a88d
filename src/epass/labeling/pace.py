"""When to learn: soon after an answer from the labels alone, and from everything after a few answers or a pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAUSE, LATEST = 0.5, 2.0  # seconds after the last answer, and at most after the first one that was not learned
FEW, QUIET = 5, 5.0  # answers, or seconds after the last one, from which on everything is learned from
Due = Literal["labels", "all"]


@dataclass
class Pace:
    """Counts answers and time; one request of each kind is under way at most."""

    last: float = 0.0  # when the last answer came
    first: float | None = None  # when the first one came that the labels alone were not learned with
    news: int = 0  # answers that were not learned with everything
    labels_busy: bool = False
    all_busy: bool = False

    def answered(self, now: float, count: int) -> None:
        """So many images got an answer, or another one."""
        self.last, self.news = now, self.news + max(1, count)
        if self.first is None:
            self.first = now

    def due(self, now: float) -> Due | None:
        """What to ask for now."""
        if self._all_at() <= now:
            return "all"
        return "labels" if self._labels_at() <= now else None

    def wait(self, now: float) -> float | None:
        """The seconds until something is due; None if that takes an answer or the end of a request."""
        then = min(self._all_at(), self._labels_at())
        return None if then == float("inf") else max(0.0, then - now)

    def asked(self, what: Due) -> None:
        """A request is under way; one for everything is one for the labels, too."""
        self.labels_busy, self.first = True, None
        if what == "all":
            self.all_busy, self.news = True, 0

    def done(self, what: Due) -> None:
        """A request was answered."""
        if what == "all":
            self.all_busy = False
        else:
            self.labels_busy = False

    def _labels_at(self) -> float:
        if self.labels_busy or self.first is None:
            return float("inf")
        return min(self.last + PAUSE, self.first + LATEST)

    def _all_at(self) -> float:
        if self.labels_busy or self.all_busy or not self.news:
            return float("inf")
        return self.last if self.news >= FEW else self.last + QUIET
