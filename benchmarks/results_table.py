"""Write the tables of README.md and docs/results/README.md from docs/results/cifar10.csv.

    python benchmarks/results_table.py

A table stands between two comments, `<!-- cifar10.csv -->` and `<!-- end -->`, and nobody edits it by hand.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results" / "README.md")
NAMES = {"simmatch": "SimMatch", "comatch": "CoMatch", "fixmatch": "FixMatch", "supervised": "labels only"}
BANKS = {"": "", "embedding": ", every embedding normalized", "batch": ", bank normalized over the batch as published"}
HEAD = (
    "run",
    "steps",
    "test error, last",
    "best on test",
    "ECE",
    "pseudo-labels used",
    "of these right",
    "ms per step",
)


def table() -> str:
    """One row of the table per row of the file."""
    with (ROOT / "docs" / "results" / "cifar10.csv").open(encoding="utf-8", newline="") as file:
        rows = [cells(row) for row in csv.DictReader(file)]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cells(row: dict[str, str]) -> tuple[str, ...]:
    """What a page shows of a run."""
    name = NAMES[row["method"]]
    name += f" + EPASS ({row['projectors']})" if int(row["projectors"]) > 1 else ""
    name += BANKS[row["bank_normalization"]]
    name += ", weak views not in the backward pass" if row["target_gradients"] == "skipped" else ""
    percents = [f"{row[key]} %" for key in ("error_last", "error_best_on_test", "ece", "coverage", "quality")]
    return (name, f"{int(row['steps']):,}", *percents, row["ms_per_step"])


def written(text: str) -> str:
    """A page with the table of today."""
    return re.sub(
        r"(<!-- cifar10.csv -->\n).*?(<!-- end -->)", lambda found: found[1] + table() + found[2], text, flags=re.S
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
