from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from epass.errors import InputError
from epass.runs import RunFolder


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create(force=False)
    return run


def fill(run: RunFolder) -> None:
    run.write_text("recipe.toml", "seed = 0\n")
    run.write_json("environment.json", {"seed": 0})
    run.append_metrics({"step": 1})
    run.write_json("results.json", {})
    run.checkpoints.mkdir()
    (run.checkpoints / "step-00000010.safetensors").write_bytes(b"x")


def names(run: RunFolder) -> set[str]:
    return {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}


def test_a_run_in_the_way_names_a_command_that_can_be_typed_as_it_is(tmp_path):
    run = RunFolder(tmp_path / "first run")
    run.create(force=False)
    fill(run)
    with pytest.raises(InputError, match=rf"--force to .*, or 'epass train --continue '{run.path}'' to go on"):
        run.create(force=False)


def test_create_makes_parents_and_takes_an_empty_folder(tmp_path):
    run = RunFolder(tmp_path / "a" / "b")
    run.create(force=False)
    run.create(force=False)
    assert run.path.is_dir()
    assert not run.exists()


def test_create_keeps_an_existing_run_and_says_how_to_go_on(folder):
    fill(folder)
    assert folder.exists()
    with pytest.raises(InputError, match=r"--resume .* --force"):
        folder.create(force=False)
    assert "results.json" in names(folder)


def test_force_removes_the_run_and_nothing_else(folder):
    fill(folder)
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / ".results.json.123.part").write_text("torn")
    (folder.checkpoints / "keep.txt").write_text("mine")
    (folder.checkpoints / ".step-00000020.safetensors.123.part").write_text("torn")
    folder.create(force=True)
    assert names(folder) == {"notes.txt", "checkpoints/keep.txt"}
    assert not folder.exists()


def test_a_run_killed_in_its_first_moment_leaves_its_folder_usable(folder):
    folder.write_json("environment.json", {"seed": 0})
    folder.write_text("split.json", "{}")
    folder.create(force=False)
    assert names(folder) == set()


def test_a_split_that_somebody_put_there_is_not_thrown_away(folder):
    folder.write_text("split.json", "{}")
    with pytest.raises(InputError, match="holds no run"):
        folder.create(force=True)
    assert names(folder) == {"split.json"}


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_run_is_not_touched(tmp_path, force):
    (tmp_path / "recipe.toml").write_text("seed = 3")  # written by hand, not a run
    (tmp_path / "metrics.jsonl").write_text("mine")
    with pytest.raises(InputError, match="holds no run"):
        RunFolder(tmp_path).create(force=force)
    assert (tmp_path / "metrics.jsonl").read_text() == "mine"


def test_a_file_is_no_place_for_a_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "file").create(force=True)


def test_json_has_no_nan(folder):
    value = {"a": float("nan"), "b": [np.float32("inf"), np.int64(3)], "c": np.array([1.0, np.nan]), "d": (True, None)}
    folder.write_json("results.json", value)
    text = (folder.path / "results.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, 3],
        "c": [1.0, None],
        "d": [True, None],
    }
    folder.append_metrics({"step": 1, "seconds": 1.0, "loss": float("-inf")})
    assert folder.metrics() == [{"step": 1, "seconds": 1.0, "loss": None}]


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(folder, monkeypatch):
    folder.write_text("recipe.toml", "old")

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        folder.write_text("recipe.toml", "new")
    assert (folder.path / "recipe.toml").read_text() == "old"
    assert names(folder) == {"recipe.toml"}


def test_metrics_survive_a_torn_line(folder):
    assert folder.metrics() == []
    folder.append_metrics({"step": 100, "seconds": 1.0, "loss": 1.5})
    folder.append_metrics({"step": 200, "seconds": 2.0, "loss": 1.25, "test_error": 0.5})
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write('{"step": 300, "name": "ü'.encode()[:-1])
    assert [row["step"] for row in folder.metrics()] == [100, 200]


def test_truncate_drops_later_rows_and_the_torn_line(folder):
    folder.truncate_metrics(0)
    assert not (folder.path / "metrics.jsonl").exists()
    for step in (100, 200, 300):
        folder.append_metrics({"step": step, "seconds": 1.0, "loss": 1 / step})
    before = (folder.path / "metrics.jsonl").read_bytes().splitlines()
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4')
    folder.truncate_metrics(200)
    assert (folder.path / "metrics.jsonl").read_bytes().splitlines() == before[:2]
    folder.append_metrics({"step": 300, "seconds": 1.0})
    assert [row["step"] for row in folder.metrics()] == [100, 200, 300]


def test_damage_in_the_middle_is_not_silently_skipped(folder):
    (folder.path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl' is damaged in line 2"):
        folder.metrics()


@pytest.mark.parametrize("name", ["report.html", "results.json", ".lock"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(folder, name):
    (folder.path / name).mkdir()
    with pytest.raises(InputError, match="not what a run writes there"), folder.hold():
        pass


def test_a_file_in_the_place_of_the_checkpoints_is_refused(folder):
    folder.checkpoints.write_text("")
    with pytest.raises(InputError, match="not what a run writes there"), folder.hold():
        pass


def test_tensors_are_the_same_bytes_every_time(folder):
    tensors = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.ones(3, dtype=np.float16)}
    written = set()
    for _ in range(5):
        folder.write_tensors("model.safetensors", tensors)
        written.add((folder.path / "model.safetensors").read_bytes())
    folder.write_tensors("model.safetensors", dict(reversed(tensors.items())))
    written.add((folder.path / "model.safetensors").read_bytes())
    assert len(written) == 1

    loaded = load_file(folder.path / "model.safetensors")
    assert all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    assert loaded["b"].dtype == np.float16
    with safe_open(folder.path / "model.safetensors", framework="numpy") as file:
        numbers = tensors["w"].tobytes() + tensors["b"].tobytes()  # the largest kind first
        assert file.metadata() == {"sha256": hashlib.sha256(numbers).hexdigest()}


def test_tensors_may_be_empty_or_without_axes(folder):
    tensors = {"count": np.array(7, dtype=np.int64), "none": np.zeros((0, 4), dtype=np.float32)}
    folder.write_tensors("model.safetensors", tensors)
    loaded = load_file(folder.path / "model.safetensors")
    assert loaded["count"].reshape(()) == 7
    assert loaded["count"].shape == ()
    assert loaded["none"].shape == (0, 4)


def test_predictions_are_plain_arrays(folder):
    folder.write_predictions(np.eye(3, dtype=np.float64), np.arange(3, dtype=np.int32))
    first = (folder.path / "predictions.npz").read_bytes()
    folder.write_predictions(np.eye(3, dtype=np.float64), np.arange(3, dtype=np.int32))
    assert (folder.path / "predictions.npz").read_bytes() == first
    with np.load(folder.path / "predictions.npz", allow_pickle=False) as arrays:
        assert arrays["logits"].dtype == np.float32
        assert arrays["labels"].dtype == np.int64
        assert np.array_equal(arrays["logits"], np.eye(3))
