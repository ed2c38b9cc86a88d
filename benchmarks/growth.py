"""Time and memory of what a user waits for, against images, classes, runs and the reports of a run.

    python benchmarks/growth.py      # all of it, in ten minutes or so; then python docs/results_table.py
    python benchmarks/growth.py --parts split step --seconds 5 --out split.csv

Every number is that of a process of its own, which is forked after everything is imported: the seconds of the work (of
one step, where it is training), and by how much the most memory that the process ever had is above what it began with.
Its images are made before, by another process. A cell that would take more than `--seconds` with its images, on a
straight line through the two before it, is left out and says how long the work itself would take; one that does, in
spite of that, is stopped. The exponent is that of the last two sizes: 1 is
linear, and 0.01 s or 10 MB are too little for one.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line does, before torch is imported

import numpy as np
import torch
from PIL import Image

from epass.app.check import check
from epass.app.compare import write_tables
from epass.app.report import report
from epass.data import Dataset, Images, divide, from_arrays, from_vectors, open_dataset, split_text
from epass.engine.build import build
from epass.engine.infer import predict
from epass.engine.run import run
from epass.evaluation import score
from epass.machine.cpu import keep_freed_memory
from epass.machine.device import device_name
from epass.recipe import Recipe, read_recipe
from epass.runs import METRICS, RunFolder, environment

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "growth.csv"
SIZES = {
    "images": (10**3, 10**4, 10**5, 10**6),
    "classes": (2, 10**2, 10**3, 10**4),
    "runs": (10, 10**2, 10**3),
    "reports": (10**2, 10**3, 10**4, 10**5),
}
IMAGES = {"classes": 20_000, "runs": 1_000, "reports": 1_000}  # while something else grows
TESTED = 10  # of the reports, one that comes with a test
LEAST = {"seconds": 0.01, "megabytes": 10.0}  # below, a number says nothing about growth
COLUMNS = ("part", "axis", *SIZES, "seconds", "megabytes", "note", "machine", "commit")
STEPS, FIRST = 10, 3  # timed, and before them
Row = dict[str, str]
CPU = torch.device("cpu")


class Size(NamedTuple):
    """How much there is of everything."""

    images: int
    classes: int = 10
    runs: int = 1
    reports: int = 1


class Part(NamedTuple):
    """Something that a user waits for."""

    name: str
    make: Callable[[Path, Size], object]  # files of this size
    ready: Callable[[Path, Size], Callable[[], object]]  # what is timed, ready to start
    times: int = 1  # that it does the same
    answers: int | None = None  # images while classes grow, where the answers alone are images x classes
    axes: tuple[str, ...] = ("images", "classes")  # along which it grows

    def size(self, axis: str, number: int) -> Size:
        """So many along one axis."""
        images = number if axis == "images" else IMAGES[axis]
        if axis == "classes":
            images = self.answers or images
        return Size(images)._replace(**{axis: number})


def nothing(folder: Path, size: Size) -> None:
    """What is in memory needs no file."""


def pixels(images: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (images, 8, 8), dtype=np.uint8)


def labels(images: int, classes: int) -> np.ndarray:
    return np.arange(images) % classes


def noise(images: int, classes: int) -> Dataset:
    return from_arrays(pixels(images), labels(images, classes), name="noise")


def encoded(size: Size) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of image files, a few kinds again and again: encoding takes longer than writing."""
    kinds = []
    for picture in pixels(100):
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "png")
        kinds.append(stream.getvalue())
    return ((f"c{label:05d}/{number}.png", kinds[number % 100]) for number, label in enumerate(labels(*size[:2])))


def make_folder(folder: Path, size: Size) -> None:
    for label in range(size.classes):
        (folder / "data" / f"c{label:05d}").mkdir(parents=True)
    for name, data in encoded(size):
        (folder / "data" / name).write_bytes(data)


def make_archive(folder: Path, size: Size) -> None:
    with zipfile.ZipFile(folder / "data.zip", "w") as packed:
        for name, data in encoded(size):
            packed.writestr(name, data)


def make_table(folder: Path, size: Size) -> None:
    make_folder(folder, size)
    lines = (f"data/{name},{name.partition('/')[0]}\n" for name, _ in encoded(size))
    (folder / "data.csv").write_text("path,label\n" + "".join(lines), encoding="utf-8")


def make_npz(folder: Path, size: Size) -> None:
    np.savez(folder / "data.npz", train_images=pixels(size.images), train_labels=labels(*size[:2]))


def make_run(folder: Path, size: Size) -> None:
    """A run of one step with so many test images."""
    images, classes = size[:2]
    train, test = noise(max(1000, 2 * classes), classes), noise(images, classes).train
    dataset = replace(train, test=Images(255 - test.pixels, test.labels))
    recipe = small("digits-simmatch", classes, images).with_settings({"plan.steps": 1, "plan.evaluate_every": 1})
    list(run(recipe, folder / "run", dataset=dataset, device="cpu", allow_leak=True))


def make_reports(folder: Path, size: Size) -> None:
    """A run with so many reports, a tenth of them of tests."""
    make_run(folder, size)
    home = RunFolder(folder / "run")
    (row,) = home.metrics()
    untested = {key: value for key, value in row.items() if not key.startswith("test_") and "by_class" not in key}
    rows = ((untested if step % TESTED else row) | {"step": step} for step in range(1, size.reports + 1))
    (home.path / METRICS).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def make_seeds(folder: Path, size: Size) -> None:
    """The same run again and again, as if each had a seed of its own."""
    _make_runs(folder, size, lambda number: {"seed": number})


def make_ways(folder: Path, size: Size) -> None:
    """The same run again and again, as if each had a threshold of its own."""
    _make_runs(folder, size, lambda number: {"method.threshold": round(0.5 + number / 10**4, 4)})


def _make_runs(folder: Path, size: Size, settings: Callable[[int], dict[str, Any]]) -> None:
    make_run(folder, size)
    recipe = read_recipe(str(folder / "run" / "recipe.toml"))
    facts = json.loads((folder / "run" / "environment.json").read_text(encoding="utf-8"))
    for number in range(size.runs):
        changed = recipe.with_settings(settings(number))
        home = folder / "runs" / f"{number:04d}"
        home.mkdir(parents=True)
        for file in (folder / "run").iterdir():
            if file.is_file():
                os.link(file, home / file.name)
        for name, text in {
            "recipe.toml": changed.to_toml(),
            "environment.json": json.dumps(facts | {"seed": changed.seed}),
        }.items():
            (home / name).unlink()  # else the text would be that of all of them
            (home / name).write_text(text, encoding="utf-8")


def reads(name: str) -> Callable[[Path, Size], Callable[[], object]]:
    return lambda folder, size: lambda: open_dataset(str(folder / name), image_size=8)


def splits(folder: Path, size: Size) -> Callable[[], object]:
    dataset = noise(*size[:2])
    return lambda: split_text(dataset, divide(dataset, seed=0, labels=size.classes).positions)


def small(name: str, classes: int, images: int) -> Recipe:
    """A recipe with four labels of every class, or one where there are so few images."""
    each = 4 if images >= 10 * classes else 1
    settings = {"data.name": "noise", "data.labels": each * classes, "method.warmup_steps": 0}
    return read_recipe(name).with_settings(settings)


def trains(name: str, dataset: Dataset, images: int) -> Callable[[], object]:
    step, feed = build(small(name, len(dataset.classes), images), CPU, dataset).pipeline
    for number in range(FIRST):
        step(feed(number))
    return lambda: [step(feed(FIRST + number)) for number in range(STEPS)]


def steps_on_images(folder: Path, size: Size) -> Callable[[], object]:
    return trains("digits-simmatch", noise(*size[:2]), size.images)


def steps_on_vectors(folder: Path, size: Size) -> Callable[[], object]:
    vectors = np.random.default_rng(0).standard_normal((size.images, 64), dtype=np.float32)
    return trains("vectors-simmatch", from_vectors(vectors, labels(*size[:2])), size.images)


def evaluates(folder: Path, size: Size) -> Callable[[], object]:
    images, classes = size[:2]
    experiment = build(small("digits-simmatch", classes, 0), CPU, noise(2 * classes + 100, classes))
    test = Images(torch.from_numpy(pixels(images))[:, None], torch.from_numpy(labels(images, classes)))
    return lambda: score(predict(experiment.network, test, experiment.dataset, CPU), test.labels)


def reports(folder: Path, size: Size) -> Callable[[], object]:
    # of all runs, maps show at most 2,000 images, and take most of the time
    return lambda: list(report([folder / "run"], out=folder / "report.html", maps=False))


def pages(folder: Path, size: Size) -> Callable[[], object]:
    runs = sorted((folder / "runs").iterdir())
    return lambda: list(report(runs, out=folder / "report.html", maps=False))


def tables(folder: Path, size: Size) -> Callable[[], object]:
    runs = sorted((folder / "runs").iterdir())
    return lambda: write_tables(runs, {}, folder, "runs")


def resumes(folder: Path, size: Size) -> Callable[[], object]:
    home = RunFolder(folder / "run")
    return lambda: (home.truncate_metrics(size.reports), home.metrics())


def checks(folder: Path, size: Size) -> Callable[[], object]:
    return lambda: list(check(folder / "data.npz"))


PARTS = {
    part.name: part
    for part in (
        Part("folder", make_folder, reads("data")),
        Part("archive", make_archive, reads("data.zip")),
        Part("table", make_table, reads("data.csv")),
        Part("npz", make_npz, reads("data.npz")),
        Part("split", nothing, splits),
        Part("step", nothing, steps_on_images, STEPS),
        Part("step on vectors", nothing, steps_on_vectors, STEPS),
        Part("evaluation", nothing, evaluates, answers=2_000),
        Part("report", make_run, reports, answers=2_000),
        Part("check", make_npz, checks),
        Part("page of seeds", make_seeds, pages, axes=("runs",)),
        Part("page of ways", make_ways, pages, axes=("runs",)),
        Part("tables of ways", make_ways, tables, axes=("runs",)),
        Part("page", make_reports, reports, axes=("reports",)),
        Part("resume", make_reports, resumes, axes=("reports",)),
    )
}


class Cell(NamedTuple):
    """What one size cost."""

    seconds: float
    megabytes: float


def grown() -> float:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def apart(work: Callable[[], tuple[float, float]], seconds: float, out: Path) -> Cell | str:
    """What `work` measured in a process of its own, or why there is nothing; `out` is a file that is free."""
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        _measure(work, seconds, out)
    _, status = os.waitpid(number, 0)
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) == signal.SIGALRM
        return f"stopped after {seconds:.0f} s" if late else f"ended by signal {os.WTERMSIG(status)}"
    found = json.loads(out.read_text(encoding="utf-8"))
    out.unlink()
    return found if isinstance(found, str) else Cell(*found)


def _measure(work: Callable[[], tuple[float, float]], seconds: float, out: Path) -> NoReturn:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    before = grown()
    try:
        spent, times = work()
        out.write_text(json.dumps([spent / times, max(0.0, grown() - before)]), encoding="utf-8")
    except BaseException as problem:  # whatever it is, the other cells are still to come
        out.write_text(json.dumps(f"{type(problem).__name__}: {problem}"), encoding="utf-8")
    os._exit(0)


def timed(part: Part, folder: Path, size: Size) -> tuple[float, float]:
    """Seconds of all repetitions, and their number."""
    work = part.ready(folder, size)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began, part.times


def made(part: Part, folder: Path, size: Size) -> tuple[float, float]:
    began = time.perf_counter()
    part.make(folder, size)
    return time.perf_counter() - began, 1


def expected(known: Sequence[tuple[int, float]], number: int) -> float:
    """Seconds by the last two sizes that were measured: much of what takes a second takes it whatever the size is."""
    (first, less), (second, more) = known[-2:]
    return more + max(0.0, more - less) * (number - second) / (second - first)


def measure(part: Part, axis: str, numbers: Sequence[int], seconds: float) -> Iterator[Row]:
    """A row for each size of one axis."""
    works: list[tuple[int, float]] = []  # sizes and seconds
    wholes: list[tuple[int, float]] = []  # with those for the files
    late = 0  # the size that was stopped
    for number in numbers:
        size = part.size(axis, number)
        row = {"part": part.name, "axis": axis, **{name: str(value) for name, value in size._asdict().items()}}
        work = whole = 0.0  # nothing is known before two were measured
        if late:
            work = whole = seconds * number / late
        elif axis == "classes" and wholes:
            work, whole = works[-1][1], wholes[-1][1]  # more classes of as many images need not take longer
        elif len(wholes) > 1:
            work, whole = expected(works, number), expected(wholes, number)
        if whole > seconds:
            yield row | {"note": f"left out: {work:.0f} s expected"}
            continue
        folder = Path(tempfile.mkdtemp(prefix="growth-"))
        try:
            files = done = apart(partial(made, part, folder, size), seconds, folder / "made.json")
            if isinstance(files, Cell):
                done = apart(partial(timed, part, folder, size), seconds, folder / "done.json")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(done, str) or isinstance(files, str):
            late = number
            yield row | {"note": str(done)}
        else:
            works.append((number, part.times * done.seconds))
            wholes.append((number, files.seconds + part.times * done.seconds))
            yield row | {"seconds": f"{done.seconds:.3g}", "megabytes": f"{done.megabytes:.0f}"}


def exponent(rows: Sequence[Row], axis: str, value: str) -> float | None:
    """Of the growth of "seconds" or "megabytes" between the last two sizes; None where they are too little to tell."""
    known = [(int(row[axis]), float(row[value])) for row in rows if row.get(value)][-2:]
    if len(known) < 2 or known[1][1] < LEAST[value]:
        return None
    (first, less), (second, more) = known
    return math.log(more / max(less, LEAST[value] / 10)) / math.log(second / first)


def read(path: Path) -> list[Row]:
    """The rows of a table, if it is there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def show(rows: Sequence[Row], axis: str) -> str:
    """One line about one part and axis."""
    cells = [
        f"{int(row[axis]):,}: " + (f"{row['seconds']} s, {row['megabytes']} MB" if row.get("seconds") else row["note"])
        for row in rows
    ]
    exponents = [(exponent(rows, axis, value), value) for value in LEAST]
    grows = ", ".join(f"{power:.2f} of {value}" for power, value in exponents if power is not None)
    return f"{rows[0]['part']:16}{axis:8} {'; '.join(cells)}" + (f"; exponent {grows}" if grows else "")


def busy(load: float) -> str:
    """What is to be said of a machine on which so many processes ran in the last minutes, before anything began."""
    # above the cores there are: up to that, it is what the benchmark itself left behind in the average
    return f", busy with other work (load {load:.0f})" if load > (os.cpu_count() or 1) else ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--axes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--most", type=int, default=10**6, help="images, classes, runs or reports")
    parser.add_argument("--seconds", type=float, default=40.0, help="that a cell may take, its images included")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    os.environ["EPASS_CACHE"] = "off"
    keep_freed_memory()
    facts: dict[str, Any] = environment(0, "", "cpu")
    where = {
        "machine": f"{device_name(CPU)}, {facts['cpu_count']} cores, torch {facts['torch']}{busy(os.getloadavg()[1])}",
        "commit": (facts["commit"] or "")[:12],
    }
    for name in options.parts:
        for axis in (axis for axis in PARTS[name].axes if axis in options.axes):
            numbers = [number for number in SIZES[axis] if number <= options.most]
            found = [row | where for row in measure(PARTS[name], axis, numbers, options.seconds)]
            print(show(found, axis), flush=True)
            kept = [row for row in read(options.out) if (row["part"], row["axis"]) != (name, axis)]
            write(options.out, sorted([*kept, *found], key=lambda row: (row["axis"], [*PARTS].index(row["part"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
