"""Labels only beside a run: by which labels the two are compared, which model is kept, and what is said."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from epass.app.events import Plan, Progress, Result, Section
from epass.app.request import Request
from epass.app.train import line_to_go_on, train
from epass.engine import guard as module
from epass.engine.models import load_model
from epass.errors import InputError
from epass.report import group_runs, guard_sentences
from epass.report.page import render
from epass.runs import RunFolder, load_run

CENTERS = np.random.default_rng(0).normal(scale=2, size=(3, 8))


def cloud(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % 3
    noise = np.random.default_rng(seed).normal(size=(count, 8))
    return (CENTERS[labels] + noise).astype(np.float32), labels


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    (vectors, labels), (test, answers) = cloud(90, 0), cloud(30, 1)
    np.savez("songs.npz", train_vectors=vectors, train_labels=labels, test_vectors=test, test_labels=answers)


def trained(labels: int = 12, **said: Any) -> tuple[dict[str, str], str, Result]:
    """The plan, the sentence and the result of a short run."""
    settings = ["plan.unlabeled_ratio=1", "plan.labeled_batch=8", "net.hidden=8", *said.pop("settings", ())]
    said = {"method": "fixmatch", "steps": 8, "guard": True, "out": "run", **said}
    events = list(train("songs.npz", labels=labels, device="cpu", settings=settings, **said))
    plan, result = events[0], events[-1]
    assert isinstance(plan, Plan)
    assert isinstance(result, Result)
    return dict(plan.facts), " ".join(event.title for event in events if isinstance(event, Section)), result


def missing(*wrong: int) -> Any:
    """A cross-validation in which the run, then labels only, miss so many labels."""
    left = list(wrong)

    def answers(recipe: Any, dataset: Any, split: Any, device: Any) -> Generator[tuple[int, int], None, Tensor]:
        yield 1, 1
        truth = split.labeled.labels
        missed = torch.arange(len(truth)) < left.pop(0)
        return torch.nn.functional.one_hot((truth + missed) % 3, 3).float()

    return answers


def test_labels_are_left_out_in_turn_where_nothing_is_kept_for_validation() -> None:
    plan, sentence, _ = trained()
    assert plan["guard"] == (
        "labels only is trained beside it, then both 5 times with 2 steps, each time without a fifth of the labels, "
        "which say which one is kept; --no-guard leaves it out"
    )
    found = json.loads(Path("run/results.json").read_text())["guard"]
    assert (found["basis"], found["labels"]) == ("cross-validation", 12)
    assert found["gap"]["value"] == pytest.approx(found["method"]["value"] - found["labels_only"]["value"])
    assert found["test"]["method"] == json.loads(Path("run/results.json").read_text())["last"]
    assert sentence == " ".join(guard_sentences(load_run("run").results))
    assert "of the 12 labels left out in turn, the model misses " in sentence


def test_the_steps_beside_a_run_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.features.BEAT", -1.0)
    said: dict[str, Any] = {"method": "fixmatch", "steps": 8, "guard": True, "device": "cpu", "labels": 12}
    events = train("songs.npz", settings=["plan.labeled_batch=8", "net.hidden=8"], **said)
    steps = [(event.step, event.steps) for event in events if isinstance(event, Progress) and event.what != "step"]
    assert steps == [(step, 28) for step in range(1, 29)]  # 8, and twice 5 times 2


def test_validation_images_decide_where_there_are_some() -> None:
    plan, sentence, _ = trained(30, settings=["data.validation=0.4"])
    assert plan["guard"].startswith("labels only is trained beside it, and the better one on the validation images")
    assert "of the 12 labels kept for validation" in sentence
    found = json.loads(Path("run/results.json").read_text())
    assert found["guard"]["basis"] == "validation"
    predictions = np.load("run/predictions.npz")
    wrong = predictions["validation_logits"].argmax(1) != predictions["validation_labels"]
    assert found["guard"]["method"]["value"] == pytest.approx(wrong.mean())


def test_a_model_that_is_worse_makes_room_for_labels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "out_of_fold", missing(6, 1))
    _, sentence, result = trained(projectors=3, method="simmatch")
    assert sentence.startswith(
        "The unlabeled images did not help, and the run keeps the model of labels only: of the 12 labels left out in "
        "turn, the model misses 50.0 % and labels only 8.3 %, a difference of +41.7 points (95 % interval +"
    )
    run = load_run("run")
    assert run.results is not None
    assert run.results["guard"]["kept"] == "labels only"
    assert run.results["last"] == run.results["guard"]["test"]["labels_only"]
    assert result.values["results"]["last"] == run.results["last"]
    assert run.model is not None
    assert (run.model["method"], run.model["projector"]) == ({"name": "supervised"}, None)
    assert group_runs([run])[0].label == "labels only"
    assert [row["step"] for row in run.metrics] == [8]
    assert run.wrong is not None
    assert run.wrong.mean() == pytest.approx(run.results["last"]["error"])
    net, _ = load_model("run")
    assert net(torch.zeros(1, 8)).logits.shape == (1, 3)
    page = render([run], "guarded")
    assert "did not help, and the run keeps the model of labels only" in page
    again = list(train(out="run", resume=True, device="cpu", guard=False))  # its files go on to be those of its recipe
    assert isinstance(again[-1], Result)
    assert group_runs([load_run("run")])[0].label == "SimMatch + EPASS (3)"


def test_a_difference_that_may_be_luck_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "out_of_fold", missing(4, 1))
    _, sentence, _ = trained()
    assert sentence.startswith("So few labels cannot tell whether the unlabeled images helped, and the run keeps its")
    run = load_run("run")
    assert run.results is not None
    assert run.results["guard"]["kept"] == "method"
    assert group_runs([run])[0].label == "FixMatch"
    monkeypatch.setattr(module, "out_of_fold", missing(1, 7))
    assert trained(out="better")[1].startswith("The unlabeled images helped: of the 12 labels left out in turn")


def test_guards_stand_by_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.guard.uses_features", lambda recipe: True)
    plan, sentence, _ = trained(guard=None)
    assert "fewer than 30 labels decide nothing unless you say --guard" in plan["guard"]
    assert re.fullmatch(
        r"On the test images [\d.]+ % are wrong with the unlabeled images and [\d.]+ % without. The run keeps its "
        "model: "
        "test images must not decide, and 12 labels that all were trained on cannot; --guard leaves some out in turn, "
        "which takes longer.",
        sentence,
    )
    assert " are wrong with the unlabeled images and " in sentence
    assert "left out in turn" in trained(30, guard=None, out="more")[1]
    for said in ({"guard": False}, {"guard": None, "method": "supervised"}):
        plan, sentence, _ = trained(out=f"off-{said.get('method')}", **said)
        assert ("guard" in plan, sentence) == (False, "")


def test_a_guard_needs_something_to_guard() -> None:
    plan, sentence, _ = trained(guard=None)  # vectors of one's own are no photos
    assert ("guard" in plan, sentence) == (False, "")
    with pytest.raises(InputError, match=r"this run learns from no unlabeled images itself: leave it out\.$"):
        trained(method="supervised", out="none")


def test_whoever_goes_on_is_told_of_the_guard() -> None:
    lines = [line_to_go_on(Request("songs.npz", guard=said), RunFolder("run")) for said in (None, True, False)]
    assert lines == [f"epass train --resume --out run{flag}" for flag in ("", " --guard", " --no-guard")]


def test_a_budget_for_vectors_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.budget.TRIED", 0.0)
    settings = ["plan.unlabeled_ratio=1", "plan.labeled_batch=4", "net.hidden=4"]
    events = train("songs.npz", labels=6, method="supervised", budget="1h", device="cpu", settings=settings)
    plan = next(event for event in events if isinstance(event, Plan))
    assert plan.facts["steps"].startswith("300, ")
    assert plan.facts["budget"] == "60 min at most: 300 steps take less, and on vectors more teach nothing"


@pytest.mark.parametrize(
    ("key", "value"), [("kept", 3), ("labels", -1), ("test", {}), ("gap", {"value": "?"}), ("method", [])]
)
def test_a_guard_that_no_run_writes_is_refused(key: str, value: Any) -> None:
    trained(guard=False, steps=1)
    path = Path("run/results.json")
    sides = {"method": {"error": 0.5}, "labels_only": {"error": 0.5}}
    sound = {"kept": "method", "basis": "nothing", "labels": 12, "test": sides}
    results = json.loads(path.read_text())
    path.write_text(json.dumps(results | {"guard": sound}))
    assert guard_sentences(load_run("run").results)
    path.write_text(json.dumps(results | {"guard": sound | {key: value}}))
    with pytest.raises(InputError, match=r"results\.json' is damaged: it"):
        load_run("run")
