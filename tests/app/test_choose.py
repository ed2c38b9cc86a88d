"""A choice among the ways of a comparison: by labels that are left out, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from epass.app.compare import compare
from epass.app.events import Caution, Event, Notice, Progress, Result, Section, Table
from epass.errors import InputError
from epass.evaluation.baselines import BASELINES
from epass.training.window import NotFiniteError

SHORT: dict[str, Any] = {"labels": 12, "steps": 8, "seeds": 1, "device": "cpu", "out": "out", "choose": True}
SMALL = ["net.hidden=8", "plan.labeled_batch=8", "plan.unlabeled_ratio=1"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)  # a few steps teach nothing
    random = np.random.default_rng(0)
    labels = np.arange(120) % 3
    vectors = (2 * np.eye(3, 8)[labels] + random.normal(size=(120, 8))).astype(np.float32)
    arrays = {"train_vectors": vectors[:90], "train_labels": labels[:90]}
    np.savez("songs.npz", **arrays, test_vectors=vectors[90:], test_labels=labels[90:])


def compared(methods: str = "simmatch,fully_supervised", **said: Any) -> tuple[list[Event], Result]:
    *events, result = compare("songs.npz", methods=methods, settings=SMALL, **SHORT | said)
    assert isinstance(result, Result)
    return events, result


def section(events: list[Event]) -> str:
    return [event.title for event in events if isinstance(event, Section)][-1]


def test_the_labels_of_the_first_seed_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.features.BEAT", -1.0)
    events, result = compared(seeds=2)
    cost = "Then each is trained 5 times more, with 2 steps, each time without a fifth of the 12 labels of seed 0: "
    assert Notice(f"{cost}these choose one.") in events
    steps = [(event.step, event.steps) for event in events if isinstance(event, Progress) and event.what != "step"]
    assert steps[-1] == (20, 20)  # labels only and SimMatch, 5 times 2 each; baselines take no steps
    table = [event for event in events if isinstance(event, Table)][-1]
    names = {row[0] for row in table.rows}  # all labels are not for those who have 12
    assert names == {"labels only", "SimMatch", "logistic regression", "nearest neighbors", "label spreading"}
    choice = result.values["choice"]
    assert choice["run"] == "simmatch-0"
    assert result.following == "epass predict out/simmatch-0 PHOTOS"
    assert set(choice["left_out"]) == {f"{name}-0" for name in ("supervised", "simmatch", *BASELINES)}
    assert choice["left_out"]["simmatch-0"]["labels"] == 12
    assert json.loads(Path("out/comparison.json").read_text())["choice"] == choice
    told = section(events)
    assert told.startswith(
        "Chosen by 12 labels left out in turn: SimMatch, the method that epass train takes by default: no other way is "
        "better by more than luck. It misses "
    )
    assert "its test error, which decided nothing, is " in told


def test_nothing_is_trained_twice_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compared()[1].values["choice"]
    monkeypatch.setattr("epass.engine.crossfit.out_of_fold", None)
    assert compared()[1].values["choice"] == first
    Path("out/left_out.json").write_text("[]")
    with pytest.raises(TypeError):
        compared()


def test_test_images_choose_nothing() -> None:
    chosen = compared()[1].values["choice"]
    arrays = dict(np.load("songs.npz"))
    arrays["test_labels"] = (arrays["test_labels"] + 1) % 3
    np.savez("songs.npz", **arrays)
    again = compared(out="other")[1].values["choice"]
    for choice in (chosen, again):
        for entry in choice["left_out"].values():
            entry.pop("test_error")
    assert again == chosen


def test_what_is_better_by_more_than_luck_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(recipe: Any, dataset: Any, split: Any, device: Any) -> Any:
        yield 1, 1
        if recipe.method["name"] == "fixmatch":
            raise NotFiniteError("The loss was not finite at step 1.")
        wrong = recipe.method["name"] == "simmatch"
        return torch.nn.functional.one_hot((split.labeled.labels + wrong) % 3, 3).float()

    monkeypatch.setattr("epass.engine.crossfit.out_of_fold", answers)
    events, result = compared("simmatch,fixmatch")
    assert result.values["choice"]["run"] == "supervised-0"
    assert result.values["choice"]["more_than_luck"]
    assert "labels only, which is better than SimMatch by more than luck" in section(events)
    reason = "The loss was not finite at step 1."
    assert Caution(f"fixmatch-0 has no part in the choice: {reason}") in events


def test_without_the_usual_way_the_fewest_mistakes_count() -> None:
    events, result = compared("pi_model")
    choice = result.values["choice"]
    lowest = min(entry["value"] for entry in choice["left_out"].values())
    assert choice["left_out"][choice["run"]]["value"] == lowest
    assert "which misses the fewest; the difference to the others may be luck" in section(events)


def test_single_labels_cannot_be_left_out() -> None:
    with pytest.raises(InputError, match=r"^No class has two labels, of which one could be left out: use more"):
        compared(labels=3)
