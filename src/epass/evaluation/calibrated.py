"""What a model's answers are worth, learned from labels that it was not trained on. Numpy only: no torch is needed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .arrays import ArrayLike, Floats, Integers, as_arrays, log_softmax
from .temperature import fit_temperature

IMAGINED = 10  # labels that follow the model's own probabilities: with 3, calibrated models of photos got worse on 12
LARGEST, SMALLEST = 100.0, 0.01  # temperature that means something
ROUNDING = 1e-9


@dataclass(frozen=True)
class Calibration:
    """A temperature, and from which probability on a class belongs to the set of an image, or an answer is given."""

    temperature: float = 1.0
    labels: int = 0  # that it comes from
    source: str = ""  # of these: "validation", "cross-fitted", or where other images are
    coverage: float | None = None  # of prediction sets: how often the true class is in them
    set_from: float | None = None  # the probability that a class of a set has at least
    accuracy: float | None = None  # wanted of the images that are answered
    answer_from: float | None = None  # the largest probability of an image, below which the model abstains

    def as_json(self) -> dict[str, Any]:
        """What model.json holds under "calibration"."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, found: object) -> Calibration:
        """Read what model.json holds; nothing is a temperature of one. A ValueError says what makes no sense."""
        if found is None:
            return cls()
        known = {field.name for field in fields(cls)}
        if not isinstance(found, dict):
            raise ValueError("its 'calibration' is no table")
        calibration = cls(**{name: value for name, value in found.items() if name in known})  # a later one may say more
        shares = [getattr(calibration, name) for name in ("coverage", "set_from", "accuracy", "answer_from")]
        temperature = calibration.temperature
        sensible = (
            type(temperature) in (int, float)
            and SMALLEST <= temperature <= LARGEST
            and type(calibration.labels) is int
            and calibration.labels >= 0
            and isinstance(calibration.source, str)
            and all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares)
            and all((shares[place] is None) == (shares[place + 1] is None) for place in (0, 2))
        )
        if not sensible:
            raise ValueError("its 'calibration' is not what 'epass calibrate' writes there")
        return calibration

    def probabilities(self, logits: ArrayLike) -> Floats:
        """(N, C) of logits (N, C) that are divided by the temperature."""
        probs: Floats = np.exp(log_softmax(np.asarray(logits, dtype=np.float64) / self.temperature))
        return probs

    def sets(self, probs: Floats) -> NDArray[np.bool_]:
        """(N, C) which classes the set of an image has; none if even the likeliest is less probable than usual."""
        if self.set_from is None:
            raise ValueError("this calibration has no prediction sets")
        found: NDArray[np.bool_] = probs >= self.set_from
        return found

    def abstains(self, probs: Floats) -> NDArray[np.bool_]:
        """(N,) for which images no answer should be given."""
        if self.answer_from is None:
            raise ValueError("this calibration has no threshold for answers")
        found: NDArray[np.bool_] = probs.max(axis=1) < self.answer_from
        return found


def fit_calibration(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    source: str = "",
    coverage: float | None = None,
    accuracy: float | None = None,
) -> Calibration:
    """Learn from logits (N, C) of images with labels (N,) that the model was not trained on."""
    scores, truth = as_arrays(logits, labels)
    for share, what in ((coverage, "coverage"), (accuracy, "accuracy")):
        if share is not None:
            check_enough(len(truth), share, what)
    temperature = fit_temperature(scores, truth, imagined=IMAGINED)
    found = Calibration(float(np.clip(temperature, SMALLEST, LARGEST)), len(truth), source)
    probs = found.probabilities(scores)
    if coverage is not None:
        found = replace(found, coverage=coverage, set_from=set_limit(probs, truth, coverage))
    if accuracy is not None:
        found = replace(found, accuracy=accuracy, answer_from=answer_limit(probs, truth, accuracy))
    return found


def least_labels(share: float) -> int:
    """How many labels a promise about so large a share of images needs: 1 / (1 - share) - 1."""
    return math.ceil(1 / (1 - share) - 1 - ROUNDING)


def spread(labels: int, coverage: float) -> float:
    """The standard deviation of the true coverage of sets, by which labels they happened to be calibrated with."""
    rank = math.ceil((labels + 1) * coverage - ROUNDING)
    return math.sqrt(rank * (labels + 1 - rank) / ((labels + 1) ** 2 * (labels + 2)))


def set_limit(probs: Floats, truth: Integers, coverage: float) -> float:
    """The probability from which on a class belongs to the set of an image, so that `coverage` of sets hold the truth.

    Split conformal prediction with the score 1 - p of the true class (Sadinle et al., Least Ambiguous Set-Valued
    Classifiers with Bounded Error Levels, 2019): exact on average over calibration and new images of the same kind.
    """
    check_enough(len(truth), coverage, "coverage")
    rank = math.ceil((len(truth) + 1) * coverage - ROUNDING)
    return float(np.sort(probs[np.arange(len(truth)), truth])[len(truth) - rank])


def answer_limit(probs: Floats, truth: Integers, accuracy: float) -> float:
    """The lowest largest probability from which on answers are right with this accuracy, counting one more mistake.

    The limit is chosen to look good on these very labels: the mistake that was not seen makes up for that.
    """
    check_enough(len(truth), accuracy, "accuracy")
    confidence, wrong = probs.max(axis=1), probs.argmax(axis=1) != truth
    order = np.argsort(-confidence, kind="stable")
    falling = confidence[order]
    mistakes, answered = np.cumsum(wrong[order]) + 1, np.arange(1, len(truth) + 1) + 1
    last_of_equals = np.append(falling[1:] < falling[:-1], True)
    good = np.flatnonzero(last_of_equals & (mistakes <= (1 - accuracy) * answered + ROUNDING))
    if not len(good):
        raise InputError(
            f"An accuracy of {100 * accuracy:g} % cannot be promised from these {len(truth):,} labels, however few "
            "images are answered: ask for less with --accuracy, or give more labels."
        )
    return float(falling[good[-1]])


def check_enough(labels: int, share: float, what: str) -> None:
    """Refuse a promise, the `coverage` of sets or the `accuracy` of answers, that so few labels cannot make."""
    if not 0 < share < 1:
        raise InputError(f"--{what} {share:g} is no share of images: give a number between 0 and 1, like 0.9.")
    if labels < least_labels(share):
        raise InputError(
            f"{what.capitalize()} of {100 * share:g} % needs at least {least_labels(share):,} labels that the model "
            f"was not trained on, and there are {labels:,}."
        )
