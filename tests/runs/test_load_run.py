from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from epass.errors import InputError
from epass.runs import RunFolder, environment, load_run
from epass.runs.environment import checkout_commit

RECIPE = 'seed = 1\n[data]\nname = "digits"\n[net]\nname = "small"\n[method]\nname = "simmatch"\n'
RESULTS = {
    "steps": 5,
    "seconds": 1.5,
    "last": {"error": 0.5, "auc": None},
    "best_on_test": {"step": 5, "error": 0.5},
}  # what every version wrote
MODEL = {
    "classes": ["cat", "Hündin"],
    "mean": [0.5],
    "std": [0.25],
    **{"channels": 1, "height": 8, "width": 8},
    "net": {"name": "small"},
    "method": {"name": "simmatch"},
}


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "run-a")
    run.create(force=False)
    run.write_text("recipe.toml", RECIPE)
    run.write_json("environment.json", environment(1, "epass train", "cpu"))
    return run


def test_an_unfinished_run_loads(folder):
    run = load_run(folder.path)
    assert run.name == "run-a"
    assert run.recipe == {
        "seed": 1,
        "data": {"name": "digits"},
        "net": {"name": "small"},
        "method": {"name": "simmatch"},
    }
    assert run.environment["command"] == "epass train"
    assert (run.metrics, run.results, run.model, run.predictions) == ([], None, None, None)


def test_a_finished_run_loads(folder):
    folder.append_metrics({"step": 5, "seconds": 1.5, "test_error": 0.5})
    folder.write_json("results.json", RESULTS)
    folder.write_json("model.json", MODEL)
    folder.write_predictions(np.eye(2), np.array([0, 1]))
    run = load_run(str(folder.path))
    assert run.metrics == [{"step": 5, "seconds": 1.5, "test_error": 0.5}]
    assert run.results == RESULTS
    assert run.model == MODEL
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


def test_a_run_beside_it_may_be_meant(folder, monkeypatch):
    monkeypatch.chdir(folder.path.parent)
    for other in ("frist-but-no-run", folder.path.name[::-1]):
        Path(other).mkdir()
    near = f"{folder.path.name}x"
    for typed in (near, str(Path("..", folder.path.parent.name, near)), str(folder.path.parent / near)):
        meant = Path(typed).with_name(folder.path.name)
        with pytest.raises(InputError, match=f"^There is no run at '{typed}': did you mean '{meant}'[?]$"):
            load_run(typed)
    for far in ("frist-but-no-ru", "nowhere/at/all"):
        with pytest.raises(InputError, match=f"^There is no run at '{far}'[.]$"):
            load_run(far)


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


WRONG = {
    "recipe.toml": [
        RECIPE.replace("[net]", "[augment]"),
        RECIPE.replace('"digits"', "3"),
        RECIPE.replace("seed = 1", "seed = 1.5"),
        f'{RECIPE}[projector]\nsize = "x"\n',
        f"projector = 3\n{RECIPE}",
        f"{RECIPE}[wrapper]\n",
    ],
    "environment.json": ['{"seed": "0"}', '{"seed": -1}', '{"seed": 0, "command": 3}', '{"python": {"a": 1}}'],
    "results.json": [
        json.dumps({**RESULTS, "last": 3}),
        json.dumps({**RESULTS, "last": {}}),
        json.dumps({**RESULTS, "last": {"error": "0.5"}}),
        json.dumps({**RESULTS, "last": {"error": 1.5}}),
        json.dumps({**RESULTS, "steps": None}),
        json.dumps({**RESULTS, "labels": 10**20}),
        json.dumps({**RESULTS, "validation_selected": {}}),
        '{"steps": 1e999}',
        '{"steps": 9' + "9" * 400 + "}",
    ],
    "model.json": [
        *(json.dumps({key: value for key, value in MODEL.items() if key != left}) for left in MODEL),
        json.dumps({**MODEL, "classes": []}),
        json.dumps({**MODEL, "channels": "1"}),
        json.dumps({**MODEL, "height": True}),
        json.dumps({**MODEL, "mean": [None]}),
        json.dumps({**MODEL, "wrapper": True}),
    ],
    "metrics.jsonl": [
        '{"step": 1}',
        '{"step": 0, "seconds": 1}',
        '{"step": 1, "seconds": "1"}',
        '{"step": 1, "seconds": 1, "coverage": "all"}',
        '{"step": 1, "seconds": 1, "used_by_class": [0.5, null]}',
        '{"step": 1, "seconds": 1, "used_by_class": [0.5]}',
        '{"step": 2, "seconds": 1}\n{"step": 2, "seconds": 2}',
        '{"step": 1, "seconds": 1, "images_by_class": [1, 2]}\n{"step": 2, "seconds": 2, "images_by_class": [1]}',
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_what_no_run_writes_is_named(folder, name, text):
    (folder.path / name).write_text(text + "\n")
    with pytest.raises(InputError, match=rf"{name}' is damaged"):
        load_run(folder.path)


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.full((2, 2), np.nan), [0, 1]),
        (np.full((2, 2), 1e300), [0, 1]),
        (np.zeros((0, 2)), []),
        (np.zeros((2, 0)), [0, 0]),
        (np.zeros((2, 2)), [0, 2]),
        (np.zeros((2, 2)), [0]),
        (np.zeros((2, 2), dtype=np.int64), [0, 1]),
    ],
)
def test_predictions_that_are_none_are_named(folder, logits, labels):
    np.savez(folder.path / "predictions.npz", logits=logits, labels=np.array(labels, dtype=np.int64))
    with pytest.raises(InputError, match=r"predictions\.npz' is damaged"):
        load_run(folder.path)


def test_predictions_whose_directory_leads_nowhere_are_named(folder):
    folder.write_predictions(np.eye(2), np.array([0, 1]))
    path = folder.path / "predictions.npz"
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06") + 16  # where the file says that the list of its members begins
    data[end : end + 4] = (int.from_bytes(data[end : end + 4], "little") + 40).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"predictions\.npz' is damaged"):
        load_run(folder.path)


def test_predictions_of_another_machine_are_read_in_the_order_of_this_one(folder):
    logits, labels = np.eye(2).astype(">f4"), np.array([0, 1]).astype(">i4")
    np.savez(folder.path / "predictions.npz", logits=logits, labels=labels)
    found = load_run(folder.path).predictions
    assert (found.logits.dtype, found.labels.dtype) == (np.dtype("=f4"), np.dtype("=i8"))
    assert found.logits.tolist() == [[1, 0], [0, 1]]


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


def test_an_archive_knows_its_commit(tmp_path, monkeypatch):
    root, name = Path(__file__).parents[2], "src/epass/runs/environment.py"
    for part in (name, ".gitattributes"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_bytes((root / part).read_bytes())
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "archive", "--output=package.tar", "HEAD")
    with tarfile.open(tmp_path / "package.tar") as archive:
        archived = archive.extractfile(name).read().decode()
    commit = re.search(r'^ARCHIVED = "(\w+)"', archived, re.MULTILINE)[1]
    assert len(commit) == 40
    monkeypatch.setitem(checkout_commit.__globals__, "ARCHIVED", commit)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    assert checkout_commit(outside) == commit


def test_commit_of_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setitem(checkout_commit.__globals__, "ARCHIVED", "$Format:%H$")
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
