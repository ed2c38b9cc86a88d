"""The labeled images that others drew: a split file that a run takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import published_labels

from epass.data import open_dataset
from epass.data.split.splits import divide


def test_images_are_drawn_as_the_published_code_draws_them() -> None:
    labels = np.random.RandomState(5).randint(0, 10, 1000)
    expected = []
    np.random.seed(3)  # noqa: NPY002 that code has NumPy's one generator, class after class
    for number in range(10):
        expected += np.random.choice(np.where(labels == number)[0], 4, False).tolist()  # noqa: NPY002

    assert published_labels.drawn(labels, 40, 10, 3).tolist() == expected
    assert published_labels.drawn(labels, 40, 10, 4).tolist() != expected


def test_what_is_written_divides_the_data_so(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (90, 8, 8), dtype=np.uint8), np.arange(90) % 3
    data, out = tmp_path / "made.npz", tmp_path / "new" / "labels.json"
    np.savez(data, train_images=images[:60], train_labels=labels[:60], test_images=images[60:], test_labels=labels[60:])

    published_labels.main([str(data), "--labels", "6", "--seed", "1", "--out", str(out)])
    split = divide(open_dataset(str(data)), seed=7, split_file=str(out))

    assert split.positions.labeled.tolist() == published_labels.drawn(labels[:60], 6, 3, 1).tolist()
    assert split.label_counts == (2, 2, 2)
    assert len(split.unlabeled) == 60
    assert len(split.test) == 30
