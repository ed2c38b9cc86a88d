"""Runs as a table: one line per run for programs, one row per group for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from ..evaluation import SCORES, Score, scores_for
from ..evaluation.scores import Place
from ..files import write_atomically
from ..runs import Run
from ..untrusted import spreadsheet_text
from .summary import WITHOUT_UNLABELED, Group, Spread, group_runs, number, seed_of, spread_of
from .verdict import Difference, differences, sentences

PLACES = get_args(Place)  # from the smallest
NOTE = "Mean ± standard deviation over seeds (population, ddof 0)"
DIFFERENCE_HEADS = (
    "method",
    "against",
    "difference, points",
    "95 % interval",
    "more than noise?",
    "seeds",
    "test images",
)
DIFFERENCE_NOTE = """Differences in the test error of the last step, negative where it is lower, seed by seed and on the
same test images. The interval is a bootstrap that resamples both; more than noise: it leaves out 0. With one seed it
covers other test images only."""


class Column(NamedTuple):
    """A number that runs have: how it is called and written, and where it is."""

    score: Score
    read: Callable[[Run], float | None]

    def spread(self, group: Group) -> Spread | None:
        """Over the seeds that got to their end."""
        return spread_of(map(self.read, group.finished))

    def cell(self, group: Group) -> str:
        return cell(self.score, self.spread(group))


def stored(score: Score, results: Mapping[str, Any] | None, moment: str = "last") -> float | None:
    """What results.json says about a score at a moment of the run, or None."""
    found = number(results, moment, score.key)
    if found is None and score.opposite:
        other = number(results, moment, score.opposite)
        return None if other is None else 1 - other
    return found


def scores_of(runs: Iterable[Run]) -> list[Score]:
    """The table of scores, and below it those that only the runs know."""
    last = [(run.results or {}).get("last") for run in runs]
    found = [values for values in last if isinstance(values, Mapping)]
    return scores_for(key for values in found for key in values if number(values, key) is not None)


def columns_of(runs: Sequence[Run], place: Place = "file") -> list[Column]:
    """The numbers that a table of these runs has room for in this place."""
    columns = (*RESULTS, *map(_at_last_step, scores_of(runs)), *TRAINING)
    return [column for column in columns if PLACES.index(column.score.place) <= PLACES.index(place)]


def run_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Runs by column; scores are fractions, and what a run did not get to or does not have is None."""
    columns = columns_of(runs)
    return [_run_row(run, columns) for run in runs]


def _run_row(run: Run, columns: Sequence[Column]) -> dict[str, Any]:
    results = run.results or {}
    trained = {
        "method": run.recipe.get("method", {}).get("name"),
        "projectors": run.recipe.get("projector", {}).get("size"),
        "strategy": strategy(run),
        "labels": results.get("labels"),
        "seed": seed_of(run),
        "steps": results.get("steps"),
    }
    numbers = {column.score.key: column.read(run) for column in columns}
    where = {key: run.environment.get(key) for key in ("device", "torch", "commit", "command")}
    return trained | numbers | where | trained  # no score takes the place of what a run is


def write_rows(path: str | Path, runs: Sequence[Run]) -> Path:
    """Write a CSV file with one line per run, and return where it is."""
    rows = run_rows(runs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in ([*rows[0]], *([*row.values()] for row in rows)):
        writer.writerow([spreadsheet_text(entry) if isinstance(entry, str) else entry for entry in line])
    return _write(path, text.getvalue())


def write_table(path: str | Path, groups: Sequence[Group], *, title: str, missing: Mapping[str, str]) -> Path:
    """Write a Markdown file with a row for each group, and why runs are missing; returns where it is."""
    lines = [f"# {title}", "", *sentences(groups), "", *markdown_table(table_heads(groups), table_rows(groups)), ""]
    lines += [f"{NOTE}, lowest error first; labels only in bold.", *explanations(groups)]
    compared = difference_rows(groups)
    if compared:
        lines += ["", *markdown_table(DIFFERENCE_HEADS, [(False, row) for row in compared]), "", DIFFERENCE_NOTE]
    asked = sum(answer in ("yes", "no") for _, _, _, _, answer, *_ in compared)
    if asked > 1:
        lines += [f"Of these {asked} answers about noise, luck alone makes up to one in 20 a yes."]
    lines += [f"\n{name} is missing: {reason}" for name, reason in missing.items()]
    return _write(path, "\n".join(lines) + "\n")


def write_record(path: str | Path, record: Mapping[str, Any]) -> Path:
    """Write a JSON file, and return where it is."""
    return _write(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def comparison_record(runs: Sequence[Run], *, title: str, missing: Mapping[str, str]) -> dict[str, Any]:
    """The whole comparison in JSON's own types; errors and differences are fractions."""
    groups, columns = group_runs(runs), columns_of(runs)
    return {
        "title": title,
        "verdict": sentences(groups) if runs else [],
        "methods": [_group_record(group, columns) for group in groups],
        "differences": [_difference_record(difference) for difference in differences(groups)],
        "runs": run_rows(runs),
        "missing": dict(missing),
    }


def table_heads(groups: Sequence[Group], place: Place = "file") -> list[str]:
    """What stands over the cells of `table_rows`."""
    return ["method", "seeds", *(column.score.head for column in _told(groups, place))]


def table_rows(groups: Sequence[Group], place: Place = "file") -> list[tuple[bool, list[str]]]:
    """(whether it is labels only, cells) of every group, lowest error first, those without a finished run last."""
    finished = sorted((group for group in groups if group.errors), key=lambda group: np.mean(group.errors))
    columns = _told(groups, place)
    return [
        (group.method in WITHOUT_UNLABELED, [group.label, seeds(group), *(column.cell(group) for column in columns)])
        for group in [*finished, *(group for group in groups if not group.errors)]
    ]


def explanations(groups: Sequence[Group], place: Place = "file") -> list[str]:
    """A sentence about each column of `table_rows`."""
    return [column.score.explanation() for column in _told(groups, place) if column.score.definition]


def _told(groups: Sequence[Group], place: Place) -> list[Column]:
    """The columns of a table for people; the step that validation selects is not in it where no run has one."""
    columns = columns_of([run for group in groups for run in group.runs], place)
    return [column for column in columns if column is not VALIDATED or any(map(column.spread, groups))]


def difference_rows(groups: Sequence[Group]) -> list[list[str]]:
    """The cells of every difference, those to labels only first; in each kind the lowest first."""
    found = differences(groups)
    found.sort(key=lambda difference: (difference.theirs.method not in WITHOUT_UNLABELED, difference.found.points))
    rows = []
    for ours, theirs, told in found:
        interval = "–" if told.interval is None else f"{told.interval[0]:+.2f} to {told.interval[1]:+.2f}"
        answer = "one seed cannot tell" if told.num_seeds == 1 else "yes" if told.sure else "no"
        images = f"{told.num_images:,}" if told.num_images else "–"
        rows.append([ours.label, theirs.label, f"{told.points:+.2f}", interval, answer, str(told.num_seeds), images])
    return rows


def _at_end(run: Run, key: str) -> float | None:
    return number(run.metrics[-1], key) if run.metrics else None


def strategy(run: Run) -> str | None:
    """How several projectors are combined; None with one or none."""
    projector = run.recipe.get("projector", {})
    return str(projector.get("combine", "mean")) if projector.get("size", 1) > 1 else None


def ms_per_step(run: Run) -> float | None:
    """The median over the reports, which neither the first steps nor rare tests and checkpoints change."""
    times = [(0, 0.0), *((row["step"], row["seconds"]) for row in run.metrics)]
    paces = [1000 * (t - before) / (step - last) for (last, before), (step, t) in pairwise(times)]
    return round(float(np.median(paces)), 3) if paces else None


def seeds(group: Group) -> str:
    """How many seeds got to their end, and how many did not."""
    waiting = len(group.runs) - len(group.finished)
    return f"{len(group.finished)} ({waiting} unfinished)" if waiting else str(len(group.finished))


def cell(score: Score, spread: Spread | None) -> str:
    """Mean ± standard deviation over the seeds."""
    return "–" if spread is None else score.cell(spread.mean, spread.deviation)


def markdown_table(heads: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]) -> list[str]:
    """The lines of a Markdown table; a row that is marked is bold."""
    lines = [markdown_row([f"**{cell}**" for cell in row] if bold else row) for bold, row in rows]
    return [markdown_row(heads), markdown_row(["---"] * len(heads)), *lines]


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def _group_record(group: Group, columns: Sequence[Column]) -> dict[str, Any]:
    first = _run_row(group.runs[0], columns)
    spreads = {column.score.key: column.spread(group) for column in columns}
    facts = {
        "label": group.label,
        **{key: first[key] for key in ("method", "projectors", "strategy")},
        "seeds": list(group.seeds),
        "unfinished": len(group.runs) - len(group.finished),
    }
    numbers = {key: spread and {"mean": spread.mean, "std": spread.std} for key, spread in spreads.items()}
    return facts | numbers | facts


def _difference_record(difference: Difference) -> dict[str, Any]:
    ours, theirs, found = difference
    return {
        "method": ours.label,
        "against": theirs.label,
        "difference": found.points / 100,
        "interval": found.interval and [end / 100 for end in found.interval],
        "more_than_noise": found.sure if found.num_seeds > 1 else None,  # one seed cannot tell
        "seeds": found.num_seeds,
        "test_images": found.num_images,
    }


def _write(path: str | Path, text: str) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return target


def _at_last_step(score: Score) -> Column:
    return Column(score, lambda run: stored(score, run.results))


def _error_at(moment: str, name: str, definition: str) -> Column:
    score = replace(SCORES["error"], key=f"error_{moment}", name=name, definition=definition, place="screen")
    return Column(score, lambda run: number(run.results, moment, "error"))


VALIDATED = _error_at(
    "validation_selected", "validation selected", "test error of the step that labeled images kept back choose"
)
RESULTS = (
    _error_at("last", "test error, last step", "what you get when you train once and use the model"),
    _at_last_step(replace(SCORES["accuracy"], definition="100 % less the test error of the last step", place="screen")),
    VALIDATED,
    _error_at(
        "best_on_test",
        "best on test, as papers report",
        "the lowest test error, of a step picked by looking at the test images, to compare with papers",
    ),
)
TRAINING = (
    Column(
        Score(
            "coverage_end", "coverage", "share of unlabeled images trained on at the end", None, digits=0, place="file"
        ),
        lambda run: _at_end(run, "coverage"),
    ),
    Column(
        Score("quality_end", "quality", "share of those with the right class", "higher", digits=0, place="file"),
        lambda run: _at_end(run, "quality"),
    ),
    Column(
        Score("seconds", "time per run", "of the whole run with its tests", "lower", unit="s", place="page"),
        lambda run: number(run.results, "seconds"),
    ),
    Column(
        Score("ms_per_step", "ms per step", "median over the reports", "lower", unit="", digits=1, place="file"),
        ms_per_step,
    ),
)
