"""Cross-validation over labels: whose label is left out, what is trained, and that nothing of it leaks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from epass.data import Dataset, Images, Split, Vectors
from epass.engine.build import split_for
from epass.engine.crossfit import baseline_out_of_fold, deal, divide_labels, out_of_fold, untaught
from epass.engine.run import run
from epass.errors import InputError
from epass.evaluation.baselines import BASELINES
from epass.recipe import Recipe

T = TypeVar("T")
CPU = torch.device("cpu")


def recipe(**data: Any) -> Recipe:
    return Recipe(
        source="made up for tests",
        data={"name": "made", **data},
        net={"name": "mlp", "hidden": 5},
        method={"name": "simmatch", "warmup_steps": 2},
        projector={"size": 1, "out_dim": 16},
        plan={"steps": 4, "labeled_batch": 8, "unlabeled_ratio": 2, "report_every": 1, "evaluate_every": 3},
    )


def made(labels: Sequence[int] = (0, 1, 2) * 4, unlabeled: int = 12, width: int = 6) -> Dataset:
    """Vectors of three classes, of which the first ones have these labels and the others none."""
    random = torch.Generator().manual_seed(0)
    truth = torch.cat([torch.tensor(labels), torch.full((unlabeled,), -1)])
    means = 2 * torch.randn(4, width, generator=random)  # the last one is that of the images without a label
    vectors = means[truth][:, None] + torch.randn(len(truth), 1, width, generator=random)
    test = Vectors(means[:3][:, None], torch.arange(3))
    noisy = {"weak": "weak-noise", "strong": "strong-noise", "center": (0.0,) * width, "spread": (1.0,) * width}
    return Dataset("made", ("a", "b", "c"), Vectors(vectors, truth), test, (0.0,) * width, (1.0,) * width, noisy)


def drained(steps: Generator[tuple[int, int], None, T]) -> tuple[list[tuple[int, int]], T]:
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            return seen, end.value


def answers(asked: Recipe, dataset: Dataset, split: Split | None = None, folds: int = 3) -> Tensor:
    return drained(out_of_fold(asked, dataset, split or split_for(asked, dataset), CPU, folds=folds))[1]


@pytest.mark.parametrize(
    ("counts", "folds"), [((2,) * 6, 5), ((2, 2), 5), ((7, 2, 3), 2), ((40, 41), 5), ((3, 1, 4), 3)]
)
def test_each_label_is_left_out_once_and_no_fold_takes_a_class(counts: tuple[int, ...], folds: int) -> None:
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    dealt = deal(labels, 3, folds)
    for label, count in enumerate(counts):
        mine = dealt[labels == label]
        assert (mine >= 0).all() if count > 1 else (mine == -1).all()
        assert all((mine != number).any() for number in range(folds))
    sizes = torch.bincount(dealt[dealt >= 0], minlength=folds)
    assert sizes.max() - sizes.min() <= 1


def test_the_seed_decides_about_the_folds() -> None:
    labels = torch.arange(3).repeat(10)
    assert torch.equal(deal(labels, 1, 5), deal(labels, 1, 5))
    assert not torch.equal(deal(labels, 1, 5), deal(labels, 2, 5))
    with pytest.raises(InputError, match=r"at least 2 folds, not 1"):
        deal(labels, 1, 1)


@pytest.mark.parametrize("included", [True, False])
def test_images_that_are_left_out_are_unlabeled_ones(included: bool) -> None:
    asked = recipe(include_labeled=included)
    dataset = made()
    split = split_for(asked, dataset)
    parts = list(divide_labels(split, 0, 3))
    assert sorted(torch.cat([part.left_out for part in parts]).tolist()) == list(range(12))
    for left_out, part in parts:
        assert len(part.labeled) + len(left_out) == 12
        assert part.label_counts == tuple(np.bincount(part.labeled.labels, minlength=3))
        assert torch.equal(part.test.pixels, split.labeled.pixels[left_out])
        assert set(split.positions.labeled[left_out.numpy()]) <= set(part.positions.unlabeled)
        assert not set(split.positions.labeled[left_out.numpy()]) & set(part.positions.labeled)
        assert torch.equal(part.unlabeled.pixels, dataset.train.pixels[part.positions.unlabeled])
        assert torch.equal(part.labeled.pixels, dataset.train.pixels[part.positions.labeled])
        assert (part.unlabeled.labels == -1).all()
        assert len(part.unlabeled) == len(split.unlabeled) + (0 if included else len(left_out))


def test_all_labels_are_answered_and_the_steps_counted() -> None:
    dataset, asked = made(), recipe()
    seen, found = drained(out_of_fold(asked, dataset, split_for(asked, dataset), CPU, folds=3))
    assert seen == [(step, 12) for step in range(1, 13)]
    assert found.shape == (12, 3)
    assert found.isfinite().all()
    assert torch.equal(answers(asked, dataset), found)


def test_a_label_that_is_left_out_changes_no_answer_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, asked = made(), recipe()
    split = split_for(asked, dataset)
    dealt = deal(split.labeled.labels, asked.seed, 3)
    monkeypatch.setattr("epass.engine.crossfit.deal", lambda *_: dealt)  # other labels would be dealt otherwise
    left_out = dealt == 0
    labels = torch.where(left_out, (split.labeled.labels + 1) % 3, split.labeled.labels)
    relabeled = replace(split, labeled=split.labeled.labeled(labels))
    ways: list[Callable[[Split], Tensor]] = [lambda of: answers(asked, dataset, of)]
    ways += [partial(lambda name, of: baseline_out_of_fold(name, dataset, of, 0, folds=3), name) for name in BASELINES]
    for way in ways:
        before, after = way(split), way(relabeled)
        assert torch.equal(before[left_out], after[left_out])
        assert not torch.equal(before[~left_out], after[~left_out])


def test_the_only_label_of_a_class_is_never_left_out() -> None:
    found = answers(recipe(), made((0, 0, 0, 1, 2, 2)), folds=5)
    assert found.isnan().all(1).tolist() == [False, False, False, True, False, False]
    assert found[[0, 1, 2, 4, 5]].isfinite().all()


def test_pixels_are_left_out_like_vectors() -> None:
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (20, 1, 8, 8), generator=random, dtype=torch.uint8)
    labels = torch.tensor([0, 1] * 4 + [-1] * 12)
    dataset = Dataset("made", ("a", "b"), Images(pixels, labels), Images(pixels[:2], labels[:2]), (0.5,), (0.5,), {})
    asked = replace(recipe(), net={"name": "small", "width": 4})
    assert answers(asked, dataset, folds=2).isfinite().all()


def test_baselines_answer_what_they_have_not_seen() -> None:
    dataset = made((0, 1, 2) * 4 + (0,))
    split = split_for(recipe(), dataset)
    for name in BASELINES:
        found = baseline_out_of_fold(name, dataset, split, 0, folds=3)
        assert torch.allclose(found.exp().sum(1), torch.ones(13))
        assert (found.argmax(1) == split.labeled.labels).float().mean() > 0.6


def test_a_run_that_goes_on_hands_its_labels_to_no_fold(tmp_path: Path) -> None:
    """It has learned them, and what it says about them would be no answer."""
    dataset = made()
    asked = recipe()
    for _ in run(asked, tmp_path / "earlier", dataset=dataset, device="cpu"):
        pass
    went_on = replace(asked, start={"weights": str(tmp_path / "earlier"), "continued": True})
    assert torch.equal(answers(went_on, dataset), answers(asked, dataset))
    fine_tuned = replace(went_on, net={**asked.net, "behind": "efficientnet-lite0"})
    with pytest.raises(InputError, match="starts from a model that knows its labels already"):
        answers(fine_tuned, dataset)
    pre_trained = replace(asked, start={"weights": str(tmp_path / "pretrained.safetensors")})
    assert untaught(pre_trained) == pre_trained
