"""What others would do with the same features and labels, as runs: tables, verdicts and pages take them like others."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..augment import normalize
from ..data import Dataset, Split
from ..data.dataset import Scale
from ..evaluation import score
from ..evaluation.baselines import BASELINES
from ..recipe import Recipe
from ..runs import RunFolder
from .build import split_for
from .run import results_of, write_beginning


def answer(name: str, split: Split, scale: Scale) -> NDArray[np.float64]:
    """What one of `BASELINES` says about the test vectors of a split: probabilities (N, C)."""
    mean, std = torch.tensor(scale.mean), torch.tensor(scale.std)
    labeled, unlabeled, test = (
        normalize(source.pixels, mean, std).numpy() for source in (split.labeled, split.unlabeled, split.test)
    )
    return BASELINES[name].answer(labeled, split.labeled.labels.numpy(), unlabeled, test)


def baseline_recipe(recipe: Recipe, name: str) -> Recipe:
    """The recipe of a baseline on the data of another one."""
    return replace(recipe, method={"name": name}, projector=None, wrapper=None, start=None)


def run_baseline(recipe: Recipe, home: RunFolder, dataset: Dataset, command: str) -> None:
    """Fit the baseline that a recipe names, in its folder; a finished run is left as it is."""
    if home.exists() and (home.path / "results.json").is_file():
        return
    name, split = str(recipe.method["name"]), split_for(replace(recipe, method={"name": "supervised"}), dataset)
    with home.hold():
        home.create(force=True)
        write_beginning(home, recipe, dataset, split, command, torch.device("cpu"))
        began = time.perf_counter()
        probs = answer(name, split, dataset)
        seconds = round(time.perf_counter() - began, 3)
        logits = torch.from_numpy(np.log(probs)).float()
        scores = score(logits, split.test.labels)
        names = {name: BASELINES[name].display_name}
        row = {"step": 1, "seconds": seconds, **{f"test_{key}": value for key, value in scores.items()}}
        home.append_metrics(row)
        home.write_json("model.json", {"classes": split.classes, "names": names})
        home.write_predictions(logits.numpy(), split.test.labels.numpy())
        home.write_json("results.json", results_of(split, scores, row, steps=1, seconds=seconds))
