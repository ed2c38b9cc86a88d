"""What a benchmark table of the paper prints, taken from our runs or counted in our recipes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..evaluation import SCORES, Score
from ..recipe import Recipe
from ..report.summary import Spread, spread_of
from ..report.table import stored
from .counts import MILLION, count

Results = dict[str, Any]  # of a finished run, results.json


METRICS: dict[str, Score] = {
    "error": replace(SCORES["error"], name="top-1 error"),
    "accuracy": replace(SCORES["accuracy"], name="top-1 accuracy"),
    **{key: SCORES[key] for key in ("top5_error", "top5_accuracy", "auc")},
    **{key: replace(SCORES[key], unit="", digits=4) for key in ("precision", "recall", "f1")},
    "epochs": Score("epochs", "epochs", "of the unlabeled images", None, unit="", digits=0),
    "training_parameters": Score("training_parameters", "parameters in training, M", "", None, unit="", digits=1),
    "test_parameters": Score("test_parameters", "parameters in the test, M", "", None, unit="", digits=1),
}


def measured(metric: Score, runs: Iterable[Results | None], moment: str) -> Spread | None:
    """A score over the seeds that got to their end."""
    return spread_of(stored(metric, results, moment) for results in runs)


def numbers(metric: Score, spread: Spread | None) -> tuple[float | None, float | None]:
    """Mean and, over several seeds, standard deviation, in the unit that the paper prints."""
    if spread is None:
        return None, None
    deviation = spread.deviation
    return round(metric.scale * spread.mean, 4), deviation and round(metric.scale * deviation, 4)


def counted_before(metric: str, recipe: Recipe, *, images: int, classes: int) -> Spread:
    """Epochs of so many unlabeled images, or millions of parameters with so many classes."""
    if metric == "epochs":
        batch = recipe.plan["labeled_batch"] * recipe.plan["unlabeled_ratio"]
        return Spread(recipe.plan["steps"] * batch / images, 0.0, 1)
    row: dict[str, Any] = {"network": recipe.net["name"], "classes": classes}
    if metric == "training_parameters" and recipe.projector is not None:
        row |= {"projectors": recipe.projector["size"], "out_dim": recipe.projector["out_dim"]}
    return Spread(count(row) / MILLION, 0.0, 1)
