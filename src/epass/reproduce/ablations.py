"""SimMatch and CoMatch by the number of their projectors and by the way these are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..recipe import Recipe
from ..report.summary import display_name
from ..report.table import cell
from ..runs import Run
from .scores import METRICS, measured, numbers
from .sheet import Sheet

ACCURACY = METRICS["accuracy"]
EPASS = 3  # projectors, where the paper varies something else


@dataclass(frozen=True)
class Variant:
    """One cell of an ablation: how it is trained, and what the paper says."""

    method: str
    projectors: int
    combine: str
    paper: float  # top-1 accuracy, %

    @property
    def name(self) -> str:
        """As `epass compare` calls it, so that runs of the one can serve the other."""
        size = "" if self.projectors == 1 else f"+{self.projectors}"
        return f"{self.method}{size}" + ("" if self.combine == "mean" else f"-{self.combine}")

    @property
    def settings(self) -> tuple[str, ...]:
        """What its recipe sets besides the number of projectors; mean is what every recipe has."""
        return () if self.combine == "mean" else (f"projector.combine={self.combine}",)


def variants(table: Mapping[str, Any]) -> list[Variant]:
    """The cells of an ablation, in the order of the paper."""
    by_number = table["varied"] == "projectors"
    return [
        Variant(row["method"], int(key), "mean", paper) if by_number else Variant(row["method"], EPASS, key, paper)
        for row in table["cells"]
        for key, paper in row["paper"].items()
    ]


def obstacles(table: Mapping[str, Any], recipe: Recipe, dataset: str, scale: float) -> list[str]:
    """Why a run of `recipe` cannot be held against the paper's values: `what: paper's -> ours`."""
    found = recipe.flat() | {"data.name": dataset}
    odd = [f"{k}: {v} -> {found.get(k, 'not set')}" for k, v in table["conditions"].items() if found.get(k) != v]
    return odd + ([f"scale: 1 -> {scale:g}"] if scale != 1 else [])


def ablation(
    table: Mapping[str, Any], runs: Mapping[Variant, Sequence[Run]], odd: Sequence[str], *, dataset: str, scale: float
) -> Sheet:
    """The cells of an ablation; what is in `odd` makes differences meaningless."""
    cells, rows = [], []
    for variant, members in runs.items():
        last, best = (measured(ACCURACY, [run.results for run in members], at) for at in ("last", "best_on_test"))
        ours, deviation = numbers(ACCURACY, last)
        difference = None if odd or ours is None else round(ours - variant.paper, 4)
        value = variant.projectors if table["varied"] == "projectors" else variant.combine
        cells.append(
            {
                "method": variant.method,
                table["varied"]: value,
                "paper": variant.paper,
                "ours": ours,
                "std": deviation,
                "ours_best_on_test": numbers(ACCURACY, best)[0],
                "seeds": last.num_seeds if last else 0,
                "difference": difference,
                "data": dataset,
                "scale": scale,
            }
        )
        row = [display_name(variant.method), str(value), f"{variant.paper:.1f}", cell(ACCURACY, last)]
        rows.append(row if odd else [*row, "–" if difference is None else f"{difference:+.2f}"])
    notes = [f"Paper: {table['setup']}. Ours: {dataset}, {scale:g} of the recipe's steps, tested after the last one."]
    notes += [f"Not comparable, so without differences (paper -> ours): {'; '.join(odd)}."] if odd else []
    heads = ["method", table["varied"], "paper, %", "ours, %", *([] if odd else ["difference, points"])]
    return Sheet(table["title"], [*notes, table["note"].strip()], heads, rows, cells)
