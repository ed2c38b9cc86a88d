"""Runs that differ only in their seed, put together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..evaluation.baselines import BASELINES
from ..extensions import short
from ..runs import Run

LABELS_ONLY, ALL_LABELS = "supervised", "fully_supervised"
WITHOUT_UNLABELED = {LABELS_ONLY, *(name for name, found in BASELINES.items() if found.labels_only)}
# what tells the groups apart already, or changes nothing that is trained
NOT_A_SETTING = ("format", "source", "seed", "method.name", "projector.size", "wrapper.name", "plan.report_every")


class Spread(NamedTuple):
    """Mean and population standard deviation (ddof 0, as papers in this field print it)."""

    mean: float
    std: float
    num_seeds: int

    @property
    def deviation(self) -> float | None:
        """The standard deviation; one seed has none."""
        return self.std if self.num_seeds > 1 else None


@dataclass(frozen=True, eq=False)
class Group:
    """The seeds of one configuration: a row of the table, a color in the figures."""

    label: str
    method: str  # its name in the recipe
    projectors: int
    setting: Mapping[str, Any]  # everything else in the recipe, by dotted name
    runs: tuple[Run, ...]  # in the order of their seeds

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if number(run.results, "last", "error") is not None)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed_of(run) for run in self.finished)

    @property
    def errors(self) -> tuple[float, ...]:
        """Test errors at the last step, in the order of `seeds`."""
        return tuple(self.values("last", "error"))

    def values(self, *path: str) -> list[float]:
        """One number of results.json per finished run that has it."""
        found = (number(run.results, *path) for run in self.finished)
        return [value for value in found if value is not None]

    def spread(self, *path: str) -> Spread | None:
        return spread_of(self.values(*path))


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of a table: labels only first, the methods, all labels last.

    Runs that differ in more than method, projectors and seed are kept apart, and the label says in what.
    """
    names, settings = [_name(run) for run in runs], [dict(_setting(run)) for run in runs]
    # a method's own settings are compared among its runs, everything else among all runs
    of_name: dict[str, list[Mapping[str, Any]]] = {}
    for name, setting in zip(names, settings, strict=True):
        of_name.setdefault(name, []).append(setting)
    # of one method, a run that says a setting and one that leaves it out are two ways; of others that is no surprise
    own = {name: _varying(found, or_missing=True) for name, found in of_name.items()}
    everywhere = {key for key in _varying(settings) if not key.startswith(("method.", "projector."))}
    together: dict[str, list[tuple[Run, Mapping[str, Any]]]] = {}
    for run, name, setting in zip(runs, names, settings, strict=True):
        label = name
        for key, value in setting.items():
            if key in own[name] or key in everywhere:
                label += f" · {key.rpartition('.')[2]} = {value}"
        together.setdefault(label, []).append((run, setting))

    groups = [
        Group(label, _method(first), _projectors(first), setting, _by_seed([run for run, _ in members]))
        for label, members in together.items()
        for first, setting in members[:1]
    ]
    from ..methods import table_order

    return sorted(groups, key=lambda group: (table_order(group.method), group.projectors, group.label))


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of the values that are there; None if none is."""
    found = [value for value in values if value is not None]
    return Spread(float(np.mean(found)), float(np.std(found)), len(found)) if found else None


def seed_of(run: Run) -> int:
    """The seed a run was started with."""
    return int(run.environment.get("seed", run.recipe.get("seed", 0)))


def number(values: Mapping[str, Any] | None, *path: str) -> float | None:
    """A finite number at a path of nested objects, or None."""
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


def display_name(name: str, run: Run | None = None) -> str:
    """What tables call a method or wrapper of a recipe; a run says it of code that is not in the package."""
    from ..methods import known_class  # here, because it takes torch

    if (cls := known_class(name)) is not None:
        return cls.display_name
    names = (run.model or {}).get("names") if run is not None else None
    written = names.get(name) if isinstance(names, Mapping) else None
    return written if isinstance(written, str) else short(name)


def _method(run: Run) -> str:
    return str(run.recipe.get("method", {}).get("name", "unknown method"))


def _projectors(run: Run) -> int:
    return int(run.recipe.get("projector", {}).get("size", 1))


def _name(run: Run) -> str:
    name = display_name(_method(run), run)
    name += f" + EPASS ({_projectors(run)})" if _projectors(run) > 1 else ""
    wrapper = run.recipe.get("wrapper", {}).get("name")
    name += f" + {display_name(str(wrapper), run)}" if wrapper else ""
    start = run.recipe.get("start")
    if not start:
        return name
    kind = "fine-tuned" if "behind" in run.recipe.get("net", {}) else "pre-trained"
    return f"{name}, {'continued' if start.get('continued') else kind}"


def _setting(run: Run) -> Iterator[tuple[str, Any]]:
    for name, table in run.recipe.items():
        for key, value in table.items() if isinstance(table, dict) else [("", table)]:
            dotted = f"{name}.{key}" if key else name
            if dotted not in NOT_A_SETTING:
                yield dotted, value
    if _projectors(run) > 1 and "combine" not in run.recipe["projector"]:
        yield "projector.combine", "mean"  # what a recipe means that does not say it


def _varying(settings: Sequence[Mapping[str, Any]], *, or_missing: bool = False) -> set[str]:
    """The keys that do not have the same value wherever they are, or that some settings have and others do not."""
    first: dict[str, str] = {}
    pairs = [(key, repr(value)) for setting in settings for key, value in setting.items()]
    found = {key for key, text in pairs if first.setdefault(key, text) != text}
    times = Counter(key for key, _ in pairs)
    return found | {key for key in times if or_missing and times[key] < len(settings)}


def _by_seed(runs: Sequence[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: (seed_of(run), run.name)))
