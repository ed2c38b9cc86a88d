"""How good are these logits? Pure functions of (logits, labels)."""

from .accuracy import score
from .calibration import Reliability, bin_by_confidence, reliability
from .confusion import confusion
from .open_set import open_set_accuracy

__all__ = ["Reliability", "bin_by_confidence", "confusion", "open_set_accuracy", "reliability", "score"]
