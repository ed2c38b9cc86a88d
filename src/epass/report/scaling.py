"""Temperature scaling of a run's test predictions, and in words where the temperature comes from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..evaluation import cross_fit_temperature, fit_temperature
from ..evaluation.calibrated import Calibration
from ..runs import MODEL, Predictions, Run

STORED = "Temperature scaling as the model has it from 'epass calibrate', by {labels:,} labels ({source})."
ON_VALIDATION = (
    "Temperature scaling: the logits are divided by the temperature with the lowest negative log-likelihood on the "
    "{images:,} validation images of the run, which were neither trained on nor tested."
)
CROSS_FITTED = (
    "Temperature scaling by two-fold cross-fitting on the test images: each half of them (every second image of each "
    "class) is scaled by the temperature with the lowest negative log-likelihood on the other half, so that no image "
    "is scored with a number that was fitted on it."
)


class Scaled(NamedTuple):
    """Test predictions after scaling, how the temperature was found, and what it is."""

    predictions: Predictions
    how: str
    temperature: str


def scale(run: Run) -> Scaled:
    """Scale as the model does if it is calibrated, else with validation predictions, or by halves of the test's."""
    if run.predictions is None:
        raise InputError(f"'{run.path}' has no predictions yet: a run writes them when it ends.")
    logits, labels = run.predictions
    calibration = _stored(run)
    if calibration.labels:
        temperature = calibration.temperature
        scaled = logits.astype(np.float64) / temperature
        how = STORED.format(labels=calibration.labels, source=calibration.source)
        words = f"The temperature is {temperature:.2f}."
    elif run.validation is not None:
        temperature = fit_temperature(*run.validation)
        scaled = logits.astype(np.float64) / temperature
        how, words = ON_VALIDATION.format(images=len(run.validation.labels)), f"The temperature is {temperature:.2f}."
    else:
        fitted = cross_fit_temperature(logits, labels)
        scaled = fitted.logits
        on_first, on_second = fitted.temperatures
        how, words = CROSS_FITTED, f"The temperatures of the two fits are {on_first:.2f} and {on_second:.2f}."
    return Scaled(Predictions(scaled.astype(np.float32), labels), how, words)


def _stored(run: Run) -> Calibration:
    try:
        return Calibration.from_json((run.model or {}).get("calibration"))
    except ValueError as problem:
        raise InputError(f"'{run.path / MODEL}' is damaged: {problem}.") from problem
