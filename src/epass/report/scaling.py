"""Temperature scaling of a run's test predictions, and in words where the temperature comes from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..evaluation import cross_fit_temperature, fit_temperature
from ..runs import Predictions, Run

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
    """Scale with the validation predictions where the run kept some, else by halves of the test predictions."""
    if run.predictions is None:
        raise InputError(f"'{run.path}' has no predictions yet: a run writes them when it ends.")
    logits, labels = run.predictions
    if run.validation is not None:
        temperature = fit_temperature(*run.validation)
        scaled = logits.astype(np.float64) / temperature
        how, words = ON_VALIDATION.format(images=len(run.validation.labels)), f"The temperature is {temperature:.2f}."
    else:
        fitted = cross_fit_temperature(logits, labels)
        scaled = fitted.logits
        on_first, on_second = fitted.temperatures
        how, words = CROSS_FITTED, f"The temperatures of the two fits are {on_first:.2f} and {on_second:.2f}."
    return Scaled(Predictions(scaled.astype(np.float32), labels), how, words)
