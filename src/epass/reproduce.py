"""The paper's tables beside ours: its numbers are data, in paper/*.toml; ours are counted or come from run folders."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .files import write_atomically
from .networks import NETWORKS, MultiHead, count_parameters, make_network
from .parts.projector import ProjectorEnsemble
from .recipe import Recipe
from .report.summary import NAMES, Spread, number, spread_of
from .report.table import plain
from .runs import Run

PAPER = Path(__file__).parent / "paper"
EPASS = 3  # projectors, where the paper varies something else
MILLION = 1_000_000
TEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "×": r"$\times$", "–": "--"} | {sign: f"\\{sign}" for sign in "&%#_$"}
Cell = dict[str, Any]


@dataclass(frozen=True)
class Sheet:
    """A table to look at, and its cells as numbers."""

    title: str
    notes: Sequence[str]  # sentences that the numbers cannot be understood without
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    cells: Sequence[Cell]

    def write(self, folder: Path) -> None:
        """The numbers as table.csv, the table as table.md and table.tex."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {"table.csv": self.as_csv(), "table.md": self.as_markdown(), "table.tex": self.as_tex()}
        for name, text in files.items():
            write_atomically(folder / name, text.encode())

    def as_csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.cells[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.cells)
        return text.getvalue()

    def as_markdown(self) -> str:
        table = [f"| {' | '.join(line)} |" for line in (self.heads, ["---"] * len(self.heads), *self.rows)]
        return "\n".join([f"# {self.title}", "", *self.notes, "", *table]) + "\n"

    def as_tex(self) -> str:
        """A tabular of plain LaTeX, with title and notes as comments."""
        heads, *rows = (" & ".join(map(in_tex, line)) + r" \\" for line in (self.heads, *self.rows))
        lines = [f"% {sentence}" for sentence in (self.title, *self.notes)]
        lines += [rf"\begin{{tabular}}{{{'l' * len(self.heads)}}}", r"\hline", heads, r"\hline"]
        return "\n".join([*lines, *rows, r"\hline", r"\end{tabular}"]) + "\n"


def in_tex(text: str) -> str:
    """A text that LaTeX prints as it is."""
    return "".join(TEX.get(sign, sign) for sign in text)


def paper_table(name: str) -> dict[str, Any]:
    """What the paper prints, and where and how it got it."""
    return tomllib.loads((PAPER / f"{name}.toml").read_text(encoding="utf-8"))


# Parameters


def parameters() -> Sheet:
    """Every network of the paper, counted here."""
    table = paper_table("parameters")
    cells = [counted(row) for row in table["rows"]]
    heads = ("network", "classes", "method", "projectors", "paper", "published code", "ours", "to paper", "to code")
    rows = [counted_row(cell, row.get("paper")) for cell, row in zip(cells, table["rows"], strict=True)]
    return Sheet(table["title"], [table["note"].strip()], heads, rows, cells)


def counted(row: Mapping[str, Any]) -> Cell:
    """A row of the paper with our count and its differences; None is what the paper, or this package, does not have."""
    ours = count(row) if row["network"] in NETWORKS else None
    paper = float(row["paper"]) if "paper" in row else None
    return {
        "network": row["network"],
        "classes": row["classes"],
        "method": row["method"],
        "projectors": row.get("projectors"),
        "out_dim": row.get("out_dim"),
        "paper_millions": paper,
        "code": row["code"],
        "ours": ours,
        "against_paper_millions": None if ours is None or paper is None else round(ours / MILLION - paper, 6),
        "against_code": None if ours is None else ours - row["code"],
    }


def count(row: Mapping[str, Any]) -> int:
    """The parameters of a row's network, its heads and its projectors."""
    with torch.device("meta"):  # shapes without memory or initialization
        net = make_network(row["network"], in_channels=3, num_classes=row["classes"], **row.get("net", {}))
        total = count_parameters(MultiHead(net, row["heads"]) if "heads" in row else net)
        if "projectors" in row:
            total += count_parameters(ProjectorEnsemble(net.num_features, row["out_dim"], size=row["projectors"]))
    return total


def counted_row(cell: Cell, printed: str | None) -> list[str]:
    """A count for people; the paper's in the digits that it prints."""
    ours, to_paper = cell["ours"], cell["against_paper_millions"]
    return [
        cell["network"],
        str(cell["classes"]),
        cell["method"],
        f"{cell['projectors']} × {cell['out_dim']}" if cell["projectors"] else "–",
        f"{printed} M" if printed else "–",
        f"{cell['code']:,}",
        "no such network here" if ours is None else f"{ours:,}",
        "–" if to_paper is None else f"{round(to_paper, 2) + 0.0:+.2f} M",
        "–" if ours is None else f"{cell['against_code']:+,}" if cell["against_code"] else "0",
    ]


# Ablations


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
        accuracy = accuracies(members, "last")
        best = accuracies(members, "best_on_test")
        difference = None if odd or accuracy is None else round(accuracy.mean - variant.paper, 4)
        value = variant.projectors if table["varied"] == "projectors" else variant.combine
        cells.append(
            {
                "method": variant.method,
                table["varied"]: value,
                "paper": variant.paper,
                "ours": accuracy and round(accuracy.mean, 4),
                "std": round(accuracy.std, 4) if accuracy and accuracy.num_seeds > 1 else None,
                "ours_best_on_test": best and round(best.mean, 4),
                "seeds": accuracy.num_seeds if accuracy else 0,
                "difference": difference,
                "data": dataset,
                "scale": scale,
            }
        )
        row = [NAMES[variant.method], str(value), f"{variant.paper:.1f}", plain(accuracy, digits=2)]
        rows.append(row if odd else [*row, "–" if difference is None else f"{difference:+.2f}"])
    notes = [f"Paper: {table['setup']}. Ours: {dataset}, {scale:g} of the recipe's steps, tested after the last one."]
    notes += [f"Not comparable, so without differences (paper -> ours): {'; '.join(odd)}."] if odd else []
    heads = ["method", table["varied"], "paper, %", "ours, %", *([] if odd else ["difference, points"])]
    return Sheet(table["title"], [*notes, table["note"].strip()], heads, rows, cells)


def accuracies(runs: Sequence[Run], moment: str) -> Spread | None:
    """Top-1 accuracy in percent over the runs that have finished."""
    errors = [number(run.results, moment, "error") for run in runs]
    return spread_of(None if error is None else 100 * (1 - error) for error in errors)
