"""SimMatch and CoMatch by the number of their projectors and by the way these are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..report.summary import display_name
from ..report.table import cell
from .benchmarks import Benchmark, Outcome, Trial
from .scores import METRICS, measured, numbers
from .sheet import Cell, Sheet

ACCURACY = METRICS["accuracy"]


def ablation_sheet(
    table: Benchmark, outcomes: Mapping[Trial, Outcome], *, odd: Sequence[str], instead: str, scale: float
) -> Sheet:
    """The cells of an ablation; what is in `odd` makes differences meaningless."""
    cells: list[Cell] = []
    rows = []
    for trial, outcome in outcomes.items():
        paper = float(trial.paper[0])
        last, best = (measured(ACCURACY, outcome.runs, moment) for moment in ("last", "best_on_test"))
        ours, deviation = numbers(ACCURACY, last)
        difference = None if odd or ours is None else round(ours - paper, 4)
        value = trial.projectors or 1 if table.varied == "projectors" else trial.column.name
        cells.append(
            {
                "method": trial.method,
                table.varied: value,
                "paper": paper,
                "ours": ours,
                "std": deviation,
                "ours_best_on_test": numbers(ACCURACY, best)[0],
                "seeds": last.num_seeds if last else 0,
                "difference": difference,
                "data": instead,
                "scale": scale,
            }
        )
        row = [display_name(trial.method), str(value), f"{paper:.1f}", cell(ACCURACY, last)]
        rows.append(row if odd else [*row, "–" if difference is None else f"{difference:+.2f}"])
    notes = [f"Paper: {table.setup}. Ours: {instead}, {scale:g} of the recipe's steps, tested after the last one."]
    notes += [f"Not comparable, so without differences (paper -> ours): {'; '.join(odd)}."] if odd else []
    heads = ["method", table.varied, "paper, %", "ours, %", *([] if odd else ["difference, points"])]
    return Sheet(table.title, [*notes, table.note], heads, rows, cells)
