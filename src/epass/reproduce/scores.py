"""What a benchmark table of the paper prints, taken from our runs or counted in our recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..recipe import Recipe
from ..report.summary import Spread, number, spread_of
from .counts import MILLION, count

Results = dict[str, Any]  # of a finished run, results.json


@dataclass(frozen=True)
class Score:
    """A number of `results.json`, as the paper prints it."""

    title: str
    key: str
    digits: int = 2
    percent: bool = True
    inverted: bool = False  # an accuracy, kept as an error

    def of(self, results: Results, moment: str) -> float | None:
        value = number(results, moment, self.key)
        if value is None:
            return None
        return (100 if self.percent else 1) * (1 - value if self.inverted else value)


@dataclass(frozen=True)
class Count:
    """A number that a recipe has before it is trained."""

    title: str
    digits: int = 1


METRICS: dict[str, Score | Count] = {
    "error": Score("top-1 error, %", "error"),
    "top5_error": Score("top-5 error, %", "top5_error"),
    "accuracy": Score("top-1 accuracy, %", "error", inverted=True),
    "top5_accuracy": Score("top-5 accuracy, %", "top5_error", inverted=True),
    "precision": Score("precision", "precision", digits=4, percent=False),
    "recall": Score("recall", "recall", digits=4, percent=False),
    "f1": Score("F1", "f1", digits=4, percent=False),
    "auc": Score("AUC", "auc", digits=4, percent=False),
    "epochs": Count("epochs", digits=0),
    "training_parameters": Count("parameters in training, M"),
    "test_parameters": Count("parameters in the test, M"),
}


def measured(metric: Score, runs: Sequence[Results], moment: str) -> Spread | None:
    """A score over the seeds."""
    return spread_of(metric.of(results, moment) for results in runs)


def counted_before(metric: str, recipe: Recipe, *, images: int, classes: int) -> Spread:
    """Epochs of so many unlabeled images, or millions of parameters with so many classes."""
    if metric == "epochs":
        batch = recipe.plan["labeled_batch"] * recipe.plan["unlabeled_ratio"]
        return Spread(recipe.plan["steps"] * batch / images, 0.0, 1)
    row: dict[str, Any] = {"network": recipe.net["name"], "classes": classes}
    if metric == "training_parameters" and recipe.projector is not None:
        row |= {"projectors": recipe.projector["size"], "out_dim": recipe.projector["out_dim"]}
    return Spread(count(row) / MILLION, 0.0, 1)
