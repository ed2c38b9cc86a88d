"""Run folders of strangers: JSON that is deep, large or odd, arrays that lie, links that lead out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_files import hollow, npy, object_array, photos, pipe, zip_bomb, zipped
from hostile_world import World
from safetensors import safe_open
from safetensors.torch import save_file

from epass.training.checkpoint import checksum

JSON = ("environment.json", "results.json", "model.json")
DEEP = b'{"a": ' + b"[" * 100_000

VALUES = {
    "nested deeply": DEEP,
    "a number of many digits": b'{"seed": ' + b"9" * 5_000 + b"}",
    "not a number": b'{"seed": NaN}',
    "no object": b"[1, 2, 3]",
    "invalid UTF-8": b'{"\xff": 1}',
    "a pickle": b"\x80\x04\x8c\x02os\x94.",
    "nothing": b"",
}


@pytest.mark.parametrize("value", VALUES)
def test_hostile_json_is_one_sentence(world: World, run: Path, value: str) -> None:
    for name in JSON:
        kept = (run / name).read_bytes()
        (run / name).write_bytes(VALUES[value])
        world.refused("report", "run", words=f"{name}' is damaged")
        (run / name).write_bytes(kept)
    (run / "model.json").write_bytes(VALUES[value])
    world.refused("predict", "run", "tiny.toml", words="model.json' is damaged")


@pytest.mark.parametrize("name", [*JSON, "metrics.jsonl", "predictions.npz"])
def test_pipes_and_endless_files_are_not_read(world: World, run: Path, name: str) -> None:
    pipe(run / name)
    world.refused("report", "run", words="not a plain file|is not a run folder")
    (run / name).unlink()
    if name != "predictions.npz":
        hollow(run / name, 2**33)
        world.refused("report", "run", words="more than 268,435,456 bytes")


MODELS: dict[str, dict[str, Any]] = {
    "a network larger than any memory": {"net": {"name": "small", "width": 10**6}},
    "a network of impossible width": {"net": {"name": "small", "width": 10**18}},
    "a network of negative width": {"net": {"name": "small", "width": -1}},
    "a width that is a text": {"net": {"name": "small", "width": "4"}},
    "another network": {"net": {"name": "wrn-28-2"}},
    "an unknown network": {"net": {"name": "\x1b[2J../../evil"}},
    "a network that is not a table": {"net": "small"},
    "a setting that nobody knows": {"net": {"name": "small", "__class__": "os.system"}},
    "weights in another place": {"net": {"name": "small", "weights": "/etc/passwd"}},
    "channels beyond all": {"channels": 10**12},
    "channels that are a fraction": {"channels": 1.5},
    "a height beyond all": {"height": 10**9},
    "no classes": {"classes": []},
    "classes that are no names": {"classes": [{"a": 1}] * 10},
    "an unknown method": {"method": {"name": "os.system"}},
    "a method that is not a table": {"method": 3},
    "an unknown wrapper": {"wrapper": {"name": "os.system"}},
    "more heads than anybody has": {
        "wrapper": {"name": "shrink", "feature": "embedding"},
        "projector": {"size": 10**9},
    },
    "a mean that is a text": {"mean": "zero"},
    "a mean of other length": {"mean": [0.5] * 7},
    "a deviation that is no number": {"std": [None]},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_asks_for_the_impossible(world: World, run: Path, change: Callable[..., None], name: str) -> None:
    photos(world.home / "photos")
    change("model.json", **MODELS[name])
    world.refused("predict", "run", "photos")


def arrays(run: Path, **members: bytes) -> None:
    zipped(run / "predictions.npz", {f"{name}.npy": data for name, data in members.items()})


def test_predictions_that_lie(world: World, run: Path) -> None:
    good = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", bytes(8))
    logits = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}", bytes(8))
    for hostile in (
        object_array(world.canary),
        world.bomb,
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 9)}"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 2)}", world.bomb),
        npy("__import__('os').mkdir('canary')"),
        npy("(" * 5000),
    ):
        arrays(run, logits=hostile, labels=good)
        world.refused("report", "run", words="predictions.npz' is damaged")
    for number in (2, -1, 2**40):
        arrays(run, logits=logits, labels=good[:-8] + number.to_bytes(8, "little", signed=True))
        world.refused("report", "run", words="do not fit together")
    (run / "predictions.npz").write_bytes(world.bomb)
    world.refused("report", "run", words="predictions.npz' is damaged")
    zip_bomb(run / "predictions.npz", "logits.npy", 2**29)
    world.refused("report", "run", words="would unpack to 536,870,912 bytes")


@pytest.mark.parametrize("row", [b"[]", b'{"step": "one"}', b'{"step": NaN}', b"{}", DEEP, b"null"])
def test_metrics_that_are_none(world: World, run: Path, row: bytes) -> None:
    (run / "metrics.jsonl").write_bytes(row + b"\n" + row + b"\n")
    world.refused("report", "run", words="metrics.jsonl' is damaged in line 1")
    if row == b"[]":
        world.refused("train", "--resume", "--out", "run", words="metrics.jsonl' is damaged in line 1")


LINKS = [(".lock", "diary.txt"), ("metrics.jsonl", "new.txt"), ("checkpoints", "new.txt"), ("report.html", "diary.txt")]


@pytest.mark.parametrize(("name", "target"), LINKS)
def test_nothing_is_written_through_a_link(world: World, run: Path, name: str, target: str) -> None:
    place = run / name
    if place.is_dir():
        place.rename(world.home / "kept")
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(world.path / "treasure" / target)
    answer = world.epass("train", "--resume", "--out", "run")
    assert answer.code == 2
    assert " is a link to " in answer.err


def test_a_link_under_the_name_of_a_half_written_file(tmp_path: Path) -> None:
    from epass.files import write_atomically

    (tmp_path / "diary").write_text("mine")
    (tmp_path / f".x.{os.getpid()}.part").symlink_to(tmp_path / "diary")
    write_atomically(tmp_path / "x", b"new")
    assert (tmp_path / "diary").read_text() == "mine"
    assert (tmp_path / "x").read_bytes() == b"new"


def spoil(path: Path, how: str, world: World) -> None:
    with safe_open(path, framework="pt") as file:
        facts, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if how == "a pickle":
        path.write_bytes(world.bomb)
    elif how == "a step that is no number":
        save_file(tensors, path, facts | {"step": "9" * 5000})
    elif how == "a pipe":
        pipe(path)
    elif how == "other tensors":
        tensors = {"a": torch.zeros(1)}
        save_file(tensors, path, {"step": "1", "checksum": checksum(1, tensors)})


@pytest.mark.parametrize("how", ["a pickle", "a step that is no number", "a pipe", "other tensors"])
def test_a_hostile_checkpoint_is_named_and_passed_over(world: World, run: Path, how: str) -> None:
    for name in ("results.json", "model.json", "predictions.npz"):
        (run / name).unlink()
    path = run / "checkpoints" / "step-00000002.safetensors"
    spoil(path, how, world)
    answer = world.epass("train", "--resume", "--out", "run")
    if how == "other tensors":
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "belongs to another model" in answer.err
    else:
        assert answer.code == 0, answer
        assert f"Warning: {path.relative_to(world.home)} is damaged" in answer.err
        assert json.loads((run / "results.json").read_text())["steps"] == 2


SPLITS = {
    "nested deeply": b"[" * 100_000,
    "a number of many digits": b"9" * 5_000,
    "not a number": b'{"format": NaN}',
    "no object": b'"x"',
    "a pickle": b"\x80\x04\x8c\x02os\x94.",
    "another format": b'{"format": 99}',
    "no lists": b'{"format": 1, "data": {}, "classes": {}, "labeled": 3}',
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_hostile_split_file_is_one_sentence(world: World, name: str) -> None:
    (world.home / "s.json").write_bytes(SPLITS[name])
    world.refused("train", "--recipe", "tiny.toml", "--set", "data.split_file=s.json", words="s.json")


@pytest.mark.parametrize("entry", [-1, 10**30, "../../treasure", None, [[]], {"a": 1}, 1.5, True])
def test_a_split_file_with_hostile_entries(world: World, run: Path, entry: Any) -> None:
    split = json.loads((run / "split.json").read_text())
    split["labeled"][0] = entry
    (world.home / "s.json").write_text(json.dumps(split))
    words = 'in "labeled", where every entry is'
    world.refused("train", "--recipe", "tiny.toml", "--set", "data.split_file=s.json", words=words)


def test_an_array_file_of_predictions_is_still_read(run: Path) -> None:
    from epass.runs import load_run

    found = load_run(run).predictions
    assert found is not None
    assert found.logits.dtype == np.float32
