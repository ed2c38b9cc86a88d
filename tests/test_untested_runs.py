"""A run without a test: every label teaches, the model is kept, and whoever wants scores hears that there are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from epass.app.compare import compare
from epass.app.evaluate import evaluate
from epass.app.events import Caution, Notice, Plan, Result
from epass.app.predict import predict
from epass.app.report import report
from epass.app.train import train
from epass.errors import InputError
from epass.runs import load_run

SETTINGS = ("data.holdout=0", "plan.labeled_batch=4", "net.hidden=8", "plan.report_every=2", "plan.evaluate_every=2")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, of which one class has a single label, and a run on them."""
    home = tmp_path_factory.mktemp("untested")
    labels = np.array([0, 0, 0, 1] + [-1] * 8)
    np.savez(home / "rows.npz", vectors=np.random.default_rng(0).normal(size=(12, 3)), labels=labels)
    events = list(train(home / "rows.npz", steps=4, out=home / "run", device="cpu", settings=SETTINGS))
    (plan,) = [event for event in events if isinstance(event, Plan)]
    assert plan.facts["test"] == "none, for data.holdout is 0"
    assert isinstance(events[-1], Result)
    assert [*events[-1].facts] == ["time", "model"]
    return home


def test_every_label_teaches_and_the_model_is_kept(home: Path) -> None:
    run = load_run(home / "run")
    assert run.results is not None
    assert (run.results["labels"], run.results["steps"]) == (4, 4)
    assert not {"last", "best_on_test"} & run.results.keys()
    assert [row["step"] for row in run.metrics] == [2, 4]
    assert not [name for row in run.metrics for name in row if name.startswith("test_")]
    assert not {"predictions.npz", "embeddings.safetensors", "report.html"} & {p.name for p in run.path.iterdir()}
    result = predict(home / "run", home / "rows.npz", out=home / "answers.csv", device="cpu").result()
    assert result.values["images"] == 12


def test_it_can_be_resumed(home: Path) -> None:
    before = (home / "run" / "model.safetensors").read_bytes()
    (home / "run" / "results.json").unlink()
    train(out=home / "run", resume=True, device="cpu").result()
    assert (home / "run" / "model.safetensors").read_bytes() == before
    assert (home / "run" / "results.json").is_file()


def test_it_can_be_gone_on_from(home: Path) -> None:
    events = list(train(earlier=home / "run", steps=2, out=home / "longer", device="cpu"))
    assert Notice("Since then: the same images and labels.") in events
    assert not [event for event in events if isinstance(event, Caution)]
    assert (home / "longer" / "model.safetensors").is_file()


def test_whoever_wants_scores_is_told(home: Path) -> None:
    with pytest.raises(InputError, match=r"was not tested \(data.holdout=0\), so there is nothing to show of it"):
        report([home / "run"], out=home / "page.html").result()
    with pytest.raises(InputError, match=r"kept nothing to test it on \(data.holdout=0\): say what with --data"):
        evaluate(home / "run", device="cpu").result()
    with pytest.raises(InputError, match=r"Runs are compared by a test, and data.holdout=0 leaves nothing to test on"):
        compare(home / "rows.npz", out=home / "all", steps=4, seeds=1, device="cpu", settings=SETTINGS).result()
    assert not list((home / "all").glob("*/recipe.toml"))
