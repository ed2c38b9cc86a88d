"""The package as a scikit-learn classifier: `fit` with labels for some rows, `predict` for any."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import _safe_indexing, assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from .app.arrays import ask, fit
from .app.events import Progress, Result, Work, warn_of
from .app.flags import DEFAULT_METHOD
from .app.request import Request
from .errors import InputError
from .evaluation.calibrated import Calibration
from .extensions import check_trusted
from .files import from_home, write_atomically
from .recipe import toml_value
from .runs import RunFolder, load_run
from .runs.folder import FILES, MODEL, to_json

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
MOST_SEEDS = 2**32
OWN = "estimator"  # the key of model.json for what only this class needs


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from a few labeled rows and many unlabeled ones.

    It trains on every label that there is: hold rows back yourself, or with `cross_val_score`, to test it.

    Args:
        method: Of `epass methods`.
        projectors: How many projection heads, for methods that have some; EPASS is 3, the plain method 1.
        steps: Of the optimizer. None leaves this, as every other None here, to the recipe for this kind of data.
        net: The network to train, of `epass networks`.
        features: The frozen network whose features images are learned from, or "none".
        image_size: Scale images to squares of this side.
        settings: Any key of a recipe, such as {"method.threshold": 0.9}.
        random_state: The seed, a whole number; None draws one, and a generator of NumPy is drawn from.
        device: "auto", "cpu", "cuda" or "mps".
        out: The folder of the run, to look at later; it must be new. Without it nothing is left on disk.
        verbose: Whether a bar shows progress; None: in terminals and notebooks.

    Attributes:
        classes_: The classes, in ascending order.
        transduction_: The class of every row that was trained on: the label that it had, or else the answer.
        files_: The image files of these rows, where they were in a folder.
        n_features_in_: The width of the vectors, where it was trained on vectors.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from epass import SemiSupervisedClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> y[[row for row in range(150) if row % 50 > 4]] = -1  # five flowers of each kind keep their label
        >>> model = SemiSupervisedClassifier(steps=50).fit(X, y)
        >>> model.predict(X[[0, 50, 100]]).tolist()
        [0, 1, 2]
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        *,
        projectors: int | None = None,
        steps: int | None = None,
        net: str | None = None,
        features: str | None = None,
        image_size: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = 0,
        device: str = "auto",
        out: str | PathLike[str] | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.method, self.projectors, self.steps = method, projectors, steps
        self.net, self.features, self.image_size, self.settings = net, features, image_size, settings
        self.random_state, self.device, self.out, self.verbose = random_state, device, out, verbose

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedClassifier:
        """Learn.

        Args:
            X: Vectors (N, D); images (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats from 0 to 1; N paths of
                images, in a list or a column of a table; or a folder, archive or file of images or vectors, as
                `epass train` takes it.
            y: The class of each row, a number or a text; -1, None or NaN where nobody knows it. Nothing for a folder,
                which has its own.
        """
        stored, examples, names = _is_stored(X), None, np.empty(0)
        codes: list[int] = []
        if not stored:
            examples = self._examples(X, reset=True)
            names, codes = self._labels(y, examples)
        elif y is not None:
            raise InputError(f"'{X}' says itself what is labeled: leave out y.")
        seed = self.random_state
        if isinstance(seed, np.random.Generator):
            seed = seed.integers(MOST_SEEDS)
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(MOST_SEEDS, dtype=np.int64)
        with _folder(self.out) as home:
            asked = Request(
                X if stored else None,
                method=self.method,
                projectors=self.projectors,
                steps=self.steps,
                net=self.net,
                features=self.features,
                image_size=self.image_size,
                settings=[f"{name}={toml_value(value)}" for name, value in (self.settings or {}).items()],
                seed=int(seed),
                device=self.device,
                out=home,
            )
            result = _watch(fit(asked, examples, codes, [str(name) for name in names]), self.verbose)
            self._take(home, names, result.values["reading"])
            write_atomically(home / MODEL, self._files[MODEL])
        self.transduction_ = self.classes_[result.values["transduction"]]
        if stored:
            self.files_ = np.array(result.values["files"])
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(N, C) the probability of every class, calibrated if the model is."""
        check_is_fitted(self)
        net, model = self._network
        reading = (model.get(OWN) or {}).get("reading", {})
        logits = ask(net, model, X if _is_stored(X) else self._examples(X, reset=False), self.device, reading)
        return Calibration.from_json(model.get("calibration")).probabilities(logits)

    def predict(self, X: Any) -> Array:
        """(N,) the likeliest class of each row; those of a folder are in the order of their names."""
        answers: Array = self.predict_proba(X).argmax(axis=1)
        return self.classes_[answers]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers, among the rows whose class is known."""
        labels = column_or_1d(_as_labels(y))
        known = np.flatnonzero(~_is_missing(labels))
        if not len(known):
            raise InputError("No row of y has a label, so there is nothing to compare answers with: give some.")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        truth = np.array(labels[known].tolist())
        return float(accuracy_score(truth, self.predict(_safe_indexing(X, known)), sample_weight=weights))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as the folder of a run, which `epass predict` and `load` take.

        The weights are safetensors and all else is text, so whoever opens the folder runs no code. `transduction_` is
        about the rows that were trained on, and stays behind.
        """
        check_is_fitted(self)
        home = RunFolder(Path(path))
        home.create(force=False)
        for name, content in self._files.items():
            write_atomically(home.path / name, content)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SemiSupervisedClassifier:
        """The classifier that `save` wrote, or of any finished run; the classes of such a run are texts."""
        run = load_run(Path(path))
        of_run = {"method": run.recipe["method"]["name"], "random_state": run.recipe.get("seed", 0)}
        try:
            own = (run.model or {}).get(OWN) or {"classes": [], "parameters": of_run}
            parameters = own["parameters"]
            check_trusted([*parameters.values(), *(parameters.get("settings") or {}).values()])
            made = cls(**parameters)
            made._take(run.path, np.array(own["classes"]), dict(own.get("reading", {})))
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(f"'{run.path / MODEL}' is damaged, or of a newer version ({problem}).") from None
        return made

    def _take(self, home: Path, names: Array, reading: dict[str, Any]) -> None:
        """Keep the model of a run, whose classes are texts unless there are other `names` for them."""
        from .engine.models import load_model

        net, model = load_model(home)
        by_text = {str(name): name for name in names.tolist()} or {name: name for name in model["classes"]}
        self.classes_ = np.array([by_text[name] for name in model["classes"]])
        if "numbers" in model:
            self.n_features_in_ = model["numbers"]
        parameters = {**self.get_params(), "random_state": load_run(home).recipe.get("seed", 0)}  # which may be drawn
        parameters["device"] = str(parameters["device"])
        parameters.pop("out")  # another run has another folder
        own = {"classes": self.classes_.tolist(), "parameters": parameters, "reading": reading}
        told = to_json({**model, OWN: own})
        self._network: tuple[nn.Module, dict[str, Any]] = net, told
        self._files = {name: (home / name).read_bytes() for name in FILES if (home / name).is_file()}
        self._files[MODEL] = json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False).encode()

    def _examples(self, X: Any, *, reset: bool) -> Array:
        """What `fit` and `predict` take, as an array; vectors are checked as scikit-learn does."""
        found = np.asarray(X, dtype=object if _holds_paths(X) else None) if not hasattr(X, "tocsr") else np.empty(0)
        if found.dtype.kind in "OU" and _holds_paths(found):
            return found.reshape(len(found)).astype(object)
        if found.ndim in (3, 4):
            return found
        checked: Array = validate_data(self, X, reset=reset, dtype="numeric")
        return checked

    def _labels(self, y: Any, examples: Array) -> tuple[Array, list[int]]:
        """The classes in ascending order, and the number of each row's, -1 where it is not known."""
        if y is None:
            raise InputError(
                f"This {type(self).__name__} requires y to be passed, but the target y is None: give the class of some "
                "rows, and -1 for all others."
            )
        labels = column_or_1d(_as_labels(y), warn=True)
        check_consistent_length(examples, labels)
        known = ~_is_missing(labels)
        if not known.any():
            raise InputError("No row of y has a label: give at least one row of each class its label.")
        given = np.array(labels[known].tolist())
        if given.dtype.kind == "U" and not all(isinstance(label, str) for label in labels[known].tolist()):
            raise InputError("y holds numbers among texts: use one kind for all classes.")
        assert_all_finite(given, input_name="y")
        check_classification_targets(given)
        names, numbers = np.unique(given, return_inverse=True)
        if len(names) < 2:
            raise InputError(f"The labels in y are all of one class, '{names[0]}': a classifier needs at least two.")
        codes = np.full(len(labels), -1)
        codes[known] = numbers
        return names, codes.tolist()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_network"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .engine.models import load_model

        super().__setstate__(state)
        if "_files" in state:
            with TemporaryDirectory() as folder:
                self.save(folder)
                self._network = load_model(folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_stored(examples: Any) -> bool:
    """Whether these are the name of a folder or file, which holds them."""
    return isinstance(examples, str | PathLike)


def _holds_paths(examples: Any) -> bool:
    """Whether each row is the path of a file."""
    first = examples[0] if isinstance(examples, list | tuple) and len(examples) else None
    if isinstance(examples, np.ndarray) and examples.size and examples.size == len(examples):
        first = examples.flat[0]
    return isinstance(first, str | PathLike)


def _as_labels(y: Any) -> Array:
    """An array, in which NumPy has not made texts of what is none."""
    return np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)


def _is_missing(labels: Array) -> NDArray[np.bool_]:
    """(N,) whose label is not known."""
    unknown = (None, -1, "", "-1")  # an array of texts has the last one
    found = (type(label).__name__ == "NAType" or label != label or label in unknown for label in labels.tolist())
    return np.fromiter(found, dtype=bool, count=len(labels))


@contextmanager
def _folder(out: str | PathLike[str] | None) -> Iterator[Path]:
    """Where a run goes: a folder to keep, or one that vanishes."""
    if out is not None:
        yield from_home(out)
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _watch(events: Work, verbose: bool | None) -> Result:
    """Do the work, and return its result; a caution becomes a warning of Python, and progress a bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr)
    shown = console.is_terminal or console.is_jupyter if verbose is None else verbose
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn()
    result = Result()
    with Bar(*columns, console=console, disable=not shown) as bar:
        task = bar.add_task("", total=None)
        for event in events:
            warn_of(event, stacklevel=3)
            if isinstance(event, Progress):
                bar.update(task, description=event.what, completed=event.step, total=event.steps)
            elif isinstance(event, Result):
                result = event
    return result
