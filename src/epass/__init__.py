"""Semi-supervised image classification with ensemble projectors: few labels, many images, calibrated answers."""

from .data import DATASETS, Dataset, from_arrays, open_dataset
from .errors import InputError
from .evaluate import score
from .experiment import build, load_model, run
from .method import Batch, Method, Outcome, Problem, PseudoLabels, Views
from .methods import METHODS
from .networks import NETWORKS, Classifier, make_network, predict_jointly
from .parts.projector import ProjectorEnsemble
from .recipe import Recipe, read_recipe

__version__ = "0.1.0"

__all__ = [
    "DATASETS",
    "METHODS",
    "NETWORKS",
    "Batch",
    "Classifier",
    "Dataset",
    "InputError",
    "Method",
    "Outcome",
    "Problem",
    "ProjectorEnsemble",
    "PseudoLabels",
    "Recipe",
    "Views",
    "build",
    "from_arrays",
    "load_model",
    "make_network",
    "open_dataset",
    "predict_jointly",
    "read_recipe",
    "run",
    "score",
]
