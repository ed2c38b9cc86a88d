from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from epass.errors import InputError
from epass.runs import RunFolder, environment, load_run
from epass.runs.environment import checkout_commit


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "run-a")
    run.create(force=False)
    run.write_text("recipe.toml", 'seed = 1\n[method]\nname = "simmatch"\n')
    run.write_json("environment.json", environment(1, "epass train", "cpu"))
    return run


def test_an_unfinished_run_loads(folder):
    run = load_run(folder.path)
    assert run.name == "run-a"
    assert run.recipe == {"seed": 1, "method": {"name": "simmatch"}}
    assert run.environment["command"] == "epass train"
    assert (run.metrics, run.results, run.model, run.predictions) == ([], None, None, None)


def test_a_finished_run_loads(folder):
    folder.append_metrics({"step": 5, "test_error": 0.5})
    folder.write_json("results.json", {"steps": 5})
    folder.write_json("model.json", {"classes": ["cat", "Hündin"]})
    folder.write_predictions(np.eye(2), np.array([0, 1]))
    run = load_run(str(folder.path))
    assert run.metrics == [{"step": 5, "test_error": 0.5}]
    assert run.results == {"steps": 5}
    assert run.model == {"classes": ["cat", "Hündin"]}
    assert run.predictions is not None
    assert run.predictions.labels.tolist() == [0, 1]
    assert run.validation is None


def test_predictions_of_validation_images_are_kept_apart(folder):
    folder.write_predictions(np.eye(2), np.array([0, 1]), (3 * np.eye(2)[:1], np.array([1])))
    run = load_run(folder.path)
    assert run.predictions.logits.tolist() == [[1, 0], [0, 1]]
    assert run.validation.logits.tolist() == [[3, 0]]
    assert run.validation.labels.tolist() == [1]


def test_what_is_no_run_is_said_so(tmp_path):
    with pytest.raises(InputError, match="no run at"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="not a run folder"):
        load_run(tmp_path)


@pytest.mark.parametrize("name", ["environment.json", "results.json", "model.json", "predictions.npz", "recipe.toml"])
@pytest.mark.parametrize("content", [b'{"a": ', b"\xff\xfe\x00", b"PK\x03\x04torn"])
def test_a_damaged_file_is_named(folder, name, content):
    (folder.path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        load_run(folder.path)


def test_torn_predictions_are_named(folder):
    folder.write_predictions(np.eye(20), np.arange(20))
    path = folder.path / "predictions.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"predictions\.npz' is damaged"):
        load_run(folder.path)


def test_json_that_is_no_object_is_damaged(folder):
    (folder.path / "results.json").write_text("[]")
    with pytest.raises(InputError, match=r"results\.json"):
        load_run(folder.path)


def test_environment_knows_the_versions_without_torch():
    script = (
        "import sys, epass.runs as r; e = r.environment(3, 'epass train x', 'cuda');"
        "assert 'torch' not in sys.modules; print(e['torch'], e['seed'], e['device'], e['started'][-6:])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    torch_version, *rest = done.stdout.split()
    assert torch_version[0].isdigit()
    assert rest == ["3", "cuda", "+00:00"]


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_commit_of_the_checkout(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert checkout_commit(package) is None
    git(tmp_path, "init")
    assert checkout_commit(package) is None  # in a repository that does not track it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = checkout_commit(package)
    assert commit is not None
    assert len(commit) == 40
    (package / "__init__.py").write_text("changed = True")
    assert checkout_commit(package) == f"{commit}-dirty"
