"""Is a model better calibrated after 'epass calibrate' than before, and do prediction sets keep what they promise?

For every run of a comparison, by labels of two sources, on test images:

    cross-fitted   the run's own labels, answered by five models that were trained without them: 'epass calibrate RUN'
    held out       half of the test images calibrates, the other half is tested, and the other way round: --data

A row says the calibration error (ECE) and the negative log-likelihood before and after, and the share of test images
whose true class is in its set at 90 %, with the interval that holds this share in 95 of 100 cases if the promise is
true: the luck of the test images is binomial, and that of the labels a beta distribution.

    epass compare scenes --labels 12 --methods simmatch+3 --seeds 5 --out compared
    python benchmarks/calibration.py compared --out rows.csv
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from scipy.stats import betabinom

from epass import load_run, read_recipe
from epass.app.calibrate import own_images
from epass.engine.build import open_examples
from epass.engine.crossfit import out_of_fold
from epass.engine.run import continued, split_record
from epass.evaluation import score
from epass.evaluation.calibrated import fit_calibration, least_labels
from epass.features import drained
from epass.runs import RunFolder

COVERAGE = 0.9
Arrays = tuple[np.ndarray, np.ndarray]


def own_labels(run: Path) -> Arrays:
    """The labels of a run, and what models say about their images that were trained without them."""
    device = torch.device("cpu")
    recipe, images = own_images(run, None)
    dataset = open_examples(recipe, device, images)
    dataset, split, _ = continued(recipe, RunFolder(run), split_record(RunFolder(run)), dataset)
    return drained(out_of_fold(recipe, dataset, split, device)).numpy(), split.labeled.labels.numpy()


def row_of(source: str, known: Arrays, test: Arrays) -> dict[str, object]:
    """Calibrate by the known labels, and see what it is worth on test images."""
    enough = len(known[1]) >= least_labels(COVERAGE)
    found = fit_calibration(*known, coverage=COVERAGE if enough else None)
    before, after = score(*test), score(test[0] / found.temperature, test[1])
    row: dict[str, object] = {"source": source, "calibrated_by": len(known[1]), "images": len(test[1])}
    row["temperature"] = round(found.temperature, 4)
    for name in ("ece", "nll"):
        row |= {f"{name}_before": round(before[name], 5), f"{name}_after": round(after[name], 5)}
    if enough:
        sets = found.sets(found.probabilities(test[0]))
        rank = math.ceil((len(known[1]) + 1) * COVERAGE - 1e-9)
        low, high = betabinom(len(test[1]), rank, len(known[1]) + 1 - rank).interval(0.95)
        row["coverage"] = round(float(sets[np.arange(len(sets)), test[1]].mean()), 4)
        row |= {"low": round(low / len(sets), 4), "high": round(high / len(sets), 4)}
        row["set_size"] = round(float(sets.sum(1).mean()), 3)
    return row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compared", nargs="+", type=Path, help="folders of 'epass compare'")
    parser.add_argument("--runs", default="simmatch+3", help="those of this name")
    parser.add_argument("--seeds", type=int, default=5, help="so many of them")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    name = re.compile(rf"{re.escape(options.runs)}-(\d+)")
    rows = []
    for run in sorted(run for folder in options.compared for run in folder.iterdir()):
        found = name.fullmatch(run.name)
        if found is None or int(found[1]) >= options.seeds:
            continue
        facts = {"run": options.runs, "labels": read_recipe(str(run / "recipe.toml")).data["labels"], "seed": found[1]}
        predictions = load_run(run).predictions
        assert predictions is not None
        logits, labels = predictions
        rows.append(facts | row_of("cross-fitted", own_labels(run), (logits, labels)))
        for half in (0, 1):
            known, tested = ((logits[part::2], labels[part::2]) for part in (half, 1 - half))
            rows.append(facts | row_of("held out", known, tested))
        print(*(f"{key}={value}" for key, value in rows[-3].items()), flush=True)
    if not rows:
        print("No such run there.", file=sys.stderr)
        return 2
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for labels, source in dict.fromkeys((row["labels"], row["source"]) for row in rows):
        same = [row for row in rows if (row["labels"], row["source"]) == (labels, source)]
        before, after, covered = (
            mean(float(str(row[key])) for row in same) for key in ("ece_before", "ece_after", "coverage")
        )
        inside = sum(float(str(row["low"])) <= float(str(row["coverage"])) <= float(str(row["high"])) for row in same)
        print(
            f"{labels} labels, {source}: ECE {100 * before:.1f} % before, {100 * after:.1f} % after; coverage "
            f"{100 * covered:.1f} %, in {inside} of {len(same)} cases inside its interval"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
