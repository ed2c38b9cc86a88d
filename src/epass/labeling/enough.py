"""Have I labeled enough? An answer from how the model grew with the labels, and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

LEAST_LABELS, LEAST_EACH = 10, 2  # in all and in each class: fewer say nothing about accuracy
FEWEST = 30  # labels, below which the interval of an accuracy is wider than most differences that matter
EARLIER = 2 / 3  # of the labels: what the model was then is compared with what it is now
SURE = 0.2  # the widest interval of an accuracy that can be called known
GROWTH = 0.02  # of the accuracy, from which on more labels pay
SETTLED = 0.02  # of the guesses may change between two teachings of a model that has settled
HITS, HIT_SHARE = 10, 0.9  # answers that tell how good guesses are, and the share of right ones that is good

Verdict = Literal["not yet", "probably", "yes"]


class Signs(NamedTuple):
    """What speaks for having labeled enough."""

    known: bool  # the accuracy, well
    grows: float | None  # the accuracy since EARLIER of the labels; None where nobody measured it then
    settled: bool  # the guesses change no more
    asked: int  # of the last answers, those with a guess before
    right: int  # of these


def why_no_accuracy(counts: Mapping[str, int]) -> str | None:
    """Why labels, so many of each class, cannot tell the accuracy yet; None if they can.

    It is measured by labels that are left out in turn. The only label of a class cannot be left out, for nothing would
    be left of the class, and without such labels the accuracy would look better than it is.
    """
    present = {name: count for name, count in counts.items() if count}
    if len(present) < 2:
        return "A model appears as soon as two classes have a label each."
    total, alone = sum(present.values()), [name for name, count in present.items() if count < LEAST_EACH]
    if total < LEAST_LABELS:
        missing = LEAST_LABELS - total
        return (
            f"Too few labels to tell the accuracy: {missing} more, and at least {LEAST_EACH} in each class, and it is "
            "shown."
        )
    if alone:
        which = f"Class '{alone[0]}' has" if len(alone) == 1 else f"{len(alone)} classes have"
        return (
            f"{which} a single label, which cannot be left out to test the model: from {LEAST_EACH} labels in each "
            "class on, the accuracy is shown."
        )
    return None


def enough(history: Sequence[Mapping[str, Any]], left: int) -> dict[str, str]:
    """A verdict and its reason, from the rows of the history and the number of images without a label."""
    if not left:
        return answer("yes", "Every image has a label or a mark: there is nothing left to label.")
    measured = [row for row in history if row.get("accuracy") is not None]
    if not measured:
        return answer("not yet", "The accuracy is not known yet: it takes 2 labels in each class, and 10 in all.")
    now = measured[-1]
    same = [row for row in measured if row["how"] == now["how"]]
    found, labels = signs(same, history), int(now["labels"])
    if labels < FEWEST:
        return answer(
            "not yet",
            f"{labels} labels leave the accuracy between {points(now['low'])} and {points(now['high'])} %: label on, "
            f"to {FEWEST} at least.",
        )
    if found.grows is not None and found.grows > GROWTH:
        return answer(
            "not yet", f"The last {since(same)} labels made the accuracy {points(found.grows)} points higher: label on."
        )
    hits = found.asked >= HITS and found.right >= HIT_SHARE * found.asked
    said = f"the model had guessed {found.right} of your last {found.asked} answers" if found.asked else ""
    if found.settled and found.known and found.grows is not None:
        reasons = ["new labels change fewer than 2 of 100 guesses and no longer raise the accuracy"]
        return answer("yes", f"More labels change little: {', and '.join([*reasons, *([said] if hits else [])])}.")
    if found.settled or hits:
        reason = "new labels change few guesses" if found.settled else said
        lacks = (
            "the accuracy is not known well yet"
            if not found.known
            else "guesses still change"
            if not found.settled
            else "it is not known yet whether the accuracy still grows"
        )
        return answer("probably", f"{reason[0].upper()}{reason[1:]}, but {lacks}: a few more labels will tell.")
    return answer("not yet", "New labels still change the guesses of the model: label on.")


def standing(history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The history without what was learned from labels that were taken back since: they say nothing about those of now.

    A row is written when a model has learned, maybe after one that knows later labels: the number of the record counts.
    """
    kept, fewest = set[int](), float("inf")
    for place in sorted(range(len(history)), key=lambda place: (history[place]["n"], place), reverse=True):
        fewest = min(fewest, history[place]["labels"])
        if history[place]["labels"] <= fewest:
            kept.add(place)
    return [row for place, row in enumerate(history) if place in kept]


def signs(rows: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> Signs:
    """What the measured `rows` of one way to learn, and the history of all ways, show."""
    now = rows[-1]
    earlier = [row for row in rows if row["labels"] <= EARLIER * now["labels"]]
    recent = [row["changed"] for row in rows if row["labels"] > EARLIER * now["labels"]]
    changes = [change for change in recent[-3:] if change is not None]
    asked = right = 0
    for row in reversed(history):
        if asked >= HITS:
            break
        asked, right = asked + int(row.get("asked") or 0), right + int(row.get("right") or 0)
    return Signs(
        known=now["high"] - now["low"] <= SURE,
        grows=now["accuracy"] - earlier[-1]["accuracy"] if earlier else None,
        settled=len(changes) >= 2 and max(changes) <= SETTLED,
        asked=asked,
        right=right,
    )


def since(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many labels came after the teaching that the newest one is compared with."""
    now = int(rows[-1]["labels"])
    return now - max(int(row["labels"]) for row in rows if row["labels"] <= EARLIER * now)


def points(share: float) -> str:
    """Hundredths of a share."""
    return f"{100 * share:.0f}"


def answer(verdict: Verdict, sentence: str) -> dict[str, str]:
    """As the page takes it."""
    return {"verdict": verdict, "sentence": sentence}
