"""Time and memory of reading, splitting, training, evaluation, report and check, against images and classes.

    python benchmarks/growth.py      # all of it, in six minutes or so; then python docs/results_table.py
    python benchmarks/growth.py --parts split step --seconds 5 --out split.csv

Every number is that of a process of its own, which is forked after everything is imported: the seconds of the work (of
one step, where it is training), and by how much the most memory that the process ever had is above what it began with.
Its images are made before, by another process. A cell that would take more than `--seconds`, by the one before it, is
left out and says so; one that does, in spite of that, is stopped. The exponent is that of the last two sizes: 1 is
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
from epass.app.report import report
from epass.data import Dataset, Images, divide, from_arrays, from_vectors, open_dataset, split_text
from epass.engine.build import build
from epass.engine.infer import predict
from epass.engine.run import run
from epass.evaluation import score
from epass.machine.cpu import keep_freed_memory
from epass.machine.device import device_name
from epass.recipe import Recipe, read_recipe
from epass.runs import environment

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "growth.csv"
SIZES = {"images": (10**3, 10**4, 10**5, 10**6), "classes": (2, 10**2, 10**3, 10**4)}
OTHER = {"images": 10, "classes": 20_000}  # classes while images grow, and images while classes do
LEAST = {"seconds": 0.01, "megabytes": 10.0}  # below, a number says nothing about growth
COLUMNS = ("part", "axis", "images", "classes", "seconds", "megabytes", "note", "machine", "commit")
STEPS, FIRST = 10, 3  # timed, and before them
Row = dict[str, str]
CPU = torch.device("cpu")


class Part(NamedTuple):
    """Something that a user waits for."""

    name: str
    make: Callable[[Path, int, int], object]  # files for so many images and classes
    ready: Callable[[Path, int, int], Callable[[], object]]  # what is timed, ready to start
    times: int = 1  # that it does the same
    answers: int | None = None  # images while classes grow, where the answers alone are images x classes


def nothing(folder: Path, images: int, classes: int) -> None:
    """What is in memory needs no file."""


def pixels(images: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (images, 8, 8), dtype=np.uint8)


def labels(images: int, classes: int) -> np.ndarray:
    return np.arange(images) % classes


def noise(images: int, classes: int) -> Dataset:
    return from_arrays(pixels(images), labels(images, classes), name="noise")


def encoded(images: int, classes: int) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of image files, a few kinds again and again: encoding takes longer than writing."""
    kinds = []
    for picture in pixels(100):
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "png")
        kinds.append(stream.getvalue())
    return ((f"c{label:05d}/{number}.png", kinds[number % 100]) for number, label in enumerate(labels(images, classes)))


def make_folder(folder: Path, images: int, classes: int) -> None:
    for label in range(classes):
        (folder / "data" / f"c{label:05d}").mkdir(parents=True)
    for name, data in encoded(images, classes):
        (folder / "data" / name).write_bytes(data)


def make_archive(folder: Path, images: int, classes: int) -> None:
    with zipfile.ZipFile(folder / "data.zip", "w") as packed:
        for name, data in encoded(images, classes):
            packed.writestr(name, data)


def make_table(folder: Path, images: int, classes: int) -> None:
    make_folder(folder, images, classes)
    lines = (f"data/{name},{name.partition('/')[0]}\n" for name, _ in encoded(images, classes))
    (folder / "data.csv").write_text("path,label\n" + "".join(lines), encoding="utf-8")


def make_npz(folder: Path, images: int, classes: int) -> None:
    np.savez(folder / "data.npz", train_images=pixels(images), train_labels=labels(images, classes))


def make_run(folder: Path, images: int, classes: int) -> None:
    """A run of one step with so many test images."""
    train, test = noise(max(1000, 2 * classes), classes), noise(images, classes).train
    dataset = replace(train, test=Images(255 - test.pixels, test.labels))
    recipe = small("digits-simmatch", classes, images).with_settings({"plan.steps": 1, "plan.evaluate_every": 1})
    list(run(recipe, folder / "run", dataset=dataset, device="cpu", allow_leak=True))


def reads(name: str) -> Callable[[Path, int, int], Callable[[], object]]:
    return lambda folder, images, classes: lambda: open_dataset(str(folder / name), image_size=8)


def splits(folder: Path, images: int, classes: int) -> Callable[[], object]:
    dataset = noise(images, classes)
    return lambda: split_text(dataset, divide(dataset, seed=0, labels=classes).positions)


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


def steps_on_images(folder: Path, images: int, classes: int) -> Callable[[], object]:
    return trains("digits-simmatch", noise(images, classes), images)


def steps_on_vectors(folder: Path, images: int, classes: int) -> Callable[[], object]:
    vectors = np.random.default_rng(0).standard_normal((images, 64), dtype=np.float32)
    return trains("vectors-simmatch", from_vectors(vectors, labels(images, classes)), images)


def evaluates(folder: Path, images: int, classes: int) -> Callable[[], object]:
    experiment = build(small("digits-simmatch", classes, 0), CPU, noise(2 * classes + 100, classes))
    test = Images(torch.from_numpy(pixels(images))[:, None], torch.from_numpy(labels(images, classes)))
    return lambda: score(predict(experiment.network, test, experiment.dataset, CPU), test.labels)


def reports(folder: Path, images: int, classes: int) -> Callable[[], object]:
    # of all runs, maps show at most 2,000 images, and take most of the time
    return lambda: list(report([folder / "run"], out=folder / "report.html", maps=False))


def checks(folder: Path, images: int, classes: int) -> Callable[[], object]:
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


def timed(part: Part, folder: Path, images: int, classes: int) -> tuple[float, float]:
    """Seconds of all repetitions, and their number."""
    work = part.ready(folder, images, classes)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began, part.times


def made(part: Part, folder: Path, images: int, classes: int) -> tuple[float, float]:
    began = time.perf_counter()
    part.make(folder, images, classes)
    return time.perf_counter() - began, 1


def measure(part: Part, axis: str, sizes: Sequence[int], seconds: float) -> Iterator[Row]:
    """A row for each size of one axis."""
    spent = 0.0  # seconds of the size before, with its files
    for size, before in zip(sizes, [0, *sizes], strict=False):
        images = size if axis == "images" else (part.answers or OTHER["classes"])
        classes = size if axis == "classes" else OTHER["images"]
        row = {"part": part.name, "axis": axis, "images": str(images), "classes": str(classes)}
        # more classes of as many images need not take longer
        expected = spent * (size / before if axis == "images" else 1) if before else 0.0
        if expected > seconds:
            spent = expected
            yield row | {"note": f"left out: {expected:.0f} s expected"}
            continue
        folder = Path(tempfile.mkdtemp(prefix="growth-"))
        try:
            files = done = apart(partial(made, part, folder, images, classes), seconds, folder / "made.json")
            if isinstance(files, Cell):
                done = apart(partial(timed, part, folder, images, classes), seconds, folder / "done.json")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(done, str) or isinstance(files, str):
            spent = seconds
            yield row | {"note": str(done)}
        else:
            spent = files.seconds + part.times * done.seconds
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--axes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--most", type=int, default=10**6, help="images or classes")
    parser.add_argument("--seconds", type=float, default=40.0, help="that a cell may take, its images included")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    os.environ["EPASS_CACHE"] = "off"
    keep_freed_memory()
    facts: dict[str, Any] = environment(0, "", "cpu")
    where = {
        "machine": f"{device_name(CPU)}, {facts['cpu_count']} cores, torch {facts['torch']}",
        "commit": (facts["commit"] or "")[:12],
    }
    for name in options.parts:
        for axis in options.axes:
            sizes = [size for size in SIZES[axis] if size <= options.most]
            found = [row | where for row in measure(PARTS[name], axis, sizes, options.seconds)]
            print(show(found, axis), flush=True)
            kept = [row for row in read(options.out) if (row["part"], row["axis"]) != (name, axis)]
            write(options.out, sorted([*kept, *found], key=lambda row: (row["axis"], [*PARTS].index(row["part"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
