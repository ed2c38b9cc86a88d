"""The paper's tables of methods by data sets: what each cell trains, and ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import unknown
from ..recipe import Recipe
from ..recipes import builtin_recipes
from ..report.card import data_name
from ..report.summary import Spread, display_name
from ..report.table import cell
from .scores import METRICS, Results, counted_before, measured, numbers
from .sheet import Cell, Sheet, paper_table


@dataclass(frozen=True)
class Column:
    """A data set and what is known about it."""

    name: str
    title: str
    data: str  # as `epass download` calls it
    recipes: Sequence[str]  # families; the first one that has the method
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: str = "{column}-{row}"  # of a run, before the seed; `epass compare` calls those of the ablations alike


@dataclass(frozen=True, eq=False)
class Trial:
    """A method on a data set: what is trained once for each seed."""

    row: str  # simmatch+3+abc: the method, its projectors, its wrapper
    title: str  # of the row
    column: Column
    paper: Sequence[str]  # a value for each metric of the table, "" where the paper prints none
    recipe: str | None  # built in
    lacking: str = ""  # why there is no recipe
    anywhere: bool = True  # other data will do: a recipe is all it takes

    @property
    def name(self) -> str:
        return self.column.folder.format(column=self.column.name, row=self.row)

    @property
    def method(self) -> str:
        return self.row.partition("+")[0]

    @property
    def projectors(self) -> int | None:
        """None leaves them to the recipe: one, where the method has an embedding."""
        return next((int(word) for word in self.row.split("+") if word.isdigit()), None)

    @property
    def wrapper(self) -> str | None:
        return next((word for word in self.row.split("+")[1:] if not word.isdigit()), None)


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A table of the paper."""

    name: str
    title: str
    setup: str
    note: str
    metrics: Sequence[str]
    moment: str  # of a run: `last`, or `best_on_test` where the paper chooses so
    trials: Sequence[Trial]
    runs: str  # the table that trains the same
    needs: Sequence[str]  # settings without which a run is not the paper's
    images: int  # in an epoch, where epochs are counted
    classes: int
    varied: str  # what an ablation varies; "" in a table of methods by data sets
    conditions: Mapping[str, Any]  # the settings of the paper's runs, where they are not those of the recipes
    stand_in: str | None  # the data set that an ablation is trained on, unless another one is asked for

    @property
    def file(self) -> str:
        """Its name, without ending, in the folder of the runs."""
        return "table" if self.varied else self.name


@dataclass(frozen=True)
class Gap:
    """Why there is no number."""

    kind: str  # a word or two, for the table
    reason: str  # a sentence


@dataclass(frozen=True)
class Outcome:
    """What became of a trial."""

    recipe: Recipe | None
    runs: Sequence[Results]  # of the seeds that got to their end
    gap: Gap | None = None
    odd: str = ""  # why they cannot be held against the paper's


def read_benchmark(name: str) -> Benchmark:
    """A table by its name, with its cells in the order of the paper."""
    table = paper_table(name)
    columns = [Column(key, **entry) for key, entry in table["columns"].items()]
    return Benchmark(
        name,
        **{key: table[key] for key in ("title", "setup", "metrics", "moment")},
        note=table["note"].strip(),
        trials=list(_trials(table, columns)),
        runs=table.get("runs", name),
        needs=table.get("needs", ()),
        images=table.get("images", 0),
        classes=table.get("classes", 0),
        varied=table.get("varied", ""),
        conditions=table.get("conditions", {}),
        stand_in=table.get("stand_in"),
    )


def _trials(table: Mapping[str, Any], columns: Sequence[Column]) -> Iterable[Trial]:
    """Those of which the paper prints something."""
    known = builtin_recipes()
    for row, values in table["paper"].items():
        for column, value in zip(columns, values, strict=False):  # a row may end early
            texts = [value] if isinstance(value, str) else value
            if any(texts):
                texts = [*texts, *[""] * (len(table["metrics"]) - len(texts))]
                yield _trial(table, row, column, texts, known)


def _trial(table: Mapping[str, Any], row: str, column: Column, paper: Sequence[str], known: Collection[str]) -> Trial:
    title = table.get("names", {}).get(row) or row_title(row)
    if lacking := table.get("without_recipe", {}).get(row, ""):
        return Trial(row, title, column, paper, None, lacking, anywhere=False)
    trial = Trial(row, title, column, paper, None)
    wrapped = f"_{trial.wrapper}" if trial.wrapper else ""
    names = [f"{family}{wrapped}-{trial.method}" for family in column.recipes]
    found = next((name for name in names if name in known), None)
    return replace(trial, recipe=found, lacking="" if found else "there is no recipe for it in this protocol")


def on_other_data(trial: Trial, data: str) -> Trial:
    """The trial with the recipe of another data set, or that for anybody's images."""
    own = f"{data}-{trial.method}"
    name = own if own in builtin_recipes() else f"folder-{trial.method}"
    return replace(trial, recipe=name, lacking="") if trial.anywhere else trial


def row_title(row: str) -> str:
    """`simmatch+3+abc` for people."""
    method, *others = row.split("+")
    return " + ".join([display_name(method), *("EPASS" if word.isdigit() else display_name(word) for word in others)])


def choose(trials: Sequence[Trial], rows: Sequence[str], columns: Sequence[str]) -> list[Trial]:
    """The trials of these rows and columns, or of all where none is named; a data set names all of its columns."""
    for row in rows:
        if row not in (known := {trial.row for trial in trials}):
            raise unknown("method of this table", row, known)
    for column in columns:
        known = {name for trial in trials for name in (trial.column.name, trial.column.data)}
        if column not in known:
            raise unknown("column of this table", column, known)
    return [
        trial
        for trial in trials
        if (not rows or trial.row in rows)
        and (not columns or trial.column.name in columns or trial.column.data in columns)
    ]


def obstacles(
    table: Benchmark,
    recipes: Sequence[Recipe],
    *,
    instead: str | None = None,
    settings: Mapping[str, Any] | None = None,
    scale: float = 1.0,
) -> list[str]:
    """Why runs of these recipes, on other data or with other settings, are not the paper's: `what: paper's -> ours`."""
    found = []
    if table.conditions and recipes:
        ours = recipes[0].flat() | {"data.name": data_name({"data": recipes[0].data})}
        found += [f"{k}: {v} -> {ours.get(k, 'not set')}" for k, v in table.conditions.items() if ours.get(k) != v]
    elif instead:
        found.append(f"data: the table's -> {instead}")
    decided = {*table.needs, *table.conditions}
    found += [f"{k}: that of the recipe -> {v}" for k, v in (settings or {}).items() if k not in decided]
    lacking = [key for key in table.needs if any(recipe.flat().get(key) is None for recipe in recipes)]
    found += [f"{key}: set -> not set" for key in lacking]
    return found + ([f"scale: 1 -> {scale:g}"] if table.conditions and scale != 1 else [])


def value_of(text: str) -> Spread | None:
    """`10.20±5.05` or `~400` as numbers; None where the paper prints nothing."""
    if not text:
        return None
    mean, sign, std = text.removeprefix("~").partition("±")
    return Spread(float(mean), float(std or 0.0), 3 if sign else 1)


def benchmark_sheet(
    table: Benchmark,
    outcomes: Mapping[Trial, Outcome],
    *,
    odd: Sequence[str],
    instead: str | None,
    scale: float,
) -> Sheet:
    """The cells of a benchmark.

    Args:
        table: The paper's.
        outcomes: Ours, in the order of the table.
        odd: Why ours cannot be held against the paper's; then there are no differences.
        instead: The data set that takes the place of all of the paper's, or None.
        scale: Share of the recipes' steps.
    """
    cells: list[Cell] = []
    rows = []
    chosen_on_test = table.moment == "best_on_test"
    for trial, outcome in outcomes.items():
        for metric, text in zip(table.metrics, trial.paper, strict=True):
            entry, row = _cell(table, trial, outcome, metric, text, bool(odd), instead, scale)
            cells.append(entry)
            rows.append(row)
    heads = ["method", "data", *(["number"] if len(table.metrics) > 1 else []), "paper"]
    heads += ["ours, best on test", "ours, last step"] if chosen_on_test else ["ours"]
    heads += [*([] if odd else ["difference"]), "scale"]
    notes = [
        f"Paper: {table.setup}. Ours: {f'{instead} in place of every data set' if instead else 'the same data'}, "
        f"{'all' if scale == 1 else f'{scale:g}'} of the recipe's steps."
    ]
    if odd:
        notes.append(f"Not comparable, so without differences (paper -> ours): {'; '.join(odd)}.")
    elif scale != 1:
        notes.append(f"Differences are those of runs of {scale:g} of the length to runs of full length.")
    alone = Counter(outcome.odd for outcome in outcomes.values() if outcome.odd and not odd)
    notes += [f"Without a difference, {count} cell{'s' * (count != 1)}: {reason}." for reason, count in alone.items()]
    gaps = Counter(outcome.gap.reason for outcome in outcomes.values() if outcome.gap)
    notes += [f"Not trained, {count} cell{'s' * (count != 1)}: {reason}." for reason, count in gaps.items()]
    return Sheet(table.title, [*notes, table.note], heads, rows, cells)


def _cell(
    table: Benchmark,
    trial: Trial,
    outcome: Outcome,
    name: str,
    text: str,
    odd: bool,
    instead: str | None,
    scale: float,
) -> tuple[Cell, list[str]]:
    """One metric of one trial, as numbers and as a row for people."""
    metric, paper, gap = METRICS[name], value_of(text), outcome.gap
    ours, last = _ours(table, outcome, name, instead)
    mean, deviation = numbers(metric, ours)
    difference = None if odd or outcome.odd or mean is None or paper is None else round(mean - paper.mean, 4)
    entry: Cell = {
        "method": trial.row,
        "column": trial.column.name,
        "metric": name,
        "paper": paper and paper.mean,
        "paper_std": paper.std if paper and paper.num_seeds > 1 else None,
        "ours": mean,
        "std": deviation,
        "ours_last": numbers(metric, last)[0],
        "seeds": len(outcome.runs),
        "difference": difference,
        "scale": scale,
        "recipe": trial.recipe,
        "data": instead or trial.column.data,
        "missing": gap.reason if gap else None,
    }
    shown = [gap.kind if gap and metric.compute and ours is None else cell(metric, ours)]
    if table.moment == "best_on_test":
        shown.append(cell(metric, last))
    if not odd:
        shown.append("–" if difference is None else f"{round(difference, metric.digits) + 0.0:+.{metric.digits}f}")
    row = [trial.title, trial.column.title, *([metric.head] if len(table.metrics) > 1 else [])]
    return entry, [*row, text.replace("±", " ± ") or "–", *shown, f"{scale:g}"]


def _ours(table: Benchmark, outcome: Outcome, name: str, instead: str | None) -> tuple[Spread | None, Spread | None]:
    """A metric where the paper takes it, and after the last step."""
    metric = METRICS[name]
    if metric.compute:
        return measured(metric, outcome.runs, table.moment), measured(metric, outcome.runs, "last")
    if instead or outcome.recipe is None:  # other images, other networks: these counts are about the paper's
        return None, None
    found = counted_before(name, outcome.recipe, images=table.images, classes=table.classes)
    return found, found
