"""Reading a run back."""

from __future__ import annotations

import json
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .folder import ENVIRONMENT, MODEL, PREDICTIONS, RECIPE, RESULTS, RunFolder


class Predictions(NamedTuple):
    """What the trained model said about images that it was not trained on."""

    logits: NDArray[np.float32]  # (N, C)
    labels: NDArray[np.int64]  # (N,)


@dataclass(frozen=True, eq=False)
class Run:
    """A run as it lies on disk. What a run writes at its end is None while it has not got there."""

    path: Path
    name: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    results: dict[str, Any] | None
    model: dict[str, Any] | None
    predictions: Predictions | None  # of the test images
    validation: Predictions | None = None  # of the labeled images kept back, where there are some

    @cached_property
    def wrong(self) -> NDArray[np.bool_] | None:
        """(N,) which test images were taken for another class."""
        if self.predictions is None:
            return None
        found: NDArray[np.bool_] = self.predictions.logits.argmax(axis=1) != self.predictions.labels
        return found


def load_run(path: str | Path) -> Run:
    """Read a run folder, finished or not."""
    folder = RunFolder(path)
    if not folder.path.exists():
        raise InputError(f"There is no run at '{folder.path}'.")
    if not folder.exists():
        raise InputError(f"'{folder.path}' is not a run folder: it lacks {RECIPE} or {ENVIRONMENT}.")
    recipe, found = _read_recipe(folder.path / RECIPE), _read_json(folder.path / ENVIRONMENT)
    assert found is not None  # the folder would not exist as a run
    predictions, validation = _read_predictions(folder.path / PREDICTIONS)
    return Run(
        path=folder.path,
        name=folder.path.resolve().name,
        recipe=recipe,
        environment=found,
        metrics=folder.metrics(),
        results=_read_json(folder.path / RESULTS),
        model=_read_json(folder.path / MODEL),
        predictions=predictions,
        validation=validation,
    )


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())
    except ValueError as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
    if not isinstance(value, dict):
        raise InputError(f"'{path}' is damaged: it holds no JSON object.")
    return value


def _read_predictions(path: Path) -> tuple[Predictions | None, Predictions | None]:
    """Of the test images and of those for validation."""
    if not path.exists():
        return None, None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            test, validation = Predictions(arrays["logits"], arrays["labels"]), None
            if "validation_logits" in arrays:
                validation = Predictions(arrays["validation_logits"], arrays["validation_labels"])
            return test, validation
    except (ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
