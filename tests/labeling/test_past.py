"""Runs on the photos of a project, wherever they were started, are found and told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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


@contextmanager
def answering(**wrong: int) -> Iterator[NDArray[np.int64]]:
    """Let the model of a run be wrong about its first test images, the surer the earlier; the true labels."""
    homes = {"ours": RunFolder("runs/ours"), "theirs": RunFolder("runs/compare/labels-only")}
    kept = {name: (homes[name].path / "predictions.npz").read_bytes() for name in wrong}
    with np.load("runs/ours/predictions.npz") as arrays:
        labels: NDArray[np.int64] = arrays["labels"]
    try:
        for name, count in wrong.items():
            answers = np.where(np.arange(len(labels)) < count, 1 - labels, labels)
            sure = 1 + np.arange(len(labels))[::-1, None] / 10
            homes[name].write_predictions(np.eye(2)[answers] * sure, labels)
        yield labels
    finally:
        for name, content in kept.items():
            (homes[name].path / "predictions.npz").write_bytes(content)


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
    assert "recipe.toml" in run["files"]


def test_mistakes_are_images_of_the_project_the_surest_first(past: Past, project: Folder) -> None:
    with answering(ours=3) as labels:
        run = past.run("ours")
    matrix = run["confusion"]["matrix"]
    assert (sum(map(sum, matrix)), matrix[0][1] + matrix[1][0]) == (len(labels), 3)
    assert run["reliability"]["images"] == sum(part["count"] for part in run["reliability"]["bins"]) == len(labels)
    sure = [mistake["confidence"] for mistake in run["mistakes"]]
    assert len(sure) == 3
    assert sure == sorted(sure, reverse=True)
    for mistake in run["mistakes"]:
        assert project.names[mistake["id"]] == mistake["name"]
        assert mistake["name"].startswith(f"{mistake['truth']}/")
        assert mistake["guess"] != mistake["truth"]


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
    with answering(ours=3, theirs=2) as labels:
        pair = past.pair("ours", "compare/labels-only")
    json.dumps(pair, allow_nan=False)
    assert pair["images"] == len(labels)
    assert [run["name"] for run in pair["runs"]] == ["ours", "compare/labels-only"]
    (image,) = pair["differ"]
    assert project.names[image["id"]] == image["name"]
    assert image["guesses"][0] != image["guesses"][1] == image["truth"]
    unclear = f"One seed cannot tell whether simmatch is better than supervised: of {len(labels)} test images of both "
    assert pair["verdict"].startswith(f"{unclear}simmatch misses 37.50 % and supervised 25.00 %, 12.50 points more")
    assert past.pair("ours", "ours")["verdict"] == "Choose two runs."


def test_a_clear_difference_is_called_one(past: Past) -> None:
    with answering(ours=0, theirs=8) as labels:
        pair = past.pair("ours", "compare/labels-only")
        assert pair["verdict"].startswith("On this one seed simmatch is better than supervised: of")
        assert len(pair["differ"]) == len(labels)
        other = past.pair("compare/labels-only", "ours")["verdict"]
        assert other.startswith("On this one seed supervised is worse than simmatch: of")
    with answering(ours=2, theirs=2):
        same = f"There is no difference: of {len(labels)} test images of both, simmatch and supervised miss the same 2."
        assert past.pair("ours", "compare/labels-only")["verdict"] == same


def test_only_images_with_the_same_name_and_class_are_compared(past: Past) -> None:
    split = Path("runs/ours/split.json")
    content = json.loads(split.read_text())
    try:
        split.write_text(json.dumps({**content, "test": [*content["test"][:-1], "another.png"]}))
        assert past.pair("ours", "compare/labels-only")["images"] == len(content["test"]) - 1
        split.write_text(json.dumps({**content, "test": [f"no{name}" for name in content["test"]]}))
        pair = past.pair("ours", "compare/labels-only")
        assert pair["verdict"] == "The two were tested on different images, so there is nothing to compare."
    finally:
        split.write_text(json.dumps(content))


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
