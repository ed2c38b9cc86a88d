"""Semi-supervised image classification with ensemble projectors: few labels, many images, calibrated answers.

The public names are imported when they are first used, so that `epass --help` and readers of run folders need not wait
for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.calibrate import calibrate
    from .app.check import check
    from .app.compare import compare
    from .app.embed import embed
    from .app.evaluate import evaluate
    from .app.export import export
    from .app.label import label
    from .app.predict import predict
    from .app.serve import serve
    from .app.suggest import suggest
    from .app.train import pretrain, train
    from .data import DATASETS, Dataset, from_arrays, from_huggingface, from_vectors, open_dataset
    from .engine.build import build
    from .engine.models import load_model
    from .engine.run import run
    from .errors import InputError
    from .estimator import SemiSupervisedClassifier
    from .evaluation import score
    from .extensions import trust
    from .method import Batch, Method, Outcome, Problem, PseudoLabels, Views
    from .methods import METHODS
    from .networks import NETWORKS, Classifier, make_network, predict_jointly
    from .parts.projector import ProjectorEnsemble
    from .recipe import Recipe, read_recipe
    from .runs import load_run
    from .testing import check_method

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
    "SemiSupervisedClassifier",
    "Views",
    "build",
    "calibrate",
    "check",
    "check_method",
    "compare",
    "embed",
    "evaluate",
    "export",
    "from_arrays",
    "from_huggingface",
    "from_vectors",
    "label",
    "load_model",
    "load_run",
    "make_network",
    "open_dataset",
    "predict",
    "predict_jointly",
    "pretrain",
    "read_recipe",
    "run",
    "score",
    "serve",
    "suggest",
    "train",
    "trust",
]

_ROOMS = {
    "app.calibrate": ("calibrate",),
    "app.check": ("check",),
    "app.compare": ("compare",),
    "app.embed": ("embed",),
    "app.evaluate": ("evaluate",),
    "app.export": ("export",),
    "app.label": ("label",),
    "app.predict": ("predict",),
    "app.serve": ("serve",),
    "app.suggest": ("suggest",),
    "app.train": ("pretrain", "train"),
    "data": ("DATASETS", "Dataset", "from_arrays", "from_huggingface", "from_vectors", "open_dataset"),
    "errors": ("InputError",),
    "estimator": ("SemiSupervisedClassifier",),
    "evaluation": ("score",),
    "extensions": ("trust",),
    "engine.build": ("build",),
    "engine.models": ("load_model",),
    "engine.run": ("run",),
    "method": ("Batch", "Method", "Outcome", "Problem", "PseudoLabels", "Views"),
    "methods": ("METHODS",),
    "networks": ("NETWORKS", "Classifier", "make_network", "predict_jointly"),
    "parts.projector": ("ProjectorEnsemble",),
    "recipe": ("Recipe", "read_recipe"),
    "runs": ("load_run",),
    "testing": ("check_method",),
}


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
