from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from epass.runs import Embeddings, Predictions, Run, RunFolder, write_embeddings

CLASSES = ["cat", "dog", "ship"]


@pytest.fixture(scope="session")
def make_run():
    """A run that never was: learning curves, predictions and results around one final error."""

    def make(method="simmatch", size=1, seed=0, error=0.1, *, finished=True, classes=CLASSES, **changes) -> Run:
        generator = np.random.default_rng(seed)
        recipe = {
            "format": 1,
            "source": "made up",
            "seed": seed,
            "data": {"name": "cifar10", "num_labeled": 40},
            "net": {"name": "small"},
            "method": {"name": method},
            "plan": {"steps": 400, "report_every": 50},
        }
        if size > 1:
            recipe["projector"] = {"size": size}
        for name, value in changes.items():
            table, _, key = name.partition("__")
            recipe[table] = {**recipe[table], key: value}
        metrics = []
        for step in range(50, 401, 50):
            row = {"step": step, "seconds": step / 10, "loss_labeled": 1 / step, "lr": 0.03}
            if "supervised" not in method:
                row |= {"loss_unlabeled": 0.5, "coverage": step / 400, "quality": 1 - error}
            if size > 1:
                row["head_cosine"] = 0.3
            row["loss"] = row["loss_labeled"] + row.get("loss_unlabeled", 0)
            if step % 100 == 0:
                row["test_error"] = error + 10 / step
                if "supervised" not in method:
                    row |= {f"{name}_by_class": [0.1] * len(classes) for name in ("used", "known", "right", "images")}
            metrics.append(row)
        labels = np.arange(60) % len(classes)
        logits = generator.normal(size=(60, len(classes))).astype(np.float32) + 2 * np.eye(len(classes))[labels]
        return Run(
            path=Path(f"runs/{method}-{size}-{seed}"),
            name=f"{method}-{size}-{seed}",
            recipe=recipe,
            environment={"seed": seed, "command": f"epass train --seed {seed}", "torch": "2.13.0", "commit": "abc123"},
            metrics=metrics,
            results={
                "steps": 400,
                "seconds": 600.0 + seed,
                "last": {"error": error, "ece": 0.05, "nll": 0.4},
                "best_on_test": {"step": 300, "error": error - 0.01},
            }
            if finished
            else None,
            model={"classes": list(classes)} if finished else None,
            predictions=Predictions(logits.astype(np.float32), labels) if finished else None,
        )

    return make


@pytest.fixture(scope="session")
def pictured(make_run, tmp_path_factory):
    """A run in a folder that kept every second test image: blobs of features, and pictures whose color is the class."""

    def make(method="simmatch", size=3, seed=0, *, embedding=True, channels=3, classes=CLASSES, **more) -> Run:
        run = make_run(method, size, seed, classes=classes, **more)
        home = tmp_path_factory.mktemp("pictured") / run.name
        home.mkdir()
        generator, labels = np.random.default_rng(0), run.predictions.labels
        predicted = run.predictions.logits.argmax(1)
        chosen, mistakes = np.arange(0, 60, 2), np.flatnonzero(predicted != labels)
        blobs = (np.eye(len(classes), 8)[labels[chosen]] * 4 + generator.normal(size=(30, 8))).astype(np.float16)
        tones = (labels * 60 + 60).astype(np.uint8)[:, None, None, None] * np.ones((1, channels, 8, 6), np.uint8)
        kept = Embeddings(chosen, blobs, blobs[:, :4] if embedding else None, tones[chosen], mistakes, tones[mistakes])
        write_embeddings(RunFolder(home), kept)
        return replace(run, path=home)

    return make


@pytest.fixture(scope="session")
def make_runs(make_run):
    """One run per error, with seeds 0, 1, ..."""
    return lambda method, errors, size=1, **more: [
        make_run(method, size, seed, error, **more) for seed, error in enumerate(errors)
    ]
