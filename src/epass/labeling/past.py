"""The runs that there are on the photos of a project, wherever they were started, and what is known of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..app.request import describe_recipe
from ..data.read.given_labels import LABELS
from ..errors import InputError, unknown
from ..evaluation import bin_by_confidence, confusion, scores_for
from ..files import from_home
from ..recipe import Recipe, parse_recipe
from ..report.guarded import guard_sentences
from ..runs import KEPT_LABELS_ONLY, METRICS, RESULTS, Run, RunFolder, load_run
from ..runs.folder import ENVIRONMENT, FILES, PAGE, RECIPE, to_json
from ..runs.lock import is_held
from ..untrusted import LARGEST_JSON, LARGEST_RECIPE, parse_json, read_limited
from .pair import Tested, verdict
from .views import describe_bins

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAIL = 2**16  # bytes from the end of the metrics, in which the last row is
POINTS = 400  # of a curve: more than a page has pixels for
MISTAKES = 1000  # that are listed


class Photos(Protocol):
    """What has to be known of a project here."""

    @property
    def folder(self) -> Path: ...
    @property
    def home(self) -> Path: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def marks(self) -> NDArray[np.uint8]: ...


class Began(NamedTuple):
    """What a recipe says of a run, which does not change."""

    ours: bool  # whether it is on the photos of the project
    title: str
    method: str
    steps: int
    seed: int
    command: str
    started: str


class Past:
    """Looks into the folder of runs each time that it is asked; what has not changed is not read again."""

    def __init__(self, project: Photos, runs: Path) -> None:
        self.project, self.home = project, Path(runs)
        self._photos = project.folder.resolve()
        self._began: dict[Path, tuple[object, Began | None]] = {}
        self._far: dict[Path, tuple[object, dict[str, Any]]] = {}

    def runs(self) -> list[dict[str, Any]]:
        """All runs on these photos, finished or not, the newest first."""
        found = [self._facts(path, began) for path, began in self._ours()]
        return sorted(found, key=lambda facts: (facts["started"], facts["name"]), reverse=True)

    def find(self, name: str) -> Path:
        """The folder of a run by the name that it is listed under: no other path leads anywhere."""
        known = {self._name(path): path for path, _ in self._ours()}
        if name not in known:
            raise unknown("run", name, known)
        return known[name]

    def page(self, name: str) -> Path:
        """The report that a run wrote at its end."""
        path = self.find(name) / PAGE
        if path.is_symlink() or not path.is_file():
            raise InputError(f"'{name}' has no report yet: it is written at the end of a run, or by 'report'.")
        return path

    def run(self, name: str) -> dict[str, Any]:
        """All that is known of a run."""
        path = self.find(name)
        run, began = load_run(path), self._begin(path)
        assert began is not None
        tables = {table: value for table, value in run.recipe.items() if isinstance(value, Mapping)}
        return {
            **self._facts(path, began),
            "command": began.command,
            "device": run.environment.get("device"),
            "recipe": {
                f"{table}.{key}": to_json(value) for table, keys in tables.items() for key, value in keys.items()
            },
            "curve": curve(run.metrics),
            "scores": scores(run.results),
            "guard": " ".join(guard_sentences(run.results)) or None,
            "files": [file for file in FILES if (path / file).is_file()],
            "report": (path / PAGE).is_file(),
            **self._tested(run),
        }

    def pair(self, a: str, b: str) -> dict[str, Any]:
        """Two runs side by side, and the test images of both on which they differ."""
        sides, names = [self.run(a), self.run(b)], (a, b)
        one, other = (Tested.of(load_run(self.find(name))) for name in names)
        if a == b or one is None or other is None:
            reason = "Choose two runs." if a == b else "Only finished runs can be compared, and both need a test."
            return {"runs": sides, "verdict": reason, "images": 0, "differ": []}
        places = [(one.places[name], other.places[name]) for name in one.places if name in other.places]
        same = [(here, there) for here, there in places if one.truth(here) == other.truth(there)]
        differ = [
            {
                "id": self._ids.get(one.names[here]),
                "name": one.names[here],
                "truth": one.truth(here),
                "guesses": [one.guess(here), other.guess(there)],
                "confidences": [float(one.confidence[here]), float(other.confidence[there])],
            }
            for here, there in same
            if one.guess(here) != other.guess(there)
        ]
        titles = [facts["title"] for facts in sides]
        labels = (
            titles
            if titles[0] != titles[1]
            else [f"{title} ({name})" for title, name in zip(titles, names, strict=True)]
        )
        return {"runs": sides, "verdict": verdict(one, other, same, labels), "images": len(same), "differ": differ}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.project.names)}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.home).as_posix()

    def _ours(self) -> Iterator[tuple[Path, Began]]:
        for path in run_folders(self.home):
            began = self._begin(path)
            if began is not None and began.ours:
                yield path, began

    def _begin(self, path: Path) -> Began | None:
        """What the recipe of a run says; None if it cannot be read."""
        stamp = stamp_of(path / RECIPE), stamp_of(path / ENVIRONMENT)
        if path not in self._began or self._began[path][0] != stamp:
            self._began[path] = stamp, self._read_recipe(path)
        return self._began[path][1]

    def _read_recipe(self, path: Path) -> Began | None:
        try:
            text = read_limited(path / RECIPE, LARGEST_RECIPE).decode()
            recipe = parse_recipe(text, str(path / RECIPE))
            environment = parse_json(read_limited(path / ENVIRONMENT, LARGEST_JSON))
            data = from_home(str(recipe.data["name"]))
            told = [str(environment.get(key) or "") for key in ("command", "started")]
            return Began(
                data.is_absolute()
                and self._photos in (data.resolve(), (data.parent if data.name == LABELS else data).resolve()),
                describe_recipe(recipe),
                str(recipe.method["name"]),
                steps_of(recipe),
                recipe.seed,
                *told,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged, or being written
            return None

    def _facts(self, path: Path, began: Began) -> dict[str, Any]:
        """One line of the list."""
        stamp = stamp_of(path / METRICS), stamp_of(path / RESULTS)
        if path not in self._far or self._far[path][0] != stamp:
            self._far[path] = stamp, how_far(path)
        far, running = self._far[path][1], is_held(path)
        state = "running" if running else "finished" if far["finished"] else "stopped"
        title = "labels only" if far["kept"] == KEPT_LABELS_ONLY else began.title
        known = {"name": self._name(path), "title": title, "method": began.method, "seed": began.seed}
        return {**known, **far, "state": state, "steps": began.steps, "started": began.started}

    def _tested(self, run: Run) -> dict[str, Any]:
        """What the test images say, with those of the project that were taken for another class."""
        tested = Tested.of(run)
        if tested is None:
            return {"confusion": None, "reliability": None, "mistakes": []}
        assert run.predictions is not None
        logits, labels = run.predictions
        found = bin_by_confidence(tested.confidence, np.asarray(tested.guesses == labels))
        wrong = np.flatnonzero(tested.guesses != labels)
        mistakes = sorted(wrong.tolist(), key=lambda place: -tested.confidence[place])[:MISTAKES]
        return {
            "confusion": {"classes": list(tested.classes), "matrix": confusion(logits, labels).tolist()},
            "reliability": {"bins": describe_bins(found), "ece": found.ece, "images": len(labels)},
            "mistakes": [
                {
                    "id": self._ids.get(tested.names[place]),
                    "name": tested.names[place],
                    "truth": tested.truth(place),
                    "guess": tested.guess(place),
                    "confidence": float(tested.confidence[place]),
                }
                for place in mistakes
            ],
        }


def run_folders(home: Path) -> Iterator[Path]:
    """Runs, and those of comparisons, which lie one folder deeper; links are not followed."""
    for path in folders_in(home):
        if RunFolder(path).exists():
            yield path
        else:
            yield from (inner for inner in folders_in(path) if RunFolder(inner).exists())


def folders_in(folder: Path) -> list[Path]:
    """Its folders that are no links, in the order of their names."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def steps_of(recipe: Recipe) -> int:
    """How many steps a run has; 0 where it has none, as a baseline."""
    steps = recipe.plan.get("steps", 0)
    return steps if isinstance(steps, int) else 0


def stamp_of(path: Path) -> tuple[int, int] | None:
    """What changes with a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def how_far(path: Path) -> dict[str, Any]:
    """The last row of the metrics, and the results if there are any; nothing where they cannot be read."""
    last = last_row(path / METRICS)
    try:
        results = parse_json(read_limited(path / RESULTS, LARGEST_JSON))
    except (OSError, ValueError):
        results = None
    results = results if isinstance(results, dict) else {}
    guard = results.get("guard") if isinstance(results.get("guard"), dict) else {}
    step = results.get("steps", last.get("step", 0))
    return {
        "finished": bool(results),
        "step": step if isinstance(step, int) else 0,
        "error": number_in(results, "last", "error") if results else number_in(last, "test_error"),
        "labels_only_error": number_in(guard, "test", "labels_only", "error"),
        "labels": results.get("labels"),
        "seconds": number_in(results or last, "seconds"),
        "kept": guard.get("kept") if guard else None,
    }


def last_row(path: Path) -> dict[str, Any]:
    """The last whole line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read(TAIL).splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = parse_json(line)
        except ValueError:
            continue
        return row if isinstance(row, dict) else {}
    return {}


def number_in(values: Any, *keys: str) -> float | None:
    """A number in nested tables, if there is one."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return float(values) if isinstance(values, int | float) else None


def curve(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The numbers of the reports, by name, evenly thinned out; None where a report has not this one."""
    every = max(1, -(-len(metrics) // POINTS))
    # tests are rarer than other reports: none of them is left out
    rows = [row for place, row in enumerate(metrics) if place % every == 0 or "test_error" in row or row is metrics[-1]]
    names = {name: None for row in rows for name, value in row.items() if isinstance(value, int | float)}
    return {name: [row.get(name) for row in rows] for name in names}


def scores(results: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The scores of the last step, in words, too, and those of labels only beside them."""
    last = (results or {}).get("last", {})
    beside = ((results or {}).get("guard") or {}).get("test", {}).get("labels_only", {})
    found = []
    for one in scores_for(last):
        value, other = number_in(last, one.key), number_in(beside, one.key)
        if value is not None:
            entry = {"key": one.key, "name": one.name, "better": one.better, "value": value, "text": one.text(value)}
            told = {"labels_only": other, "labels_only_text": None if other is None else one.text(other)}
            found.append({**entry, **told, "definition": one.definition})
    return found
