"""Results that nobody should take for what they look like, each told in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import ArrayLike
from .confusion import ClassCounts, count_classes

EARLY, EARLIEST = 0.1, 200  # share of a run, and steps, before which nothing can be expected of it
HARDLY, TIMES = 0.1, 3  # above chance: less than so much of the way to all right, and less than so many times chance
DEVIATIONS = 2  # of the luck of guessing on so many test images
SWALLOWED = 0.5  # share of what belongs to the other classes
USED = 0.01  # coverage from which on pseudo-labels are many enough to be judged
BY_HEART = 0.05  # loss on labeled images that are all right
NAMED = 10  # classes in a sentence
TURNED = 0.3  # share of images whose turn is found, of which a quarter is luck
FIRST = "learning from the images alone first ('epass pretrain --method rotnet', then --from; not for features)"


def find_alarms(
    logits: ArrayLike,
    labels: ArrayLike,
    who: str = "this model",
    row: Mapping[str, Any] | None = None,
    *,
    start: bool = False,
) -> list[str]:
    """What has to be said about the answers (N, C) to images with these labels (N,); nothing where all is well.

    `row` of the metrics, which belongs to these answers, may know why. A `start` for others, learned without labels, is
    judged by that row alone.
    """
    if start:
        return _find_idle(row or {}, who)
    predicted = np.asarray(logits).argmax(axis=1)
    counts, images = count_classes(np.asarray(labels), predicted, logits.shape[1]), len(predicted)
    found = []
    if is_near_chance(counts):
        right, often = counts.hits.sum(), counts.images.max()
        found.append(
            f"The result of {who} is hardly better than guessing: {100 * right / images:.1f} % of {images:,} test "
            f"images are right, and always naming the most frequent class gives {100 * often / images:.1f} %. More "
            "steps, more labels or another learning rate (plan.lr) may help, and 'epass check' looks for mistakes in "
            "the data."
        )
        found += _reasons(row or {}, who, 1 / logits.shape[1])
    return found


def find_doubts(
    logits: ArrayLike,
    labels: ArrayLike,
    classes: Sequence[str],
    who: str = "this model",
    row: Mapping[str, Any] | None = None,
    *,
    start: bool = False,
) -> list[str]:
    """What has to be said about the test of a finished model: its alarms, and which classes it says nothing about."""
    return find_alarms(logits, labels, who, row, start=start) + find_untested(labels, classes)


def _find_idle(row: Mapping[str, Any], who: str) -> list[str]:
    """That a pre-training learned nothing, as far as a row of its metrics tells.

    How well its features name classes tells little: those of RotNet may be worse than chance, and a good start.
    """
    found = row.get("turns_found")
    if not isinstance(found, int | float) or row["step"] < EARLIEST or found >= TURNED:
        return []
    return [
        f"{who} finds the turn of {100 * found:.0f} % of the images, and guessing that of a quarter: there may be no "
        "way up that they share. 'epass pretrain --method moco' needs none."
    ]


def find_untested(labels: ArrayLike, classes: Sequence[str]) -> list[str]:
    """That no test image, of those with these labels (N,), is of some of the classes; nothing where all are there."""
    missing = untested(labels, classes)
    if not missing:
        return []
    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
    it = "it" if len(missing) == 1 else "them"
    return [f"No test image is of {', '.join(missing[:NAMED])}{more}: the test error says nothing about {it}."]


def untested(labels: ArrayLike, classes: Sequence[str]) -> list[str]:
    """The classes that none of these labels (N,) is a number of."""
    there = frozenset(np.unique(np.asarray(labels)).tolist())
    return [name for number, name in enumerate(classes) if number not in there]


def _reasons(row: Mapping[str, Any], who: str, even: float) -> list[str]:
    """Why a result may be no better than guessing, as far as the training shows it."""
    found, known = [], {key: value for key, value in row.items() if isinstance(value, int | float)}
    named, images = row.get("known_by_class"), row.get("images_by_class")
    if named and images and sum(named) * sum(images) > 0:  # right by luck: the class named and the true one agree
        even = float(np.dot(named, images)) / (sum(named) * sum(images))
    quality, loss = known.get("quality", math.inf), known.get("loss_labeled", math.inf)
    if known.get("coverage", 0.0) >= USED and _is_near(quality, even, 0.0):
        found.append(
            f"The pseudo-labels of {who} are no better than chance: {100 * quality:.1f} % of those in use are right, "
            f"and {100 * even:.1f} % would be by luck. A higher threshold may help, or {FIRST}."
        )
    if loss < BY_HEART:
        found.append(
            f"The labeled images of {who} are known by heart (their loss is {loss:.3f}) and nothing was learned from "
            f"them. More labels may help, or {FIRST}; 'epass check' tells whether labels contradict each other."
        )
    return found


def find_swallowing(row: Mapping[str, Any], classes: Sequence[str], who: str) -> list[str]:
    """That one class is named for most images, by a row of the metrics that counts pseudo-labels by class."""
    images = row.get("images_by_class") or [0.0]
    swallowing = swallowing_class(row["used_by_class"], images if sum(images) > 0 else None)
    if swallowing is None:
        return []
    label, share = swallowing
    name = classes[label] if label < len(classes) else label
    return [
        f"In {who} one class swallowed the others: {100 * share:.0f} % of the pseudo-labels at step {row['step']:,} "
        f"say '{name}'. More labels or distribution alignment may help."
    ]


def swallowing_class(used: npt.ArrayLike, images: npt.ArrayLike | None = None) -> tuple[int, float] | None:
    """The class that got half or more of what belongs to the others, and its share of the pseudo-labels.

    `used` (C,) says on what share of all unlabeled images each class is the pseudo-label, `images` (C,) how many there
    are of each: equally many, if that is unknown. A class with a share e of the images and s of the pseudo-labels took
    (s - e) / (1 - e) of the rest. While it is named less often than it has images, it may just be the easiest one.
    """
    named = np.asarray(used, dtype=np.float64)
    true = np.ones_like(named) if images is None else np.asarray(images, dtype=np.float64)
    if named.sum() <= 0 or true.sum() <= 0:
        return None
    given, true = named / named.sum(), true / true.sum()
    taken = np.divide(given - true, 1 - true, out=np.zeros_like(given), where=true < 1)
    worst = int(taken.argmax())
    return (worst, float(given[worst])) if taken[worst] >= SWALLOWED and named[worst] > true[worst] else None


def is_near_chance(counts: ClassCounts) -> bool:
    """Whether answers are hardly better than always naming the most frequent class.

    Rare classes that are recognized count, too: the mean over classes must be hardly better than that of a guess.
    """
    there = counts.images > 0
    if there.sum() < 2:  # with one class to be right about, nobody can do better
        return False
    sizes, right = counts.images[there], counts.hits[there]
    often, even = sizes.max() / sizes.sum(), 1 / len(sizes)
    luck = math.sqrt(often * (1 - often) / sizes.sum())
    luck_of_mean = math.sqrt(even * (1 - even) * (1 / sizes).sum()) / len(sizes)
    return _is_near(right.sum() / sizes.sum(), often, luck) and _is_near((right / sizes).mean(), even, luck_of_mean)


def _is_near(share: float, chance: float, luck: float) -> bool:
    hardly = min(HARDLY * (1 - chance), TIMES * chance)
    return bool(share < min(1.0, chance + max(hardly, DEVIATIONS * luck)))
