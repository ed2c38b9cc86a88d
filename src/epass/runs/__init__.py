"""A run is a folder: what was asked, where it ran, what happened, and what came out."""

from .embeddings import Embeddings, load_embeddings, names_of_test_images, write_embeddings
from .environment import environment
from .folder import KEPT_LABELS_ONLY, METRICS, MODEL, PRETRAINED, RESULTS, SPLIT, WEIGHTS, RunFolder
from .load import Predictions, Run, is_finished, load_run

__all__ = [
    "KEPT_LABELS_ONLY",
    "METRICS",
    "MODEL",
    "PRETRAINED",
    "RESULTS",
    "SPLIT",
    "WEIGHTS",
    "Embeddings",
    "Predictions",
    "Run",
    "RunFolder",
    "environment",
    "is_finished",
    "load_embeddings",
    "load_run",
    "names_of_test_images",
    "write_embeddings",
]
