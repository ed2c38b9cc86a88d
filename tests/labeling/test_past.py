"""Runs on the photos of a project, wherever they were started, are found and told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epass.errors import InputError
from epass.labeling import past as module
from epass.labeling.past import Past, is_held
from epass.runs import RunFolder
from epass.runs.lock import LOCK
from photo_project import Folder, make_folder, train_small

WITHOUT_TORCH = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
sys.modules["torch"] = None
from epass.labeling.past import Past
past = Past(SimpleNamespace(folder=Path("photos"), names=json.loads(sys.argv[1])), Path("runs"))
names = [run["name"] for run in past.runs()]
json.dumps([past.runs(), past.run(names[0]), past.pair(*names[:2])], allow_nan=False)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Two finished runs, one of labels only, and one on other images."""
    home = tmp_path_factory.mktemp("past")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPASS_CACHE", str(home / "cache"))
        patch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
        patch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)  # a few steps teach nothing
        found = make_folder(home, patch)
        train_small(home / "runs" / "ours", "photos", command="epass train photos")
        train_small(home / "runs" / "compare" / "labels-only", "photos", method="supervised")
        yield found


@pytest.fixture
def past(project: Folder, monkeypatch: pytest.MonkeyPatch) -> Past:
    monkeypatch.chdir(project.folder.parent)
    return Past(project, Path("runs"))


def test_runs_of_these_photos_are_listed_and_no_others(past: Past, project: Folder) -> None:
    other = RunFolder("runs/other")
    other.path.mkdir()
    recipe = Path("runs/ours/recipe.toml").read_text()
    other.write_text("recipe.toml", recipe.replace(str(project.folder), "digits"))
    other.write_text("environment.json", "{}")
    Path("runs/nothing").mkdir()
    Path("runs/linked").symlink_to("ours")
    found = {run["name"]: run for run in past.runs()}
    assert found.keys() == {"ours", "compare/labels-only"}
    ours = found["ours"]
    assert (ours["state"], ours["title"], ours["step"], ours["steps"]) == ("finished", "simmatch", 6, 6)
    assert ours["labels"] == 8
    assert 0 <= ours["error"] <= 1
    with pytest.raises(InputError, match=r"Unknown run '../photos'"):
        past.find("../photos")


def test_a_run_that_has_just_begun_shows_up_and_how_far_it_is(past: Past) -> None:
    home = RunFolder("runs/begun")
    home.path.mkdir()
    home.write_text("environment.json", '{"started": "2999"}')
    assert "begun" not in {run["name"] for run in past.runs()}
    home.write_text("recipe.toml", Path("runs/ours/recipe.toml").read_text())
    with home.hold():
        assert past.runs()[0]["name"] == "begun"  # the newest first
        assert (past.runs()[0]["state"], past.runs()[0]["step"]) == ("running", 0)
        home.append_metrics({"step": 3, "seconds": 1.0, "test_error": 0.25})
        assert (past.runs()[0]["step"], past.runs()[0]["error"]) == (3, 0.25)
        assert past.run("begun")["confusion"] is None
    assert past.runs()[0]["state"] == "stopped"
    (home.path / "recipe.toml").write_text("damaged")
    assert "begun" not in {run["name"] for run in past.runs()}


def test_a_lock_that_a_dead_process_left_behind_holds_nothing(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for owner in (str(gone.pid), "", "no number", "9" * 19, str(os.getpid())):  # the last: the number came again
        (tmp_path / LOCK).write_text(owner)
        assert not is_held(tmp_path)


def test_nothing_is_read_again_that_has_not_changed(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    before = past.runs()
    monkeypatch.setattr(module, "read_limited", None)
    assert past.runs() == before


def test_one_run_tells_its_curve_scores_confusion_and_mistakes(past: Past, project: Folder) -> None:
    run: dict[str, Any] = past.run("ours")
    json.dumps(run, allow_nan=False)
    assert run["command"] == "epass train photos"
    assert run["recipe"]["plan.steps"] == 6
    assert run["curve"]["step"] == [1, 2, 3, 4, 5, 6]
    assert run["curve"]["test_error"][-1] == run["error"]
    scores = {score["key"]: score for score in run["scores"]}
    assert scores["error"]["value"] == run["error"]
    assert scores["error"]["text"].endswith(" %")
    images = sum(map(sum, run["confusion"]["matrix"]))
    assert images == run["reliability"]["images"] == sum(part["count"] for part in run["reliability"]["bins"])
    wrong = round(run["error"] * images)
    assert len(run["mistakes"]) == wrong
    for mistake in run["mistakes"]:
        assert project.names[mistake["id"]] == mistake["name"]
        assert mistake["name"].startswith(f"{mistake['truth']}/")
        assert mistake["guess"] != mistake["truth"]
    assert "recipe.toml" in run["files"]


def test_labels_only_stand_beside_the_scores_where_a_guard_has_them(past: Past) -> None:
    results = json.loads(Path("runs/ours/results.json").read_text())
    part = {"error": 0.25, "accuracy": 0.75}
    guard = {"kept": "method", "basis": "none", "labels": 8, "test": {"method": part, "labels_only": part}}
    RunFolder("runs/ours").write_json("results.json", {**results, "guard": guard})
    try:
        run = past.run("ours")
        assert next(one["labels_only_text"] for one in run["scores"] if one["key"] == "error") == "25.00 %"
        assert run["labels_only_error"] == 0.25
        assert "without" in run["guard"]
    finally:
        RunFolder("runs/ours").write_json("results.json", results)


def test_two_runs_are_compared_on_the_images_of_both(past: Past, project: Folder) -> None:
    pair = past.pair("ours", "compare/labels-only")
    json.dumps(pair, allow_nan=False)
    assert pair["images"] == past.run("ours")["reliability"]["images"]
    assert [run["name"] for run in pair["runs"]] == ["ours", "compare/labels-only"]
    for image in pair["differ"]:
        assert project.names[image["id"]] == image["name"]
        assert image["guesses"][0] != image["guesses"][1]
    errors = [round(run["error"] * pair["images"]) for run in pair["runs"]]
    right = [sum(image["guesses"][side] == image["truth"] for image in pair["differ"]) for side in (0, 1)]
    assert right[0] - right[1] == errors[1] - errors[0]
    assert f"of {pair['images']} test images of both simmatch misses" in pair["verdict"]
    assert past.pair("ours", "ours")["verdict"] == "Choose two runs."


def test_a_clear_difference_is_called_one(past: Past) -> None:
    ours, theirs = RunFolder("runs/ours"), RunFolder("runs/compare/labels-only")
    kept = {home: (home.path / "predictions.npz").read_bytes() for home in (ours, theirs)}
    with np.load("runs/ours/predictions.npz") as arrays:
        labels = arrays["labels"]
    try:
        ours.write_predictions(np.eye(2)[labels], labels)
        theirs.write_predictions(np.eye(2)[1 - labels], labels)
        assert "simmatch is better than supervised: of" in past.pair("ours", "compare/labels-only")["verdict"]
        assert "simmatch is worse" not in past.pair("ours", "compare/labels-only")["verdict"]
        assert "supervised is worse than simmatch: of" in past.pair("compare/labels-only", "ours")["verdict"]
        assert len(past.pair("ours", "compare/labels-only")["differ"]) == len(labels)
    finally:
        for home, content in kept.items():
            (home.path / "predictions.npz").write_bytes(content)


def test_the_report_is_a_plain_file_of_the_run(past: Past) -> None:
    page = Path("runs/ours/report.html")
    page.unlink(missing_ok=True)
    with pytest.raises(InputError, match="has no report yet"):
        past.page("ours")
    page.symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="has no report yet"):
        past.page("ours")
    page.unlink()
    page.write_text("<html>")
    assert past.page("ours").read_text() == "<html>"


def test_all_this_takes_no_torch(past: Past, project: Folder) -> None:
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, json.dumps(project.names)], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")
