"""Make the runs of docs/results/runs.toml that have no row yet, within the minutes there are, and add their rows.

    python benchmarks/evidence.py --minutes 25 [--runs runs/evidence] [--whole] [--only svhn]

A run that time cuts off leaves a checkpoint in its folder under --runs, and the same command goes on with it. Where
that folder will be lost, --whole begins only what fits into the time left. The row of a finished run, with its commit,
command, curve and machine, goes into docs/results, and the tables in the docs follow. Folders of finished runs that
were made elsewhere get their rows, too: copy them to --runs and give --minutes 0.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epass.runs import METRICS, RunFolder, load_run

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
LEAST = 90.0  # seconds: in less, a run that is compiled does nothing worth going on from
ENDING = 15.0  # seconds in which a run writes its last checkpoint
COLUMNS = (
    *("method", "projectors", "wrapper", "bank_normalization", "start", "labels", "seed", "steps", "error_last"),
    *("error_best_on_test", "ece", "nll", "coverage", "quality", "ms_per_step", "device", "torch", "commit"),
    *("curve", "command"),
)


@dataclass(frozen=True)
class Entry:
    """One run of the list."""

    table: str  # of the list
    name: str  # of its folder and its curve
    why: str
    command: tuple[str, ...]  # without --from and --out
    minutes: float
    file: str | None  # of rows; a pre-training has none
    columns: Mapping[str, str] = field(default_factory=dict)  # of its row, that its folder does not tell
    start: str = ""  # the table of the run that it starts from
    after: str | None = None  # the name of that run

    def typed(self, runs: Path = Path("runs")) -> list[str]:
        """The command, with the folder that it starts from below `runs`."""
        return [*self.command, *([] if self.after is None else ["--from", str(runs / self.after)])]

    def has_row(self, rows: Sequence[Mapping[str, str]]) -> bool:
        """Whether one of the rows was made by this command, in whatever order its flags were."""
        return any(flags(shlex.split(row["command"])) == flags(self.typed()) for row in rows)


def flags(command: Sequence[str]) -> Counter[tuple[str, str]]:
    """The words of a command in pairs: its name and the data, then each flag with its value."""
    return Counter(zip(command[1::2], command[2::2], strict=False))


def entries(path: Path = RESULTS / "runs.toml") -> list[Entry]:
    """All runs of a list, in its order; of a table those of the first seed first."""
    found = []
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, table in tables.items():
        verb = "train" if "file" in table else "pretrain"
        given = ("--recipe", table["recipe"], "--labels", str(table["labels"]), "--steps", str(table["steps"]))
        settings = [word for setting in table["set"] for word in ("--set", setting)]
        for seed in table["seeds"]:
            for size in table.get("projectors", [None]):
                heads = () if size is None else ("--projectors", str(size))
                command = ("epass", verb, table["data"], *given, *heads, "--seed", str(seed), *settings)
                which = f"{seed}" if size is None else f"{size}-{seed}"
                start, after = table.get("after", ""), None
                if start:  # what was learned without heads is the start of all runs of its seed
                    after = f"{start}-{which if 'projectors' in tables[start] else seed}"
                columns = table.get("columns", {})
                own = f"{name}-{which}"
                facts = (table["why"], command, table["minutes"], table.get("file"), columns, start, after)
                found.append(Entry(name, own, *facts))
    return found


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file of results; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def to_come(listed: Sequence[Entry], results: Path = RESULTS) -> list[Entry]:
    """The entries that have no row, each behind the pre-training that it starts from."""
    rows = {entry.file: read_rows(results / entry.file) for entry in listed if entry.file is not None}
    open_ones = [entry for entry in listed if entry.file is not None and not entry.has_row(rows[entry.file])]
    before = {entry.name: entry for entry in listed if entry.file is None}
    found = [each for entry in open_ones for each in (before.get(entry.after or ""), entry) if each is not None]
    return list({entry.name: entry for entry in found}.values())


def is_finished(folder: Path) -> bool:
    return (folder / "results.json").is_file()


def make_row(entry: Entry, folder: Path) -> dict[str, str]:
    """What a finished run says of itself."""
    run = load_run(folder)
    assert run.results is not None
    recipe, results, last = run.recipe, run.results, run.metrics[-1]
    projectors = (recipe.get("projector") or {}).get("size", 0)
    asked = flags(entry.command)
    made = {"--seed": recipe["seed"], "--steps": results["steps"]}
    made |= {"--projectors": projectors} if projectors else {}
    if any((flag, str(value)) not in asked for flag, value in made.items()):
        raise SystemExit(f"'{folder}' holds another run than '{shlex.join(entry.typed())}': move it away.")
    share = {key: f"{100 * last[key]:.1f}" if last.get(key) is not None else "" for key in ("coverage", "quality")}
    scores, commit = results["last"], str(run.environment["commit"] or "")
    return {
        "method": recipe["method"]["name"],
        "projectors": str(projectors),
        "wrapper": (recipe.get("wrapper") or {}).get("name", ""),
        "bank_normalization": recipe["method"].get("bank_normalization", ""),
        "start": entry.start,
        "labels": str(results["labels"]),
        "seed": str(recipe["seed"]),
        "steps": str(results["steps"]),
        "error_last": f"{100 * scores['error']:.2f}",
        "error_best_on_test": f"{100 * results['best_on_test']['error']:.2f}",
        "ece": f"{100 * scores['ece']:.2f}",
        "nll": f"{scores['nll']:.3f}",
        **share,
        "ms_per_step": f"{1000 * results['seconds'] / results['steps']:.2f}",
        "device": str(run.environment.get("device_name") or run.environment["device"]),
        "torch": str(run.environment["torch"]),
        "commit": commit[:7] + "-dirty" * commit.endswith("-dirty"),
        "curve": f"{entry.name}.jsonl",
        "command": shlex.join(entry.typed()),
        **entry.columns,
    }


def add_row(entry: Entry, folder: Path, results: Path = RESULTS) -> None:
    """Add the row and the curve of a finished run; one that has a row gets no second one."""
    assert entry.file is not None
    path = results / entry.file
    rows = read_rows(path)
    if entry.has_row(rows):
        return
    row = make_row(entry, folder)
    shutil.copyfile(folder / METRICS, results / row["curve"])
    names = list(rows[0]) if rows else [*COLUMNS, *entry.columns]
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", extrasaction="ignore", lineterminator="\n")
        if not rows:
            writer.writeheader()
        writer.writerow(row)


def launch(command: Sequence[str], seconds: float) -> int:
    """Run a command and ask it to end when its time is over; its exit code."""
    process = subprocess.Popen(command)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


def next_of(waiting: Sequence[Entry], runs: Path, left: float, whole: bool) -> Entry | None:
    """What to do with the seconds left: go on with what began, or else begin what fits, or else what can be cut."""
    ready = [entry for entry in waiting if entry.after is None or is_finished(runs / entry.after)]
    begun = [entry for entry in ready if left >= LEAST and RunFolder(runs / entry.name).exists()]
    after = {entry.after: entry.minutes for entry in waiting}  # without its follower, a pre-training is not whole
    fitting = [entry for entry in ready if 60 * (entry.minutes + whole * after.get(entry.name, 0)) <= left]
    cut = [entry for entry in ready if left >= LEAST and not whole]
    return next(iter([*begun, *fitting, *cut]), None)


def measure(
    listed: Sequence[Entry],
    runs: Path,
    seconds: float,
    *,
    results: Path = RESULTS,
    whole: bool = False,
    run: Callable[[Sequence[str], float], int] = launch,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Make runs until the time is over, and say of each one what became of it."""
    until, told, failed = clock() + seconds, [], set()
    while True:
        waiting = [entry for entry in to_come(listed, results) if entry.name not in failed]
        for entry in waiting:
            if entry.file is not None and is_finished(runs / entry.name):
                add_row(entry, runs / entry.name, results)
                told.append(f"{entry.name}: finished, its row is in {entry.file}")
        waiting = [entry for entry in waiting if not is_finished(runs / entry.name)]
        left = until - clock() - ENDING
        chosen = next_of(waiting, runs, left, whole)
        if chosen is None:
            return told
        folder = runs / chosen.name
        code = run([sys.executable, "-m", *chosen.typed(runs), "--resume", "--out", str(folder)], left)
        if code:
            failed.add(chosen.name)
            over = clock() >= until - ENDING
            told.append(f"{chosen.name}: " + ("goes on next time" if over else f"failed with exit code {code}"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, required=True, help="time for all of it")
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="folder of the runs")
    parser.add_argument("--whole", action="store_true", help="begin only what fits into the time left")
    parser.add_argument("--only", default="", help="runs whose names hold this")
    given = parser.parse_args(arguments)
    listed = [entry for entry in entries() if entry.file is None or given.only in entry.name]
    for sentence in measure(listed, given.runs, 60 * given.minutes, whole=given.whole):
        print(sentence)
    subprocess.run([sys.executable, ROOT / "docs" / "results_table.py"], check=True)
    left = [entry for entry in to_come(listed) if not is_finished(given.runs / entry.name)]
    print(f"{len(left)} runs to come, about {sum(entry.minutes for entry in left):.0f} minutes on an NVIDIA H200")


if __name__ == "__main__":
    main()
