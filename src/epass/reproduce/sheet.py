"""A table of the paper, whose numbers are data in paper/*.toml, and a table for people, with ours."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_atomically

PAPER = Path(__file__).parents[1] / "paper"
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

    def write(self, folder: Path, name: str = "table") -> None:
        """The numbers as table.csv, the table as table.md and table.tex."""
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in {"csv": self.as_csv(), "md": self.as_markdown(), "tex": self.as_tex()}.items():
            write_atomically(folder / f"{name}.{ending}", text.encode())

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
