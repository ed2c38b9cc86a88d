"""How good are these logits? Pure functions of (logits, labels), and of what they say about two models."""

from .alarms import find_alarms, find_doubts, find_swallowing, find_untested
from .bootstrap import paired_interval
from .calibration import Reliability, bin_by_confidence, reliability
from .confusion import confusion
from .maps import tsne_map
from .open_set import open_set_accuracy
from .outputs import Outputs
from .scores import SCORES, Score, add_score, score, scores_for
from .temperature import CrossFit, cross_fit_temperature, fit_temperature

__all__ = [
    "SCORES",
    "CrossFit",
    "Outputs",
    "Reliability",
    "Score",
    "add_score",
    "bin_by_confidence",
    "confusion",
    "cross_fit_temperature",
    "find_alarms",
    "find_doubts",
    "find_swallowing",
    "find_untested",
    "fit_temperature",
    "open_set_accuracy",
    "paired_interval",
    "reliability",
    "score",
    "scores_for",
    "tsne_map",
]
