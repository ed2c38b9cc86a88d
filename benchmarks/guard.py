"""Does a guard decide well? Runs with labels left out in turn, beside what the test images say, which it never sees.

    python benchmarks/guard.py DATA [--labels 12 30] [--seeds 5] [--features NET] [--csv docs/results/guard.csv]

Appends one line per run: what the labels say, which model was kept, and the test error of both.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

from epass.app.train import train

HEADS = ("data", "labels", "seed", "method_left_out", "labels_only_left_out", "gap", "low", "high", "kept")
HEADS += ("method_test", "labels_only_test", "guard_seconds", "seconds")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[12, 30])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", help="as in epass train")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="as in epass train")
    parser.add_argument("--csv", type=Path, default=Path("guard.csv"))
    given = parser.parse_args(arguments)
    for labels in given.labels:
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                said = {"labels": labels, "seed": seed, "features": given.features, "settings": given.settings}
                done = train(given.data, guard=True, out=Path(folder) / "run", **said).result()
            results = done.values["results"]
            found = results["guard"]
            sides = [found.get(side, {}).get("value") for side in ("method", "labels_only")]
            gap = [found.get("gap", {}).get(end) for end in ("value", "low", "high")]
            tests = [found["test"][side]["error"] for side in ("method", "labels_only")]
            times = [found["seconds"], results["seconds"]]
            row = [given.data.stem, labels, seed, *sides, *gap, found["kept"], *tests, *times]
            append(given.csv, [round(cell, 4) if isinstance(cell, float) else cell for cell in row])
            print(*row, flush=True)


def append(path: Path, row: list[object]) -> None:
    """One more line of a CSV file, after the heads where it is new."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([HEADS, row] if new else [row])


if __name__ == "__main__":
    main()
