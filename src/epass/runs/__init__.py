"""A run is a folder: what was asked, where it ran, what happened, and what came out."""

from .embeddings import Embeddings, load_embeddings, names_of_test_images, write_embeddings
from .environment import environment
from .folder import MODEL, PRETRAINED, WEIGHTS, RunFolder
from .load import Predictions, Run, load_run

__all__ = [
    "MODEL",
    "PRETRAINED",
    "WEIGHTS",
    "Embeddings",
    "Predictions",
    "Run",
    "RunFolder",
    "environment",
    "load_embeddings",
    "load_run",
    "names_of_test_images",
    "write_embeddings",
]
