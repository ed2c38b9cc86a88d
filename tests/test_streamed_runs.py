"""Runs whose images stay on disk are the runs whose images lie in memory, bit by bit, and end as cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from device_decoding import stand_in
from epass.app.events import Notice
from epass.app.train import train
from epass.checking import leaks
from epass.data import Dataset, Lookahead, StreamedImages, decoder_of, open_dataset
from epass.data.stream import decoder
from epass.engine.build import Experiment, build
from epass.engine.run import run, train_steps
from epass.errors import InputError
from epass.method import Batch, Outcome
from epass.recipe import Recipe, parse_recipe
from epass.runs import RunFolder
from epass.testing import difference, named
from epass.training.checkpoint import checkpoints
from epass.training.recording import Overlap, Recorded

CPU = torch.device("cpu")
CLASSES, EACH = "abc", 14
RECIPE = """
format = 1
source = "made up for tests"

[data]
name = "photos"
labels = 12
image_size = 8

[net]
name = "small"
width = 4

[method]
name = "simmatch"
threshold = 0.3
warmup_steps = 2

[projector]
size = 2
out_dim = 16

[plan]
steps = 6
labeled_batch = 4
unlabeled_ratio = 2
warmup_steps = 0
report_every = 2
evaluate_every = 3
"""
COMMAND = [sys.executable, "-c", "from epass.cli import main; main()"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random, home = np.random.default_rng(0), tmp_path / "photos"
    for number in range(len(CLASSES) * EACH):
        path = home / CLASSES[number % len(CLASSES)] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (11 + number % 5, 14, 3), dtype=np.uint8)).save(path)
    return home


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")  # or the files would be read once


def make(photos: Path, *, streaming: bool, **settings: object) -> Recipe:
    tables = {name: settings.pop(name) for name in ("method", "projector") if name in settings}
    own = {name.replace("_", ".", 1): value for name, value in settings.items()}
    recipe = replace(parse_recipe(RECIPE, "test"), **tables)
    return recipe.with_settings({"data.name": str(photos), "data.streaming": streaming, **own})


def results(folder: Path) -> dict[str, object]:
    """Everything a run leaves that is the same for the same run."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = json.loads((folder / "results.json").read_text())
    return {
        "weights": (folder / "model.safetensors").read_bytes(),
        "model": (folder / "model.json").read_text(),
        "split": (folder / "split.json").read_text(),
        "rows": [{key: value for key, value in row.items() if key != "seconds"} for row in rows],
        "results": {key: value for key, value in found.items() if key != "seconds"},
        "predictions": {name: value.tolist() for name, value in np.load(folder / "predictions.npz").items()},
    }


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read")]


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize(
    "settings",
    [
        {"data_validation": 0.25},
        {"data_known_classes": ["a", "c"], "data_labels": 8, "method": {"name": "iomatch", "warmup_steps": 0}},
        {"method": {"name": "supervised"}, "projector": None},
    ],
    ids=["validation", "outliers", "labels only"],
)
def test_a_streamed_run_is_the_run_in_memory(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], workers: str
) -> None:
    monkeypatch.setenv("EPASS_WORKERS", workers)
    for name in ("streamed", "held"):
        recipe = make(photos, streaming=name == "streamed", **settings)
        experiment = build(recipe, CPU)
        assert isinstance(experiment.feed, Lookahead) == (name == "streamed")
        list(train_steps(experiment, RunFolder(tmp_path / name)))
        assert reading_threads() == []
    streamed, held = results(tmp_path / "streamed"), results(tmp_path / "held")
    for key in held:
        assert streamed[key] == held[key], key


class Stopped(Exception):
    pass


@pytest.mark.parametrize("at", [1, 4])
def test_a_streamed_run_goes_on_where_it_was_stopped(photos: Path, tmp_path: Path, at: int) -> None:
    recipe, calls = make(photos, streaming=True), []

    def stop() -> None:
        calls.append(None)
        if len(calls) > at:
            raise Stopped

    list(run(recipe, tmp_path / "whole", device="cpu"))
    with pytest.raises(Stopped):
        list(run(recipe, tmp_path / "parts", device="cpu", stop=stop))
    assert reading_threads() == []
    assert checkpoints(tmp_path / "parts" / "checkpoints")[0].stem == f"step-{at:08}"
    list(run(recipe, tmp_path / "parts", device="cpu", resume=True))
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_a_file_that_is_damaged_meanwhile_ends_the_run_with_a_checkpoint(photos: Path, tmp_path: Path) -> None:
    recipe = make(photos, streaming=True, plan_evaluate_every=6)
    list(run(recipe, tmp_path / "whole", device="cpu"))
    experiment = build(recipe, CPU)
    feed, rows = experiment.feed, experiment.split.unlabeled
    assert isinstance(rows, StreamedImages)
    late = 3  # no earlier step sees one of its images, and none of it is labeled
    seen = {int(row) for step in range(late) for row in feed.rows(step)[1]}
    labeled = {int(row) for row in experiment.split.positions.labeled}
    fresh = [int(row) for row in feed.rows(late)[1] if int(row) not in seen and int(rows.index[row]) not in labeled]
    victim = sorted(photos.rglob("*.jpg"))[int(rows.index[fresh[0]])]
    original = victim.read_bytes()
    victim.write_bytes(b"no longer a photo")
    with pytest.raises(InputError, match=rf"The image '{victim}' cannot be read \(not an image\): replace or remove"):
        list(train_steps(experiment, RunFolder(tmp_path / "run")))
    assert reading_threads() == []
    assert checkpoints(tmp_path / "run" / "checkpoints")[0].stem == f"step-{late:08}"
    victim.write_bytes(original)
    list(run(recipe, tmp_path / "run", device="cpu", resume=True))
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_leaks_are_found_among_streamed_images(photos: Path, tmp_path: Path) -> None:
    for number, file in enumerate(4 * sorted((photos / "a").iterdir())):
        (photos / "a" / f"copy-{number}.jpg").write_bytes(file.read_bytes())
    streamed, held = (build(make(photos, streaming=streaming, data_labels=30), CPU) for streaming in (True, False))
    assert leaks(streamed.split) == leaks(held.split) != []
    streamed.feed.close()
    with pytest.raises(InputError, match="test images are among the labeled ones"):
        next(run(streamed.recipe, tmp_path / "run", device="cpu"))
    assert reading_threads() == []


@pytest.mark.slow
def test_the_command_line_streams_stops_and_goes_on(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    started = ["train", str(photos), "--stream", "--recipe", "tiny.toml", "--steps", "100000", "--out", "run"]
    setting = ["--set", "plan.report_every=5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*COMMAND, *started, *setting], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 600
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 2):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 130, error
    assert b"continue with epass train --resume --out run" in error
    assert checkpoints(tmp_path / "run" / "checkpoints")
    assert process.stderr is not None
    process.stderr.close()
    assert "streaming = true" in (tmp_path / "run" / "recipe.toml").read_text()


def test_what_the_command_line_says_about_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'digits' does not consist of image files"):
        build(make(Path("digits"), streaming=True), CPU)


# On a device that decodes, for which Pillow stands in


@pytest.fixture
def device_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "find_decoder", stand_in)


def stopped_after(steps: int) -> Callable[[], None]:
    calls: list[None] = []

    def stop() -> None:
        calls.append(None)
        if len(calls) > steps:
            raise Stopped

    return stop


@pytest.mark.usefixtures("device_decoder")
def test_a_run_decodes_in_one_way(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make(photos, streaming=True, data_decoder="device")
    for name in ("one", "two"):
        list(run(recipe, tmp_path / name, device="cpu"))
    with pytest.raises(Stopped):
        list(run(recipe, tmp_path / "parts", device="cpu", stop=stopped_after(2)))
    list(run(recipe, tmp_path / "parts", device="cpu", resume=True))
    assert results(tmp_path / "one") == results(tmp_path / "two") == results(tmp_path / "parts")
    assert reading_threads() == []
    assert json.loads((tmp_path / "one" / "environment.json").read_text())["decoder"] == "device"
    list(run(make(photos, streaming=True), tmp_path / "cpu", device="cpu"))
    assert "decoder" not in json.loads((tmp_path / "cpu" / "environment.json").read_text())
    assert results(tmp_path / "cpu")["weights"] != results(tmp_path / "one")["weights"]


@pytest.mark.usefixtures("device_decoder")
def test_a_run_that_chose_goes_on_with_what_it_chose(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, home = make(photos, streaming=True), tmp_path / "run"
    environment = home / "environment.json"
    with pytest.raises(Stopped):
        list(run(recipe, home, device="cpu", stop=stopped_after(2)))
    chosen: list[str] = []
    monkeypatch.setattr("epass.engine.run.check_decoder", lambda *given: chosen.append(decoder_of(given[-1].train)))
    for recorded in ({}, {"decoder": "device"}):
        environment.write_text(json.dumps(json.loads(environment.read_text()) | recorded))
        with pytest.raises(Stopped):
            list(run(recipe, home, device="cpu", resume=True, stop=stopped_after(0)))
    assert chosen == ["cpu", "device"]
    monkeypatch.setattr(decoder, "find_decoder", lambda _: "there is none")
    with pytest.raises(InputError, match=r"cannot be decoded on this device \(there is none\): use a machine where"):
        list(run(recipe, home, device="cpu", resume=True))


@pytest.mark.usefixtures("device_decoder")
@pytest.mark.parametrize("began", ["cpu", "device"])
def test_both_decoders_are_never_mixed(photos: Path, tmp_path: Path, began: str) -> None:
    recipe, home = make(photos, streaming=True), tmp_path / "run"

    def opened(how: str) -> Dataset:
        return open_dataset(str(photos), image_size=8, streaming=True, decoder=how)  # type: ignore[arg-type]

    with pytest.raises(Stopped):
        list(run(recipe, home, dataset=opened(began), device="cpu", stop=stopped_after(2)))
    other = "device" if began == "cpu" else "cpu"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=rf"were decoded .*, and are decoded .* now: .* with data\.decoder={other}"):
        list(run(recipe, home, dataset=opened(other), device="cpu", resume=True))
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    list(run(recipe, home, dataset=opened(began), device="cpu", resume=True))


@pytest.mark.usefixtures("device_decoder")
def test_the_command_line_says_who_decodes(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    settings = dict(data=str(photos), recipe="tiny.toml", stream=True, device="cpu", out="run")
    said = [
        event.sentence for event in train(**settings, settings=["data.decoder=device"]) if isinstance(event, Notice)
    ]
    assert any("JPEG files are decoded on the GPU" in sentence for sentence in said)
    for begun, told in (("cpu", False), ("device", True)):  # as the run was begun
        list(train(**settings | {"out": begun}))
        environment = Path(begun, "environment.json")
        environment.write_text(json.dumps(json.loads(environment.read_text()) | {"decoder": begun}))
        events = list(train(resume=True, out=begun, device="cpu"))
        said = [event.sentence for event in events if isinstance(event, Notice)]
        assert any("JPEG files are decoded on the GPU" in sentence for sentence in said) == told


# On a GPU


@pytest.mark.gpu
def test_a_recorded_step_gets_the_pixels_of_its_own_step(photos: Path) -> None:
    held, streamed = (
        build(make(photos, streaming=streaming, data_decoder="cpu"), torch.device("cuda"))
        for streaming in (False, True)
    )
    for step in (0, 1, 2, 7, 3):
        assert difference(named(held.batch(step)), named(streamed.batch(step))) is None
    expected = [[view.double().sum().item() for view in seen(held.batch(step))] for step in range(40)]
    for experiment in (held, streamed):
        assert recorded_sums(experiment, 40) == expected
    streamed.feed.close()


def seen(batch: Batch) -> tuple[Tensor, ...]:
    return (*batch.labeled, *batch.unlabeled, batch.unlabeled_index)


def recorded_sums(experiment: Experiment, steps: int) -> list[list[float]]:
    """The sum of every view, by a recorded step that takes so long that the host and the feed are far ahead of it."""
    feed, weight = experiment.feed, torch.randn(2048, 2048, device="cuda")

    def work(batch: Batch) -> Outcome:
        product = weight
        for _ in range(30):
            product = product @ weight / 50
        views = enumerate(seen(batch))
        return Outcome({f"view {number}": view.double().sum() for number, view in views}, {"slow": product.sum()})

    make = Recorded(feed.batch, feed.select(0), generators=[feed.generator])
    overlap, sums = Overlap(feed.select, make, Recorded(work, make(feed.select(0)))), []
    for step in range(steps):
        sums.append(torch.stack(list(overlap.step(overlap.feed(step)).losses.values())))
    return torch.stack(sums).tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("decoder", ["cpu", "device"])
def test_a_streamed_run_on_a_gpu(photos: Path, tmp_path: Path, decoder: str) -> None:
    list(run(make(photos, streaming=True, data_decoder=decoder), tmp_path / "run", device="cuda"))
    assert results(tmp_path / "run")["rows"]
    assert reading_threads() == []


@pytest.mark.gpu
def test_a_gpu_decodes_the_same_batches_twice(photos: Path) -> None:
    recipe = make(photos, streaming=True, data_decoder="device")
    one, two = (build(recipe, torch.device("cuda")) for _ in range(2))
    assert decoder_of(one.dataset.train) == "device"
    for step in (0, 1, 2, 7, 3):
        assert difference(named(one.batch(step)), named(two.batch(step))) is None
    expected = [[view.double().sum().item() for view in seen(one.batch(step))] for step in range(40)]
    for experiment in (one, two):
        assert recorded_sums(experiment, 40) == expected
        experiment.feed.close()


# The benchmark

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "streaming.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return import_module("streaming")


TINY = ["--images", "16", "--classes", "2", "--net", "small", "--image-size", "16", "--batch", "2", "--steps", "2"]


@pytest.mark.slow
def test_the_benchmark_measures_every_stage(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    tiny = [*TINY, "--rounds", "2", "--decode-seconds", "0.05", "--device", "cpu", "--out", str(out)]
    assert script.main(tiny) == 0
    found = json.loads(out.read_text())
    stages = [stage for stage in script.STAGES if stage not in ("decode", "device")]  # which a CPU has not
    assert {stage: len(turns) for stage, turns in found["turns_ms"].items()} == dict.fromkeys(stages, 2)
    assert all(value > 0 for value in [*found["step_ms"].values(), *found["decoded_per_second"].values()])
    assert found["images_read_per_step"] == 4
    assert 60_000 < found["bytes_per_image"] < 160_000
    assert found["environment"]["cpu_count"]
    said = capsys.readouterr().out
    assert found["conclusion"] in said
    assert "left out: it is no CUDA device but 'cpu'" in said
    lines = [line.split()[1] for line in said.splitlines() if line.startswith("cached")]
    assert lines[:3] == ["opening", "built", "ready"]  # no minute of silence
    assert reading_threads() == []


@pytest.mark.slow
def test_the_benchmark_measures_a_device_that_decodes(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([*TINY, "--only", "device", "--device", "cpu"]) == 2
    assert "it is no CUDA device but 'cpu'" in capsys.readouterr().err
    asked: list[object] = []
    for place in (decoder, script):
        find = lambda where, place=place: (asked.append(place), stand_in(where))[1]  # noqa: E731
        monkeypatch.setattr(place, "find_decoder", find)
    out = tmp_path / "out.json"
    tiny = [*TINY, "--rounds", "1", "--decode-seconds", "0.05", "--device", "cpu", "--out", str(out)]
    assert script.main([*tiny, "--only", "device", "--only", "resident"]) == 0
    found = json.loads(out.read_text())
    assert found["turns_ms"].keys() == {"resident", "device"}
    assert list(found["device_per_second"]) == ["read", "decoded", "scaled", "all"]
    assert "Steps with images that the device decodes reach" in found["conclusion"]
    assert asked == [script, decoder]  # for the rates, then by the run
    assert script.main([*tiny, "--only", "device", "--only", "decode", "--decode-seconds", "0"]) == 0
    found = json.loads(out.read_text())
    assert found["device_per_second"] == found["decoded_per_second"] == {}
    assert found["step_ms"].keys() == {"device"}
    assert reading_threads() == []


def test_the_benchmark_draws_the_right_conclusion(script: ModuleType) -> None:
    found = {"images_read_per_step": 200, "decoded_per_second": {"1": 100.0, "16": 1500.0}}
    said = script.conclude(found | {"step_ms": {"resident": 100.0, "streamed": 125.0}})
    assert "streamed images reach 80% of the rate" in said
    assert "takes 2,000 images a second; decoding alone gives 1,500: decoding limits steps to 75% of it" in said
    said = script.conclude(found | {"step_ms": {"resident": 200.0, "cached": 200.0}})
    assert "cached images reach 100%" in said
    assert "decoding is not the limit" in said
    assert script.conclude(found | {"step_ms": {"streamed": 1.0}}).startswith("Without the resident stage")


def test_the_benchmark_refuses_what_cannot_be_timed(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([*TINY, "--rounds", "0"]) == 2
    assert "At least one step" in capsys.readouterr().err
