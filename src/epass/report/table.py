"""Runs as a table: one line per run for programs, one row per group for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_atomically
from ..runs import Run
from ..untrusted import spreadsheet_text
from .summary import LABELS_ONLY, Group, Spread, group_runs, number, seed_of, spread_of
from .verdict import Difference, differences, sentences

HEADS = (
    "method",
    "seeds",
    "test error, last step, %",
    "validation selected, %",
    "best on test, as papers report, %",
    "ECE, %",
    "NLL",
    "coverage, %",
    "quality, %",
    "time per run",
    "ms per step",
)
NOTE = """Mean ± standard deviation over seeds (population, ddof 0), lowest error first; labels only in bold. The last
step is what you get when you train once and use the model. Validation selected: the step that labeled images kept back
choose. Best on test picks the step by looking at the test images: it is there to compare with papers. Coverage: share
of unlabeled images trained on at the end; quality: share of those with the right class. Ms per step: median over the
reports of a run."""
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


def run_row(run: Run) -> dict[str, Any]:
    """One run by column; scores are fractions, and what a run did not get to or does not have is None."""
    end = run.metrics[-1] if run.metrics else {}
    results = run.results or {}
    return {
        "method": run.recipe.get("method", {}).get("name"),
        "projectors": run.recipe.get("projector", {}).get("size"),
        "strategy": strategy(run),
        "labels": results.get("labels"),
        "seed": seed_of(run),
        "steps": results.get("steps"),
        "error_last": number(results, "last", "error"),
        "error_validation_selected": number(results, "validation_selected", "error"),
        "error_best_on_test": number(results, "best_on_test", "error"),
        "ece": number(results, "last", "ece"),
        "nll": number(results, "last", "nll"),
        "coverage_end": number(end, "coverage"),
        "quality_end": number(end, "quality"),
        "seconds": number(results, "seconds"),
        "ms_per_step": ms_per_step(run),
        "device": run.environment.get("device"),
        "torch": run.environment.get("torch"),
        "commit": run.environment.get("commit"),
        "command": run.environment.get("command"),
    }


def write_rows(path: str | Path, runs: Sequence[Run]) -> Path:
    """Write a CSV file with one line per run, and return where it is."""
    rows = [run_row(run) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: spreadsheet_text(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in rows
    )
    return _write(path, text.getvalue())


def write_table(path: str | Path, groups: Sequence[Group], *, title: str, missing: Mapping[str, str]) -> Path:
    """Write a Markdown file with a row for each group, and why runs are missing; returns where it is."""
    lines = [f"# {title}", "", *sentences(groups), "", *markdown_table(HEADS, table_rows(groups)), "", NOTE]
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
    groups = group_runs(runs)
    return {
        "title": title,
        "verdict": sentences(groups) if runs else [],
        "methods": [_group_record(group) for group in groups],
        "differences": [_difference_record(difference) for difference in differences(groups)],
        "runs": [run_row(run) for run in runs],
        "missing": dict(missing),
    }


def table_rows(groups: Sequence[Group]) -> list[tuple[bool, list[str]]]:
    """(whether it is labels only, cells) of every group, lowest error first, those without a finished run last."""
    errors = {group.label: group.spread("last", "error") for group in groups}
    finished = sorted((group for group in groups if errors[group.label]), key=lambda group: np.mean(group.errors))
    rows = []
    for group in [*finished, *(group for group in groups if not errors[group.label])]:
        ends = [run_row(run) for run in group.finished]
        cells = [
            group.label,
            seeds(group),
            percent(errors[group.label]),
            percent(group.spread("validation_selected", "error")),
            percent(group.spread("best_on_test", "error")),
            percent(group.spread("last", "ece")),
            plain(group.spread("last", "nll")),
            *(percent(spread_of(row[key] for row in ends), digits=0) for key in ("coverage_end", "quality_end")),
            duration(group.spread("seconds")),
            plain(spread_of(row["ms_per_step"] for row in ends), digits=1),
        ]
        rows.append((group.method == LABELS_ONLY, cells))
    return rows


def difference_rows(groups: Sequence[Group]) -> list[list[str]]:
    """The cells of every difference, those to labels only first; in each kind the lowest first."""
    found = differences(groups)
    found.sort(key=lambda difference: (difference.theirs.method != LABELS_ONLY, difference.found.points))
    rows = []
    for ours, theirs, told in found:
        interval = "–" if told.interval is None else f"{told.interval[0]:+.2f} to {told.interval[1]:+.2f}"
        answer = "one seed cannot tell" if told.num_seeds == 1 else "yes" if told.sure else "no"
        images = f"{told.num_images:,}" if told.num_images else "–"
        rows.append([ours.label, theirs.label, f"{told.points:+.2f}", interval, answer, str(told.num_seeds), images])
    return rows


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


def percent(spread: Spread | None, digits: int = 2) -> str:
    """A spread of fractions."""
    return plain(spread and Spread(100 * spread.mean, 100 * spread.std, spread.num_seeds), digits)


def plain(spread: Spread | None, digits: int = 3) -> str:
    """Mean ± standard deviation; one seed has none."""
    if spread is None:
        return "–"
    mean = f"{spread.mean:.{digits}f}"
    return f"{mean} ± {spread.std:.{digits}f}" if spread.num_seeds > 1 else mean


def duration(spread: Spread | None) -> str:
    """The mean of a spread of seconds."""
    if spread is None:
        return "–"
    whole = round(spread.mean)
    if whole < 120:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def markdown_table(heads: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]) -> list[str]:
    """The lines of a Markdown table; a row that is marked is bold."""
    lines = [markdown_row([f"**{cell}**" for cell in row] if bold else row) for bold, row in rows]
    return [markdown_row(heads), markdown_row(["---"] * len(heads)), *lines]


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def _group_record(group: Group) -> dict[str, Any]:
    scores = {f"error_{name}": group.spread(name, "error") for name in ("last", "validation_selected", "best_on_test")}
    first = run_row(group.runs[0])
    return {
        "label": group.label,
        **{key: first[key] for key in ("method", "projectors", "strategy")},
        "seeds": list(group.seeds),
        "unfinished": len(group.runs) - len(group.finished),
        **{name: spread and {"mean": spread.mean, "std": spread.std} for name, spread in scores.items()},
    }


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
