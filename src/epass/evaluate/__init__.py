"""How good are these logits? Pure functions of (logits, labels)."""

from .accuracy import score
from .calibration import Reliability, bin_by_confidence, reliability
from .confusion import confusion
from .maps import tsne_map
from .open_set import open_set_accuracy
from .temperature import CrossFit, cross_fit_temperature, fit_temperature

__all__ = [
    "CrossFit",
    "Reliability",
    "bin_by_confidence",
    "confusion",
    "cross_fit_temperature",
    "fit_temperature",
    "open_set_accuracy",
    "reliability",
    "score",
    "tsne_map",
]
