"""Reading a run back."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import MOST_COMPARED, InputError, nearest
from ..untrusted import LARGEST_JSON, LARGEST_RECIPE, check_growth, parse_json, parse_toml, read_limited
from .contents import check_environment, check_model, check_recipe, check_results
from .exported import check_format
from .folder import ENVIRONMENT, KEPT_LABELS_ONLY, MODEL, PREDICTIONS, PRETRAINED, RECIPE, RESULTS, RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What NumPy and the standard library raise on bytes that are no arrays.
_DAMAGED = (
    ValueError,
    KeyError,
    EOFError,
    AttributeError,
    MemoryError,
    OverflowError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class Predictions(NamedTuple):
    """What the trained model said about images that it was not trained on."""

    logits: NDArray[np.float32]  # (N, C)
    labels: NDArray[np.int64]  # (N,)


@dataclass(frozen=True, eq=False)
class Run:
    """A run as it lies on disk. What a run writes at its end is None while it has not got there."""

    path: Path
    name: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    results: dict[str, Any] | None
    model: dict[str, Any] | None
    predictions: Predictions | None  # of the test images
    validation: Predictions | None = None  # of the labeled images kept back, where there are some

    @property
    def pretraining(self) -> bool:
        """Whether it learned without labels, for others to start from."""
        return (self.path / PRETRAINED).exists()

    @cached_property
    def wrong(self) -> NDArray[np.bool_] | None:
        """(N,) which test images were taken for another class."""
        if self.predictions is None:
            return None
        found: NDArray[np.bool_] = self.predictions.logits.argmax(axis=1) != self.predictions.labels
        return found


def load_run(path: str | Path) -> Run:
    """Read a run folder, finished or not."""
    folder = RunFolder(path)
    if not folder.path.exists():
        raise _no_run(folder.path)
    if not folder.exists():
        raise InputError(f"'{folder.path}' is not a run folder: it lacks {RECIPE} or {ENVIRONMENT}.")
    recipe, found = _read_recipe(folder.path / RECIPE), _read_json(folder.path / ENVIRONMENT, check_environment)
    assert found is not None  # the folder would not exist as a run
    predictions, validation = _read_predictions(folder.path / PREDICTIONS)
    results, metrics = _read_json(folder.path / RESULTS, check_results), folder.metrics()
    if results is not None and results.get("guard", {}).get("kept") == KEPT_LABELS_ONLY:
        recipe, metrics = _of_labels_only(recipe, results)
    return Run(
        path=folder.path,
        name=folder.path.resolve().name,
        recipe=recipe,
        environment=found,
        metrics=metrics,
        results=results,
        model=_read_json(folder.path / MODEL, check_model),
        predictions=predictions,
        validation=validation,
    )


def _no_run(path: Path) -> InputError:
    """The error for a folder that is not there, with the run beside it that may be meant."""
    runs: list[str] = []
    with suppress(OSError):
        runs = [
            entry.name for entry in islice(path.absolute().parent.iterdir(), MOST_COMPARED) if RunFolder(entry).exists()
        ]
    near = nearest(path.name, sorted(runs))
    hint = f": did you mean '{path.with_name(near)}'?" if near else "."
    return InputError(f"There is no run at '{path}'{hint}")


def _of_labels_only(recipe: dict[str, Any], results: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the model in the folder was trained by, and the one test of it: the files tell of the model beside it."""
    kept = {name: table for name, table in recipe.items() if name not in ("projector", "wrapper")}
    scores = {f"test_{name}": value for name, value in results["last"].items()}
    row = {"step": results["steps"], "seconds": results["seconds"], **scores}
    return {**kept, "method": {"name": "supervised"}}, [row]


def _read_recipe(path: Path) -> dict[str, Any]:
    data = read_limited(path, LARGEST_RECIPE)
    try:
        value = parse_toml(data.decode())
        check_recipe(value)
    except ValueError as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
    return value


def _read_json(path: Path, check: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    data = read_limited(path, LARGEST_JSON)
    try:
        value = parse_json(data)
        if not isinstance(value, dict):
            raise ValueError("it holds no JSON object")
        if path.name == MODEL:
            check_format(value, path)
        check(value)
    except InputError:
        raise
    except ValueError as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
    return value


def _read_predictions(path: Path) -> tuple[Predictions | None, Predictions | None]:
    """Of the test images and of those for validation."""
    import numpy as np

    if not path.exists():
        return None, None
    if not path.is_file():
        raise InputError(f"'{path}' is not a plain file: put a copy of one in its place.")
    try:
        check_growth(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            test, validation = _answers(arrays["logits"], arrays["labels"]), None
            if "validation_logits" in arrays:
                validation = _answers(arrays["validation_logits"], arrays["validation_labels"])
    except InputError:
        raise
    except _DAMAGED as problem:
        if isinstance(problem, OSError) and problem.filename is not None:  # it cannot be opened
            raise
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
    return test, validation


def _answers(logits: Any, labels: Any) -> Predictions:
    """Finite numbers for every class, and one of these classes for every image: else a ValueError."""
    import numpy as np

    if not isinstance(logits, np.ndarray) or not isinstance(labels, np.ndarray):
        raise ValueError("it holds bytes that are no arrays")  # which NumPy hands out as they are
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or logits.dtype.kind != "f" or labels.dtype.kind != "i":
        raise ValueError("logits and labels do not fit together")
    if not logits.size or not (labels.min() >= 0 and labels.max() < logits.shape[1]):
        raise ValueError("logits and labels do not fit together")
    limit = np.finfo(np.float32).max
    if not (np.abs(logits) <= limit).all():  # NaN is not
        raise ValueError("some logits are not finite")
    return Predictions(logits.astype(np.float32, copy=False), labels.astype(np.int64, copy=False))


def is_finished(folder: Path) -> bool:
    """Whether it is the folder of a run that has learned classes, to go on from."""
    return folder.is_dir() and (folder / MODEL).is_file() and not (folder / PRETRAINED).exists()
