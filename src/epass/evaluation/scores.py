"""The one table of scores (metrics): how each is called, computed, written and read. A new one is one entry."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, SupportsFloat

import numpy as np

from ..errors import InputError
from .arrays import ArrayLike, Floats
from .outputs import Outputs

Place = Literal["screen", "page", "file", "list"]


@dataclass(frozen=True)
class Score:
    """A number that says how good a model is, and all that results, tables, pages and cards know about it."""

    key: str  # in results.json
    name: str  # for people
    definition: str  # one sentence; empty where nobody knows
    better: Literal["lower", "higher"] | None  # values; None where that cannot be said
    compute: Callable[[Outputs], SupportsFloat | None] | None = None  # None or NaN where it is undefined: left out
    short: str = ""  # name over a column, where that is another one
    unit: Literal["%", "s", ""] = "%"  # a fraction is stored, and read in percent
    digits: int = 2  # after the point
    place: Place = "screen"  # of the smallest table with a column for it; "list": only evaluate, cards and results.json
    calibration: bool = False  # judges how sure the answers are: cards show it after temperature scaling, too
    opposite: str = ""  # key of the score that it is 1 minus of, and follows from where only that one is stored

    @property
    def head(self) -> str:
        """Its name over a column of cells that do not say the unit."""
        return f"{self.short or self.name}{', %' * (self.unit == '%')}"

    @property
    def scale(self) -> int:
        """What a stored value is multiplied by before people read it."""
        return 100 if self.unit == "%" else 1

    def cell(self, value: float, deviation: float | None = None) -> str:
        """A value, or mean ± standard deviation, below its head."""
        if self.unit == "s":
            return duration(value)
        parts = [value] if deviation is None else [value, deviation]
        return " ± ".join(f"{self.scale * part:.{self.digits}f}" for part in parts)

    def text(self, value: float, deviation: float | None = None) -> str:
        """The same where nothing else says the unit."""
        return f"{self.cell(value, deviation)}{' %' * (self.unit == '%')}"

    def explanation(self) -> str:
        """Name, definition and direction, for those who read a table."""
        name = f"{self.name} ({self.short})" if self.short not in self.name else self.name
        direction = f" ({self.better} is better)" if self.better else ""
        return f"{name[0].upper()}{name[1:]}: {self.definition}{direction}."


def score(logits: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """All scores of the predictions by key, as fractions where their unit is a percentage."""
    outputs = Outputs(logits, labels)
    if are_probabilities(outputs.logits):
        warnings.warn(
            "The logits look like probabilities: if they are, what is said of calibration, NLL and Brier score is "
            "wrong. Give the logits, or numpy.log of the probabilities.",
            stacklevel=2,
        )
    found = {one.key: one.compute(outputs) for one in SCORES.values() if one.compute}
    return {key: float(value) for key, value in found.items() if value is not None and math.isfinite(value)}


def are_probabilities(logits: Floats) -> bool:
    """Whether these (N, C) seem to be no logits; zeros and ones alone are answers, however they are meant."""
    unsure = ((logits > 0) & (logits < 1)).any()
    return bool(unsure and logits.min() >= 0 and np.abs(logits.sum(axis=1) - 1).max() < 1e-3)  # as of 16 bits


def add_score(new: Score) -> None:
    """Put a score of your own into the table: from now on it is computed, stored and shown like the others."""
    if not new.key.isidentifier():
        raise InputError(f"'{new.key}' cannot name a score in results.json: use letters, digits and underscores.")
    if new.key in SCORES:
        raise InputError(f"There is a score '{new.key}' already: choose another key.")
    SCORES[new.key] = new


def scores_for(stored: Iterable[str]) -> list[Score]:
    """The table, and below it an entry for each stored key that is not in it: its value as it is, under its key."""
    strange = [key for key in dict.fromkeys(stored) if key not in SCORES]
    # whoever wrote the key may be a stranger: letters, digits and underscores mean nothing to a page or a terminal
    return [*SCORES.values(), *(Score(key, re.sub(r"\W", "_", key), "", None, unit="", digits=4) for key in strange)]


def duration(seconds: float) -> str:
    """A length of time in hours and minutes, if it is not short."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def balanced_accuracy(outputs: Outputs) -> float:
    """Mean recall of the classes that have images."""
    return float(_recalls(outputs)[outputs.counts.images > 0].mean())


def _recalls(outputs: Outputs) -> Floats:
    recalls: Floats = outputs.counts.hits / np.maximum(outputs.counts.images, 1)  # no image, no hit: 0
    return recalls


def _precision(outputs: Outputs) -> float:
    return float((outputs.counts.hits / np.maximum(outputs.counts.answers, 1)).mean())


def _f1(outputs: Outputs) -> float:
    counts = outputs.counts.images + outputs.counts.answers
    return float((2 * outputs.counts.hits / np.maximum(counts, 1)).mean())


def _one_vs_rest_auc(outputs: Outputs) -> float | None:
    areas = []
    for label in np.unique(outputs.labels):
        member = outputs.labels == label
        positives, negatives = int(member.sum()), int((~member).sum())
        if negatives:
            ranked, own = np.sort(outputs.probs[:, label]), np.sort(outputs.probs[member, label])
            first, last = np.searchsorted(ranked, own, "left") + 1, np.searchsorted(ranked, own, "right")
            wins = ((first + last) / 2).sum() - positives * (positives + 1) / 2  # ties share the middle of their ranks
            areas.append(wins / (positives * negatives))
    return float(np.mean(areas)) if areas else None


def _brier(outputs: Outputs) -> float:
    # sum over c of (p_c - y_c)^2 without building the one-hot y
    return float(((outputs.probs**2).sum(axis=1) - 2 * outputs.of_truth(outputs.probs) + 1).mean())


SCORES: dict[str, Score] = {
    entry.key: entry
    for entry in (
        Score(
            "error",
            "error",
            "share of test images whose prediction is wrong",
            "lower",
            lambda outputs: (outputs.ranks > 0).mean(),
            place="list",  # tables have it more than once: of the last step, and of those that were chosen
        ),
        Score(
            "accuracy",
            "accuracy",
            "share of test images whose prediction is right",
            "higher",
            lambda outputs: (outputs.ranks == 0).mean(),
            place="list",
            opposite="error",
        ),
        Score(
            "top5_error",
            "top-5 error",
            "share whose true class is not among the five most probable; only with more than five classes",
            "lower",
            lambda outputs: (outputs.ranks >= 5).mean() if outputs.num_classes > 5 else None,
            place="list",
        ),
        Score(
            "top5_accuracy",
            "top-5 accuracy",
            "share whose true class is among the five most probable; only with more than five classes",
            "higher",
            lambda outputs: (outputs.ranks < 5).mean() if outputs.num_classes > 5 else None,
            place="list",
            opposite="top5_error",
        ),
        Score(
            "balanced_accuracy",
            "balanced accuracy",
            "mean over classes of the share predicted right; classes without a test image are left out",
            "higher",
            balanced_accuracy,
            place="list",
        ),
        Score(
            "precision",
            "precision (macro)",
            "mean over all classes of: right among those predicted as the class; 0 if nothing was",
            "higher",
            _precision,
            short="precision",
            place="list",
        ),
        Score(
            "recall",
            "recall (macro)",
            "mean over all classes of: right among those of the class; 0 if there are none",
            "higher",
            lambda outputs: _recalls(outputs).mean(),
            short="recall",
            place="list",
        ),
        Score(
            "f1",
            "F1 (macro)",
            "mean over all classes of the harmonic mean of precision and recall; 0 where undefined",
            "higher",
            _f1,
            short="F1",
            place="list",
        ),
        Score(
            "auc",
            "AUC (one against the rest)",
            "mean over classes of how often a member gets a higher probability than a non-member, ties counting half",
            "higher",
            _one_vs_rest_auc,
            short="AUC",
            unit="",
            digits=4,
            place="list",
        ),
        Score(
            "ece",
            "calibration error (ECE)",
            "mean gap between accuracy and confidence over ten bins of confidence, weighted by their images",
            "lower",
            lambda outputs: outputs.bins.ece,
            short="ECE",
            calibration=True,
        ),
        Score(
            "mce",
            "largest calibration error (MCE)",
            "widest gap between accuracy and confidence of such a bin, however few images it holds",
            "lower",
            lambda outputs: outputs.bins.mce,
            place="list",
            calibration=True,
        ),
        Score(
            "nll",
            "negative log-likelihood",
            "mean of -log p, p the probability of the true class, in nats; not limited to 1",
            "lower",
            lambda outputs: -outputs.of_truth(outputs.log_probs).mean(),
            short="NLL",
            unit="",
            digits=3,
            place="page",
            calibration=True,
        ),
        Score(
            "brier",
            "Brier score",
            "mean over images of the sum over classes of (p - y)², y 1 for the true class, else 0; from 0 to 2",
            "lower",
            _brier,
            unit="",
            digits=4,
            place="list",
            calibration=True,
        ),
    )
}
