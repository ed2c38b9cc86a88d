"""The folder of one run: what may be created, written and thrown away in it."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import force_to_disk, naming, sealed, write_atomically
from ..untrusted import LARGEST_JSON, parse_json, read_limited
from .contents import Rows
from .lock import LOCK, locked

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECIPE = "recipe.toml"
ENVIRONMENT = "environment.json"
SPLIT = "split.json"
METRICS = "metrics.jsonl"
WEIGHTS = "model.safetensors"
PRETRAINED = "pretrained.safetensors"
MODEL = "model.json"
PREDICTIONS = "predictions.npz"
EMBEDDINGS = "embeddings.safetensors"
RESULTS = "results.json"
PAGE = "report.html"
FILES = (ENVIRONMENT, RECIPE, SPLIT, METRICS, WEIGHTS, PRETRAINED, MODEL, PREDICTIONS, EMBEDDINGS, RESULTS, PAGE)
KEPT_LABELS_ONLY = "labels only"  # in the results: a guard put this model in the place of the trained one
CHECKPOINT = "step-*.safetensors"


class RunFolder:
    """One run on disk. A folder with a recipe and an environment is a run; nothing else is ever overwritten."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def exists(self) -> bool:
        # both, because a recipe alone may be one that somebody wrote by hand
        return (self.path / RECIPE).is_file() and (self.path / ENVIRONMENT).is_file()

    def hold(self) -> AbstractContextManager[None]:
        """Keep other processes out; the folder is made if there is none."""
        self._make()
        self._refuse_odd_files()
        return locked(self.path)

    def create(self, force: bool) -> None:
        """Make the folder ready for a new run; `force` throws away the run that is in it, and nothing else."""
        self._make()
        entries = [entry.name for entry in self.path.iterdir() if entry.name != LOCK]
        if not entries:
            return
        # a split beside no environment is one that somebody put there
        first = (ENVIRONMENT, SPLIT) if (self.path / ENVIRONMENT).is_file() else (ENVIRONMENT,)
        if all(name in first or _is_torn(name) for name in entries):
            self.clear()  # all that a run killed in its first moment leaves behind
            return
        if not self.exists():
            raise InputError(f"'{self.path}' is not empty and holds no run; choose another folder for this one.")
        if not force:
            again = shlex.join(["epass", "train", "--continue", str(self.path)])
            raise InputError(
                f"'{self.path}' already holds a run; use --resume to continue it, --force to start it over, or "
                f"'{again}' to go on from it with new labels, images or steps."
            )
        self.clear()

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def write_tensors(self, name: str, tensors: Mapping[str, NDArray[Any]]) -> None:
        """A safetensors file, the same bytes for the same input."""
        import numpy as np
        from safetensors.numpy import save

        # the library reads raw memory, so a transposed view would be written in the wrong order
        arrays = {key: np.asarray(value, order="C") for key, value in tensors.items()}
        write_atomically(self.path / name, *sealed(partial(save, arrays)))

    def write_predictions(
        self,
        logits: NDArray[Any],
        labels: NDArray[Any],
        validation: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> None:
        """Logits (N, C) and labels (N,) of the test images, and of the validation images where there are some."""
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {}
        for name, part in (("", (logits, labels)), ("validation_", validation)):
            if part is not None:
                answers, truth = part
                assert answers.ndim == 2
                assert truth.shape == answers.shape[:1]
                arrays |= {f"{name}logits": answers.astype(np.float32), f"{name}labels": truth.astype(np.int64)}
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomically(self.path / PREDICTIONS, buffer.getvalue())

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one line; whoever reads the file meanwhile sees whole lines, except perhaps the last."""
        line = json.dumps(to_json(row), ensure_ascii=False, allow_nan=False)
        path = self.path / METRICS
        with naming(path), path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()

    def sync_metrics(self) -> None:
        """Force the rows to disk, before a checkpoint that counts on them: a resumed run does not write them again."""
        if (self.path / METRICS).exists():
            force_to_disk(self.path / METRICS)
            force_to_disk(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows; a last line that was torn off by a crash, or is being written just now, is ignored."""
        return [row for _, row in self._metric_lines()]

    def truncate_metrics(self, step: int) -> None:
        """Forget what happened after `step`, and a torn last line, before a resumed run writes it again."""
        if (self.path / METRICS).exists():
            kept = [line for line, row in self._metric_lines() if row["step"] <= step]
            write_atomically(self.path / METRICS, b"".join(line + b"\n" for line in kept))

    def _metric_lines(self) -> Iterable[tuple[bytes, dict[str, Any]]]:
        path = self.path / METRICS
        lines = read_limited(path, LARGEST_JSON).splitlines() if path.exists() else []
        rows = Rows()
        for number, line in enumerate(lines, start=1):
            try:
                row = parse_json(line)
            except ValueError as problem:
                if number == len(lines):
                    return
                raise InputError(f"'{path}' is damaged in line {number}: {problem}.") from problem
            try:
                rows.check(row)
            except ValueError as problem:
                raise InputError(f"'{path}' is damaged in line {number}: {problem}.") from problem
            yield line, row

    def _make(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"'{self.path}' is a file; a run needs a folder.")
        self.path.mkdir(parents=True, exist_ok=True)

    def _refuse_odd_files(self) -> None:
        """Whoever made the folder may have put a link there, through which we would write somewhere else."""
        for path in (self.checkpoints, *(self.path / name for name in (*FILES, LOCK))):
            if path.is_symlink():
                raise InputError(f"'{path}' is a link to '{path.readlink()}': put a copy of what it leads to there.")
            if path.exists() and not (path.is_dir() if path == self.checkpoints else path.is_file()):
                raise InputError(f"'{path}' is not what a run writes there: remove it.")

    def sweep(self) -> None:
        """Remove what crashes in the middle of a write left behind; the folder is ours alone."""
        _unlink_all(self.checkpoints.glob(f".{CHECKPOINT}.*.part"))
        _unlink_all(part for name in FILES for part in self.path.glob(f".{name}.*.part"))

    def clear(self) -> None:
        """Throw away the run that is in the folder; the folder is ours alone."""
        self.sweep()
        if self.checkpoints.is_dir():
            _unlink_all(self.checkpoints.glob(CHECKPOINT))
            if not any(self.checkpoints.iterdir()):
                self.checkpoints.rmdir()
        for name in reversed(FILES):  # what makes it a run goes last, so that a kill in between leaves a run
            (self.path / name).unlink(missing_ok=True)


def to_json(value: Any) -> Any:
    """The value in JSON's own types; NaN and infinity, which JSON has no word for, become null."""
    import numpy as np

    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_torn(name: str) -> bool:
    """Whether a file is what a crash in the middle of an atomic write leaves behind."""
    return re.fullmatch(rf"\.({'|'.join(map(re.escape, FILES))})\.\d+\.part", name) is not None


def _unlink_all(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)
