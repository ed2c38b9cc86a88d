"""In which order should images be labeled? Logistic regression on labels that were chosen in five ways.

The first 12 are typical images, each of which stands for a group. Then, six at a time: images at random, more typical
ones, those the model hesitates about, or half of them at random (a fair sample, by which one can measure the accuracy)
and half typical or doubtful. The error is that of all images without a label, the mean over seeds.

    python benchmarks/label_order.py digits|FOLDER [--seeds 3] [--stops 12 30 60 120]

Of a folder, images in class folders count. `epass.labeling.teach` chooses by what this shows.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epass.app.flags import go_on
from epass.app.pools import pool_of_data
from epass.evaluation.baselines import logistic_regression
from epass.evaluation.selection import standardized, typical, uncertain
from epass.machine.device import choose_device

FIRST, TOGETHER = 12, 6
Rows = NDArray[np.int64]
WAYS = {
    "random": ("random",),
    "typical": ("typical",),
    "doubtful": ("doubtful",),
    "random + typical": ("random", "typical"),
    "random + doubtful": ("random", "doubtful"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stops", type=int, nargs="+", default=[12, 30, 60, 120])
    asked = parser.parse_args()
    vectors, labels = read(asked.data)
    print(f"{len(labels):,} images; error in % after so many labels: {', '.join(map(str, asked.stops))}")
    for way, parts in WAYS.items():
        found = [label_in_order(vectors, labels, parts, seed, asked.stops) for seed in range(asked.seeds)]
        print(f"{way:18}", *(f"{100 * error:5.1f}" for error in np.mean(found, axis=0)), flush=True)


def read(data: str) -> tuple[NDArray[Any], Rows]:
    """Vectors and labels of all images that have one."""
    if data == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.data.astype(np.float32), digits.target
    with tempfile.TemporaryDirectory() as folder:
        for file in Path(data).rglob("*"):
            if file.is_file() and file.parent.name != "unlabeled":
                home = Path(folder, file.parent.name)
                home.mkdir(exist_ok=True)
                shutil.copy2(file, home / f"{file.parent.parent.name}-{file.name}")
        pool = ended(pool_of_data(folder, None, True, choose_device("auto"), go_on, None))
    known = pool.labels >= 0
    return pool.vectors[known].astype(np.float32), pool.labels[known]


def ended(work: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def label_in_order(
    vectors: NDArray[Any], labels: Rows, parts: tuple[str, ...], seed: int, stops: list[int]
) -> list[float]:
    """The errors at the stops."""
    everything, scaled = np.arange(len(labels)), standardized(vectors)
    order = np.random.default_rng(seed).permutation(len(labels))
    known, errors = typical(vectors, FIRST, everything, seed=seed), []
    while True:
        classes, numbers = np.unique(labels[known], return_inverse=True)
        probs = logistic_regression(scaled[known], numbers, scaled[:0], scaled)
        left = np.setdiff1d(everything, known)
        if len(known) in stops:
            errors.append(float((classes[probs.argmax(1)] != labels)[left].mean()))
        if len(known) >= max(stops):
            return errors
        for part in parts:
            count, left = TOGETHER // len(parts), np.setdiff1d(everything, known)
            if part == "random":
                chosen = order[np.isin(order, left)][:count]
            elif part == "typical":
                chosen = typical(vectors, count, left, known, seed=seed)
            else:
                chosen = left[uncertain(vectors[left], probs[left], count)]
            known = np.concatenate([known, chosen])


if __name__ == "__main__":
    main()
