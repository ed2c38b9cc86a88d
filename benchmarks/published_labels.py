"""Write a split file with the labeled images of CIFAR-10 that InfoMatch's authors drew, so that runs can be compared.

    python benchmarks/published_labels.py cifar-10-batches-py --seed 0 --out runs/infomatch-labels-0.json
    epass train cifar-10-batches-py --recipe cifar10-infomatch --set data.split_file=runs/infomatch-labels-0.json

Their code, like FixMatch's for PyTorch which it follows, seeds NumPy and draws class by class without replacement; the
logs that they published name the seeds. With 40 labels the draw alone makes differences of many points.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epass.data import open_dataset
from epass.data.split.drawing import IntArray, positions_by_class
from epass.data.split.split_file import Positions, split_text
from epass.files import write_atomically


def drawn(labels: IntArray, num_labels: int, num_classes: int, seed: int) -> IntArray:
    """Positions of the labeled images, class by class."""
    random = np.random.RandomState(seed)
    by_class = positions_by_class(labels, num_classes)
    return np.concatenate([random.choice(index, num_labels // num_classes, replace=False) for index in by_class])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="cifar-10-batches-py")
    parser.add_argument("--labels", type=int, default=40, help="how many in all (default 40)")
    parser.add_argument("--seed", type=int, required=True, help="theirs")
    parser.add_argument("--out", type=Path, required=True, help="the split file")
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    assert dataset.test is not None
    known = range(len(dataset.classes))
    labeled = drawn(dataset.train.labels.numpy(), given.labels, len(known), given.seed)
    everything, test = np.arange(len(dataset.train)), np.arange(len(dataset.test))
    text = split_text(dataset, Positions(tuple(known), labeled, everything, everything[:0], test))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(given.out, text.encode())
    print(f"{given.out}: {len(labeled)} labeled images, the first of them number {labeled[0]}")


if __name__ == "__main__":
    main()
