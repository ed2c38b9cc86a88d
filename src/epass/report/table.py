"""Runs as a table: one line per run for programs, one row per group for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_atomically
from ..runs import Run
from ..untrusted import spreadsheet_text
from .summary import LABELS_ONLY, Group, Spread, number, seed_of, spread_of
from .verdict import compare, same_data, sentences

HEADS = (
    "method",
    "seeds",
    "test error, last step, %",
    "against labels only, points",
    "more than noise?",
    "best on test, as papers report, %",
    "ECE, %",
    "NLL",
    "coverage, %",
    "quality, %",
    "time per run",
    "ms per step",
)
NOTE = """Mean ± standard deviation over seeds (population, ddof 0), lowest error first; labels only in bold. The last
step is what you get when you train once and use the model. Best on test picks the step by looking at the test images:
it is there to compare with papers. Coverage: share of unlabeled images trained on at the end; quality: share of those
with the right class. Ms per step: median over the reports of a run."""


def run_row(run: Run) -> dict[str, Any]:
    """One run by column; scores are fractions, and what a run did not get to or does not have is None."""
    end = run.metrics[-1] if run.metrics else {}
    results = run.results or {}
    return {
        "method": run.recipe.get("method", {}).get("name"),
        "projectors": run.recipe.get("projector", {}).get("size"),
        "labels": results.get("labels"),
        "seed": seed_of(run),
        "steps": results.get("steps"),
        "error_last": number(results, "last", "error"),
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
    rows = table_rows(groups)
    lines = [f"# {title}", "", *sentences(groups), "", markdown_row(HEADS), markdown_row(["---"] * len(HEADS))]
    lines += [markdown_row([f"**{cell}**" for cell in row] if bold else row) for bold, row in rows]
    lines += ["", NOTE]
    asked = sum(answer in ("yes", "no") for _, (_, _, _, _, answer, *_) in rows)
    if asked > 1:
        lines += [f"Of these {asked} answers about noise, luck alone makes up to one in 20 a yes."]
    lines += [f"\n{name} is missing: {reason}" for name, reason in missing.items()]
    return _write(path, "\n".join(lines) + "\n")


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
            *_against(group, groups),
            percent(group.spread("best_on_test", "error")),
            percent(group.spread("last", "ece")),
            plain(group.spread("last", "nll")),
            *(percent(spread_of(row[key] for row in ends), digits=0) for key in ("coverage_end", "quality_end")),
            duration(group.spread("seconds")),
            plain(spread_of(row["ms_per_step"] for row in ends), digits=1),
        ]
        rows.append((group.method == LABELS_ONLY, cells))
    return rows


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


def _against(group: Group, groups: Sequence[Group]) -> tuple[str, str]:
    """The difference to labels only on the same data, and whether it is more than noise."""
    baselines = [other for other in groups if other.method == LABELS_ONLY and other.errors and same_data(other, group)]
    if group.method == LABELS_ONLY or not baselines or not group.errors:
        return "–", "–"
    found = compare(group, baselines[0])
    return f"{found.points:+.2f}", "one seed cannot tell" if found.seeds is None else "yes" if found.sure else "no"


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def _write(path: str | Path, text: str) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return target
