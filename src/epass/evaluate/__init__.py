"""How good are these logits? Pure functions of (logits, labels), and of what they say about two models."""

from .accuracy import score
from .bootstrap import paired_interval
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
    "paired_interval",
    "reliability",
    "score",
    "tsne_map",
]
