"""Write what docs/results/*.csv say into the pages that quote them.

    python docs/results_table.py

The runs of a file of docs/results/runs.toml stand between comments such as `<!-- cifar10.csv -->` and `<!-- end -->`,
what three projectors change in them between `<!-- pairs in cifar10.csv -->` and `<!-- end -->`, what is still to be run
between `<!-- runs.toml -->` and `<!-- end -->`, runs on features of photos between `<!-- photos -->` and
`<!-- end -->`, what projectors change over many draws of labels between `<!-- heads.csv -->` and `<!-- end -->`, runs
on suggested labels between `<!-- suggest.csv -->` and `<!-- end -->`, what growth costs between
`<!-- images in growth.csv -->` or `<!-- classes in growth.csv -->` and `<!-- end -->`, the timed walk through the
studio between `<!-- studio.csv -->` and `<!-- end -->`, the line about the digits on the page of a method between
`<!-- digits.csv -->` and `<!-- end -->`. Nobody edits these by hand; benchmarks/evidence.py calls this after it has
added rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
from make_lists import write_all

from epass.evaluation.baselines import BASELINES
from epass.evaluation.bootstrap import paired_interval
from epass.methods import METHODS as CLASSES
from epass.methods import WRAPPERS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
import growth  # noqa: E402  (its folder is not on the path)
from evidence import Entry, entries, read_rows, to_come  # noqa: E402

RESULTS = ROOT / "docs" / "results"
METHODS = ROOT / "docs" / "methods"
FRONT = ROOT / "README.md"
BANKS = {"": "", "embedding": ", every embedding normalized", "batch": ", bank normalized over the batch as published"}
COLUMNS = {
    "error_last": "test error, last",
    "error_best_on_test": "best on test",
    "ece": "ECE",
    "coverage": "pseudo-labels used",
    "quality": "of these right",
}
PHOTOS = {
    "scenes-12.csv": "scenes, 12 labels",
    "scenes-30.csv": "scenes, 30 labels",
    "pneumonia-20.csv": "X-rays, 20 labels",
    "cifar10-features.csv": "CIFAR-10, 40 labels",
}
ON_THE_FRONT_PAGE = ("CoMatch + EPASS (3)", "SimMatch + EPASS (3)", "SimMatch", "labels only", "logistic regression")
# what two runs share that differ in projectors and seed alone; our kernels change no more than the rounding
SETTING = ("method", "wrapper", "bank_normalization", "target_gradients", "labels", "start", "normalization", "steps")
NONE_YET = "No run has ended yet.\n"
NO_PAIR_YET = "No pair of runs has ended yet.\n"
NO_WALK_YET = "Nobody has walked yet.\n"


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of results."""
    return read_rows(RESULTS / name)


def runs_table(file: str) -> str:
    """One row per run."""
    lines = [("run", "seed", "mean and deviation", "steps", *COLUMNS.values(), "ms per step")]
    lines.append(("---",) * len(lines[0]))
    for row in rows(file):
        name = way_of_training(row) + (f" after `{row['start']}`" if row.get("start") else "")
        skipped = ", weak views not in the backward pass" if row.get("target_gradients") == "skipped" else ""
        name += BANKS[row["bank_normalization"]] + skipped
        name += ", our kernels" if row.get("kernels") == "own" else ""
        name += ", labels that its authors drew" if "data.split_file=" in row["command"] else ""
        scores = (f"{row[key]} %" if row[key] else "" for key in COLUMNS)
        steps, mean = f"{int(row['steps']):,}", row.get("normalization", "published")
        lines.append((name, row["seed"], mean, steps, *scores, row["ms_per_step"]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if len(lines) > 2 else NONE_YET


def cifar10_front() -> str:
    """One row for each way of training: the last test error and the ECE of every run, ideas that failed left out."""
    together: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows("cifar10.csv"):
        if row["target_gradients"] != "skipped":
            together.setdefault((row["method"], row["projectors"]), []).append(row)
    lines = [("CIFAR-10, 40 labels", "projectors", "test error of every run, % (seed)", "ECE, %"), ("---",) * 4]
    for (method, projectors), runs in together.items():
        runs = sorted(runs, key=lambda row: row["seed"])
        errors = ", ".join(f"{row['error_last']} ({row['seed']})" for row in runs)
        lines.append(
            (CLASSES[method].display_name, projectors.replace("0", "–"), errors, ", ".join(row["ece"] for row in runs))
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def pairs_table(file: str) -> str:
    """What three projectors change where nothing else differs; a seed that ran twice counts once, by its mean."""
    errors: dict[tuple[str, ...], dict[str, dict[str, list[float]]]] = {}
    for row in rows(file):
        seeds = errors.setdefault(tuple(row.get(key, "") for key in SETTING), {})
        seeds.setdefault(row["seed"], {}).setdefault(row["projectors"], []).append(float(row["error_last"]))
    title = "test error with one and three projectors, % (seed)"
    lines = [("method", "mean and deviation", "steps", title, "difference, points", "95 % interval"), ("---",) * 6]
    for (method, wrapper, *_, start, normalization, steps), seeds in errors.items():
        pairs = {
            seed: (fmean(found["1"]), fmean(found["3"]))
            for seed, found in sorted(seeds.items())
            if {"1", "3"} <= found.keys()
        }
        if not pairs:
            continue
        gaps = np.array([three - one for one, three in pairs.values()])
        low, high = paired_interval(gaps, np.zeros(0))
        both = ", ".join(f"{one:.2f} and {three:.2f} ({seed})" for seed, (one, three) in pairs.items())
        interval = f"{low:+.2f} to {high:+.2f}" if len(pairs) > 1 else "none from one seed"
        name = way_of_training({"method": method, "projectors": "", "wrapper": wrapper})
        name += f" after `{start}`" if start else ""
        lines.append((name, normalization or "published", f"{int(steps):,}", both, f"{gaps.mean():+.2f}", interval))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if len(lines) > 2 else NO_PAIR_YET


def runs_to_come() -> str:
    """What the list holds that has no row, with the minutes it takes; a pre-training before what starts from it."""
    together: dict[str, list[Entry]] = {}
    for entry in to_come(entries()):
        together.setdefault(entry.table, []).append(entry)
    lines = [("table", "why", "runs: projectors-seed, or seed", "minutes of an H200"), ("---",) * 4]
    for table, runs in together.items():
        which = ", ".join(entry.name.removeprefix(f"{table}-") for entry in runs)
        lines.append((f"`{table}`", runs[0].why, which, f"{sum(entry.minutes for entry in runs):.0f}"))
    total = sum(entry.minutes for runs in together.values() for entry in runs)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\nIn all about {total / 60:.1f} hours.\n"


def digits_line(method: str) -> str:
    """The error of a method on the digits, with several projectors too where it has them."""
    found = rows("digits.csv")

    def spread(name: str, projectors: str) -> str | None:
        errors = [
            100 * float(row["error_last"])
            for row in found
            if row["method"] == name and (row["projectors"] or "1") == projectors
        ]
        return f"{fmean(errors):.1f} ± {pstdev(errors):.1f} %" if errors else None

    alone, ensemble = spread(method, "1"), spread(method, "3")
    text = f"{alone} test error" + (f", with three projectors {ensemble}" if ensemble else "")
    against = "" if method == "supervised" else f"; labels only {spread('supervised', '1')}"
    return (
        f"**Measured** on the digits with 40 labels, 600 steps, three seeds: {text}{against}.\n"
        "[All methods](../results/digits.md) stand beside it.\n"
    )


def photos_table(only: Sequence[str] = ()) -> str:
    """Mean and deviation of the error, and the mean ECE, of every way of training on features; best on scenes first."""
    spreads: dict[str, dict[str, tuple[float, float, float]]] = {}
    for file in PHOTOS:
        runs: dict[str, list[dict[str, str]]] = {}
        for row in rows(file):
            runs.setdefault(way_of_training(row), []).append(row)
        for name, found in runs.items():
            errors = [100 * float(row["error_last"]) for row in found]
            eces = [100 * float(row["ece"]) for row in found]
            spreads.setdefault(name, {})[file] = fmean(errors), pstdev(errors), fmean(eces)
    lines = [("test error, % (ECE, %)", *PHOTOS.values()), ("---",) * (1 + len(PHOTOS))]
    first = next(iter(PHOTOS))
    for name, found in sorted(spreads.items(), key=lambda pair: pair[1][first][0]):
        numbers = [found.get(file) for file in PHOTOS]
        cells = ["–" if three is None else "{:.1f} ± {:.1f} ({:.1f})".format(*three) for three in numbers]
        if not only or name in only:
            lines.append((name, *cells))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def heads_table() -> str:
    """What several projectors change over many draws of labels: the mean differences to one, draw by draw."""
    ways: dict[tuple[str, str, str], dict[str, dict[str, list[float]]]] = {}
    for row in rows("heads.csv"):
        draws = ways.setdefault((row["data"], row["labels"], row["method"]), {}).setdefault(row["projectors"], {})
        draws[row["seed"]] = [100 * float(row["error_last"]), 100 * float(row["ece"])]
    lines = [("data", "labels", "method", "projectors", "draws", "test error, %", "difference, points")]
    lines[0] += ("95 % interval", "lower in", "ECE, %", "difference, points", "95 % interval")
    lines.append(("---",) * len(lines[0]))
    for (*data, method), counts in ways.items():
        for count, draws in counts.items():
            scores = np.array(list(draws.values()))  # (draws, 2)
            gaps = scores - np.array([counts["1"][seed] for seed in draws])
            found = []
            for own, gap in zip(scores.T, gaps.T, strict=True):
                low, high = paired_interval(gap, np.zeros(0))
                known = (f"{gap.mean():+.2f}", f"{low:+.2f} to {high:+.2f}", f"{(gap < 0).sum()}")
                found.append((f"{own.mean():.2f} ± {own.std():.2f}", *(("–",) * 3 if count == "1" else known)))
            lines.append((*data, CLASSES[method].display_name, count, str(len(draws)), *found[0], *found[1][:3]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if len(lines) > 2 else NONE_YET


def suggested_table() -> str:
    """Mean and deviation of the error with so many labels, suggested or not."""
    spreads: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows("suggest.csv"):
        curve = spreads.setdefault((row["data"], row["classifier"], row["labeled"]), {})
        curve.setdefault(row["labels"], []).append(100 * float(row["error"]))
    counts = list(dict.fromkeys(count for curve in spreads.values() for count in curve))
    lines = [("test error, %", "labels are", *(f"{count} labels" for count in counts), "seeds")]
    lines.append(("---",) * len(lines[0]))
    for (data, classifier, way), curve in spreads.items():
        spread = [f" ± {pstdev(errors):.1f}" if len(errors) > 1 else "" for errors in curve.values()]
        cells = [f"{fmean(errors):.1f}{more}" for errors, more in zip(curve.values(), spread, strict=True)]
        name = CLASSES[classifier].display_name if classifier in CLASSES else classifier
        lines.append((f"{data}, {name}", way, *cells, str(len(next(iter(curve.values()))))))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def walk_table() -> str:
    """What a walk through the studio came to at each stop."""
    lines = [
        ("labels", "after", "wrong by labels only", "wrong as the page shows it", "the page says", "enough labeled?")
    ]
    lines.append(("---",) * len(lines[0]))
    for row in rows("studio.csv"):
        wrong = (f"{100 * float(row[key]):.1f} %" for key in ("error_labels_only", "error"))
        known = [f"{100 * float(row[key]):.0f} %" for key in ("shown", "low", "high") if row[key]]
        said = "{} right ({} to {})".format(*known) if known else "not known yet"
        lines.append((row["labels"], f"{float(row['seconds']):.0f} s", *wrong, said, row["enough"]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if len(lines) > 2 else NO_WALK_YET


def growth_table(axis: str) -> str:
    """Seconds and memory of every part against one axis, and the exponents of its last two sizes."""
    found = [row for row in growth.read(growth.RESULTS) if row["axis"] == axis]
    if not found:
        return "Not measured yet.\n"
    sizes = list(dict.fromkeys(int(row[axis]) for row in found))
    lines = [("", *(f"{size:,} {axis}" for size in sizes), "exponent of time", "of memory")]
    lines.append(("---",) * len(lines[0]))
    for part in growth.PARTS:
        own = {int(row[axis]): row for row in found if row["part"] == part}
        known = {size: f"{row['seconds']} s, {row['megabytes']} MB" for size, row in own.items() if row["seconds"]}
        cells = [known.get(size, own[size]["note"] if size in own else "–") for size in sizes]
        powers = [growth.exponent(list(own.values()), axis, value) for value in ("seconds", "megabytes")]
        if own:
            lines.append((part, *cells, *("–" if power is None else f"{power:.2f}" for power in powers)))
    where = " and ".join(dict.fromkeys(f"{row['machine']}, commit `{row['commit']}`" for row in found))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\nMeasured on {where}.\n"


def way_of_training(row: dict[str, str]) -> str:
    """A method with its projectors, or a baseline, as tables call it."""
    if row["method"] in BASELINES:
        return BASELINES[row["method"]].display_name
    name = CLASSES[row["method"]].display_name
    name += f" + EPASS ({row['projectors']})" if int(row["projectors"] or 1) > 1 else ""
    return f"{name} + {WRAPPERS[row['wrapper']].display_name}" if row.get("wrapper") else name


def pages() -> Iterator[tuple[Path, str, str]]:
    """Every page with the comment that begins a quote and what must stand there."""
    yield FRONT, "cifar10.csv", cifar10_front()
    for file in sorted({entry.file for entry in entries() if entry.file is not None}):
        yield RESULTS / "README.md", file, runs_table(file)
        yield RESULTS / "README.md", f"pairs in {file}", pairs_table(file)
    yield RESULTS / "README.md", "runs.toml", runs_to_come()
    yield RESULTS / "photos.md", "photos", photos_table()
    yield FRONT, "photos", photos_table(ON_THE_FRONT_PAGE)
    yield RESULTS / "photos.md", "heads.csv", heads_table()
    yield ROOT / "docs" / "suggest.md", "suggest.csv", suggested_table()
    yield ROOT / "docs" / "studio.md", "studio.csv", walk_table()
    for axis in growth.SIZES:
        yield ROOT / "docs" / "benchmarks.md", f"{axis} in growth.csv", growth_table(axis)
    for method in sorted({row["method"] for row in rows("digits.csv")}):
        yield METHODS / f"{method}.md", "digits.csv", digits_line(method)


if __name__ == "__main__":
    write_all(pages())
