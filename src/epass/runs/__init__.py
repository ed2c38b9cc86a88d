"""A run is a folder: what was asked, where it ran, what happened, and what came out."""

from .environment import environment
from .folder import MODEL, PRETRAINED, WEIGHTS, RunFolder
from .load import Predictions, Run, load_run

__all__ = ["MODEL", "PRETRAINED", "WEIGHTS", "Predictions", "Run", "RunFolder", "environment", "load_run"]
