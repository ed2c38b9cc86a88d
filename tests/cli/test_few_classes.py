"""Problems of two and of three classes, from the files to the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import Epass
from PIL import Image
from sklearn import metrics

from epass.data.read.arrays import from_arrays
from epass.engine.build import build
from epass.engine.infer import predict
from epass.evaluation import score
from epass.methods import METHODS
from epass.recipe import arguments, read_recipe

SHORT = ("--steps", "12", "--set", "plan.labeled_batch=6", "--set", "plan.unlabeled_ratio=2")


def pictures(num_classes: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright band, whose place is the class; 16 x 16 gray."""
    generator = np.random.default_rng(num_classes)
    labels = np.arange(num_classes * each) % num_classes
    pixels = generator.integers(0, 90, size=(len(labels), 16, 16))
    for image, label in zip(pixels, labels, strict=True):
        image[3 + 4 * label : 6 + 4 * label] += 150
    return pixels.astype(np.uint8), labels


def write(place: Path, kind: str, num_classes: int) -> Path:
    images, labels = pictures(num_classes, each=30)
    if kind == "npz":
        parts = {"train": slice(None, -20), "test": slice(-20, None)}
        arrays = {f"{part}_images": images[rows] for part, rows in parts.items()}
        np.savez(place / "bands.npz", **arrays, **{f"{part}_labels": labels[rows] for part, rows in parts.items()})
        return place / "bands.npz"
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = place / "bands" / f"band-{label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return place / "bands"


@pytest.mark.parametrize(("kind", "num_classes"), [("folder", 2), ("npz", 3)])
def test_a_model_is_trained_scored_and_reported(epass: Epass, tmp_path: Path, kind: str, num_classes: int) -> None:
    data = write(tmp_path, kind, num_classes)
    labels = str(4 * num_classes)
    answer = epass(
        "train", data, "--labels", labels, "--method", "simmatch", "--projectors", "3", *SHORT, "--out", "run"
    )
    assert answer.code == 0, answer.err
    assert f"{num_classes} classes" in answer.out

    answer = epass("evaluate", "run", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["scores"]
    with np.load("run/predictions.npz") as kept:
        logits, truth = kept["logits"].astype(np.float64), kept["labels"]
    assert logits.shape[1] == num_classes
    predicted, probs = logits.argmax(1), np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    areas = [metrics.roc_auc_score(truth == label, probs[:, label]) for label in range(num_classes)]
    assert found["auc"] == pytest.approx(np.mean(areas), abs=1e-6)
    assert found["error"] == pytest.approx(1 - metrics.accuracy_score(truth, predicted))
    assert found["f1"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro", zero_division=0))
    assert "top5_error" not in found

    answer = epass("report", "run", "--card", "card.md")
    assert answer.code == 0, answer.err
    page = Path("report.html").read_text(encoding="utf-8")
    assert "reliability" in page.lower()
    assert "confusion" in page.lower()
    names = [f"band-{label}" if kind == "folder" else str(label) for label in range(num_classes)]
    assert all(name in page for name in names)
    assert Path("card.md").stat().st_size


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, num_classes: int) -> None:
    images, labels = pictures(num_classes, each=20)
    settings = {"data.name": "bands", "data.labels": 4 * num_classes, "net.width": 4, "data.image_size": 16}
    plan = {"plan.steps": 4, "plan.labeled_batch": 6, "plan.unlabeled_ratio": 1}
    warm = {"method.warmup_steps": 0} if "warmup_steps" in arguments(METHODS[method]) else {}
    recipe = read_recipe(f"folder-{method}").with_settings(settings | plan | warm)
    experiment = build(recipe, torch.device("cpu"), from_arrays(images, labels))
    step, feed = experiment.pipeline
    for number in range(2):
        outcome = step(feed(number))
        assert all(loss.isfinite() for loss in outcome.losses.values())
    logits = predict(experiment.network, experiment.split.test, experiment.dataset, experiment.device)
    assert logits.shape == (len(experiment.split.test), num_classes)
    assert score(logits, experiment.split.test.labels)["nll"] > 0
