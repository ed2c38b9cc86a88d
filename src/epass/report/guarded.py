"""What a guard found about a run, in a sentence or two: did the unlabeled images help, and which model was kept?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runs import KEPT_LABELS_ONLY


def guard_sentences(results: Mapping[str, Any] | None) -> list[str]:
    """The answer of the labels that were left out and, as a report that decides nothing, that of the test images."""
    found = (results or {}).get("guard")
    if found is None:
        return []
    test = {side: found["test"][side]["error"] for side in ("method", "labels_only")}
    errors = (
        f"{_percent(test['method'])} are wrong with the unlabeled images and {_percent(test['labels_only'])} without"
    )
    if found.get("gap") is None:
        labels = f"{found['labels']:,} label{'s' * (found['labels'] != 1)}"
        return [
            f"On the test images {errors}.",
            f"The run keeps its model: test images must not decide, and {labels} that all were trained on cannot; "
            "--guard leaves some out in turn, which takes longer.",
        ]
    return [_answer(found), f"On the test images, which decide nothing here, {errors}."]


def _answer(found: Mapping[str, Any]) -> str:
    labels, gap = f"{found['labels']:,} label{'s' * (found['labels'] != 1)}", found["gap"]
    how = "kept for validation" if found["basis"] == "validation" else "left out in turn"
    errors = _percent(found["method"]["value"]), _percent(found["labels_only"]["value"])
    facts = (
        f"of the {labels} {how}, the model misses {errors[0]} and labels only {errors[1]}, a difference of "
        f"{_points(gap['value'])} points (95 % interval {_points(gap['low'])} to {_points(gap['high'])})"
    )
    if found["kept"] == KEPT_LABELS_ONLY:
        return f"The unlabeled images did not help, and the run keeps the model of labels only: {facts}."
    if gap["high"] < 0:
        return f"The unlabeled images helped: {facts}."
    return f"So few labels cannot tell whether the unlabeled images helped, and the run keeps its model: {facts}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
