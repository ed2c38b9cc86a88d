"""The error of a model whose labels were suggested, against labels at random.

Twelve labels are given, then twelve more, then twelve more:

    suggested   what `epass suggest DATA` chooses first, then what `epass suggest RUN` chooses
    random      any images
    balanced    any images, equally many of every class: papers do so, and nobody can who has no labels yet

The photos are the features of `scenes`: of its test images 300, drawn anew for every seed, are tested, and the others
can be labeled like the 240 that are; 1,800 stay without a label. The digits are those of scikit-learn, as pixels. A
test image of a class without a label is counted as wrong.

    python benchmarks/suggesting.py --photos scenes --out docs/results/suggest.csv --figure docs/images/suggest.svg
    python benchmarks/suggesting.py --photos scenes --label-errors

What the table has already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch

from epass.data import Dataset, Normalization, Vectors, concatenate, open_dataset
from epass.engine.infer import infer
from epass.engine.models import load_model
from epass.engine.run import run
from epass.evaluation.baselines import logistic_regression
from epass.evaluation.selection import out_of_fold, suspected, typical, uncertain
from epass.features import drained, embed_dataset
from epass.recipe import Recipe, read_recipe

ROUND, ROUNDS = 12, 3
COLUMNS = ("data", "classifier", "labeled", "seed", "labels", "classes", "error")
WAYS = {"logistic regression": ("suggested", "random", "balanced"), "simmatch": ("suggested", "random")}


@dataclass(frozen=True)
class Task:
    """Images to label and images to test with."""

    dataset: Dataset  # with all labels that are known
    recipe: Recipe
    vectors: np.ndarray  # (N, D) of the training images, by which some are chosen
    test: np.ndarray  # (T, D)

    @property
    def truth(self) -> np.ndarray:
        return self.dataset.train.labels.numpy()


def photos(folder: str, seed: int) -> Task:
    """The features of photos; half of the test images join those that can be labeled."""
    recipe = read_recipe("photos-simmatch").with_settings({"data.name": folder})
    images = open_dataset(folder, image_size=recipe.data["image_size"])
    whole = drained(embed_dataset(images, recipe.features, torch.device("cpu")))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole.test)))
    known, test = whole.test.select(order[300:]), whole.test.select(order[:300])
    train = concatenate(plain(whole.train), plain(known))
    dataset = replace(whole, train=train, test=plain(test), train_names=(), test_names=())
    bare = replace(recipe.with_settings({"data.image_size": None}), features=None)
    return Task(dataset, bare, train.pixels.float().numpy(), test.pixels.float().numpy())


def plain(vectors: Vectors) -> Vectors:
    return Vectors(vectors.views, vectors.labels)


def digits(_: str, __: int) -> Task:
    dataset = open_dataset("digits")
    vectors, test = (part.pixels.flatten(1).float().numpy() for part in (dataset.train, dataset.test))
    return Task(dataset, read_recipe("digits-simmatch").with_settings({"data.labels": None}), vectors, test)


DATA: dict[str, Callable[[str, int], Task]] = {"photos": photos, "digits": digits}


def at_random(task: Task, seed: int, balanced: bool) -> list[int]:
    """An order in which images are labeled; balanced: one of every class, then another one of every class."""
    random = np.random.default_rng([seed, 1])
    order = random.permutation(np.flatnonzero(task.truth >= 0)).tolist()
    if not balanced:
        return order
    by_class = {label: [at for at in order if task.truth[at] == label] for label in range(len(task.dataset.classes))}
    return [
        by_class[label][turn] for turn in range(ROUND * ROUNDS) for label in random.permutation(len(by_class)).tolist()
    ]


def by_regression(task: Task, labeled: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of training and test images, and vectors of the training images, by logistic regression."""
    mean, std = task.vectors.mean(0), np.maximum(task.vectors.std(0), 1e-6)
    train, test = ((part - mean) / std for part in (task.vectors, task.test))
    present, labels = np.unique(task.truth[labeled], return_inverse=True)
    probs = logistic_regression(train[labeled], labels, train[:0], np.concatenate([train, test]))
    whole = spread(probs, present, len(task.dataset.classes))
    return whole[: len(train)], whole[len(train) :], task.vectors


def by_simmatch(task: Task, labeled: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same by a run of the recipe, which knows only the classes that have a label."""
    present = np.unique(task.truth[labeled])
    labels = np.full(len(task.truth), -1)
    labels[labeled] = np.searchsorted(present, task.truth[labeled])
    truth = task.dataset.test.labels.numpy()
    known = np.flatnonzero(np.isin(truth, present))
    test = task.dataset.test.select(torch.from_numpy(known))
    dataset = replace(
        task.dataset,
        classes=tuple(task.dataset.classes[label] for label in present),
        train=task.dataset.train.labeled(torch.from_numpy(labels)),
        test=test.labeled(torch.from_numpy(np.searchsorted(present, truth[known]))),
    )
    with tempfile.TemporaryDirectory() as folder:
        for _ in run(task.recipe, Path(folder) / "run", dataset=dataset, device="cpu", allow_leak=True):
            pass
        net, model = load_model(Path(folder) / "run")
    scale = Normalization(tuple(model["mean"]), tuple(model["std"]))
    said = [infer(net, part, scale, torch.device("cpu")) for part in (task.dataset.train, task.dataset.test)]
    probs = [spread(one.logits.double().softmax(1).numpy(), present, len(task.dataset.classes)) for one in said]
    seen = task.vectors if isinstance(task.dataset.train, Vectors) else said[0].features.numpy()
    return probs[0], probs[1], seen


CLASSIFIERS = {"logistic regression": by_regression, "simmatch": by_simmatch}


def spread(probs: np.ndarray, present: np.ndarray, classes: int) -> np.ndarray:
    """Probabilities of all classes, where those that nobody has labeled have none."""
    whole = np.zeros((len(probs), classes))
    whole[:, present] = probs
    return whole


def rounds(task: Task, way: str, classifier: str, seed: int) -> Iterator[tuple[int, int, float]]:
    """Labels, classes among them and test error after every round."""
    candidates = np.flatnonzero(task.truth >= 0)
    order = [] if way == "suggested" else at_random(task, seed, way == "balanced")
    labeled = typical(task.vectors, ROUND, candidates, seed=seed) if way == "suggested" else np.array(order[:ROUND])
    for number in range(1, ROUNDS + 1):
        train, test, seen = CLASSIFIERS[classifier](task, labeled)
        wrong = test.argmax(1) != task.dataset.test.labels.numpy()
        yield len(labeled), len(np.unique(task.truth[labeled])), float(wrong.mean())
        if way == "suggested":
            left = np.setdiff1d(candidates, labeled)
            labeled = np.concatenate([labeled, left[uncertain(seen[left], train[left], ROUND, seed=seed)]])
        else:
            labeled = np.array(order[: ROUND * (number + 1)])


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measure(options: argparse.Namespace) -> None:
    """Run what the table lacks, and write it as soon as a curve is whole."""
    table = read(options.out)
    done = {tuple(row[key] for key in COLUMNS[:4]) for row in table if int(row["labels"]) == ROUND * ROUNDS}
    table = [row for row in table if tuple(row[key] for key in COLUMNS[:4]) in done]
    for seed in range(options.seeds):
        for data in options.data:
            task = DATA[data](options.photos, seed)
            for classifier in options.classifiers:
                for way in WAYS[classifier]:
                    if (key := (data, classifier, way, str(seed))) in done:
                        continue
                    for labels, classes, error in rounds(task, way, classifier, seed):
                        values = (*key, labels, classes, round(error, 6))
                        table.append(dict(zip(COLUMNS, values, strict=True)))
                        print(*values, flush=True)
                    write(options.out, table)


def write(path: Path, table: list[dict[str, Any]]) -> None:
    table.sort(key=lambda row: (*(row[key] for key in COLUMNS[:3]), int(row["seed"]), int(row["labels"])))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def draw(path: Path, table: list[dict[str, Any]]) -> None:
    """Error against labels, a panel for each data set and classifier."""
    from matplotlib.figure import Figure

    colors = {"suggested": "#0072b2", "balanced": "#999999", "random": "#d55e00"}
    panels = list(dict.fromkeys((row["data"], row["classifier"]) for row in table))
    figure = Figure(figsize=(2.6 * len(panels), 2.7), layout="constrained")
    for axes, (data, classifier) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for way, color in colors.items():
            curve: dict[int, list[float]] = {}
            for row in table:
                if (row["data"], row["classifier"], row["labeled"]) == (data, classifier, way):
                    curve.setdefault(int(row["labels"]), []).append(100 * float(row["error"]))
            if curve:
                heights, errors = list(map(fmean, curve.values())), list(map(pstdev, curve.values()))
                axes.errorbar(list(curve), heights, errors, color=color, label=way, capsize=2, marker="o", markersize=3)
        axes.set(title=f"{data}, {classifier}", xlabel="labels", xticks=[ROUND * (n + 1) for n in range(ROUNDS)])
        axes.title.set_fontsize(9)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("test error, %")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def judge_labels(options: argparse.Namespace) -> None:
    """How many labels that were made wrong are found, and how many of those found are wrong."""
    for data in options.data:
        for each in (5, 10, 40):
            scores = []
            for seed in range(options.seeds):
                task, random = DATA[data](options.photos, seed), np.random.default_rng(seed)
                classes = len(task.dataset.classes)
                drawn = [random.choice(np.flatnonzero(task.truth == c), each, replace=False) for c in range(classes)]
                places = np.concatenate(drawn)
                labels = task.truth[places].copy()
                wrong = random.choice(len(places), len(places) // 10, replace=False)
                labels[wrong] = (labels[wrong] + random.integers(1, classes, len(wrong))) % classes
                found = suspected(out_of_fold(task.vectors[places], labels, classes), labels).places
                hits = np.isin(found, wrong).sum()
                scores.append((len(found), hits / len(wrong), hits / max(1, len(found))))
            listed, recall, precision = np.mean(scores, 0)
            print(
                f"{data}, {each} labels a class, {len(wrong)} of {len(places)} wrong: {listed:.1f} listed, "
                f"{recall:.0%} of the wrong ones found, {precision:.0%} of those listed are wrong"
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", default="scenes", help="a folder with labeled, unlabeled and test photos")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--classifiers", nargs="+", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("suggest.csv"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--label-errors", action="store_true")
    options = parser.parse_args(arguments)
    if options.label_errors:
        judge_labels(options)
        return
    measure(options)
    if options.figure:
        draw(options.figure, read(options.out))


if __name__ == "__main__":
    main()
