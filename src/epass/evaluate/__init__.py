"""How good are these logits? Pure functions of (logits, labels)."""

from .accuracy import score
from .calibration import Reliability, bin_by_confidence, reliability
from .confusion import confusion

__all__ = ["Reliability", "bin_by_confidence", "confusion", "reliability", "score"]
