"""What stands between the loop and whoever watches it: one truth, leaks, checkpoints and stops between steps."""

from __future__ import annotations

import hashlib
import json
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from epass.data import Dataset, Feed, from_arrays, open_dataset
from epass.engine import infer as answering
from epass.engine import run as running
from epass.engine.build import Experiment, build
from epass.engine.infer import answering_network
from epass.engine.run import run, train_steps
from epass.errors import InputError
from epass.recipe import parse_recipe
from epass.runs import RunFolder, load_run
from epass.training.checkpoint import checkpoints, read_checkpoint
from epass.training.writer import Writer
from tiny_recipe import tiny_recipe

CPU, STEPS, NOW = torch.device("cpu"), 6, {"plan.checkpoint_minutes": 1e-12}
RECIPE = parse_recipe(tiny_recipe(plan={"steps": STEPS, "report_every": 2, "evaluate_every": STEPS}), "tests")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_dataset("digits")


def saved(folder: Path) -> list[int]:
    """The steps of the checkpoints, newest first."""
    return [read_checkpoint(path)[0] for path in checkpoints(folder / "checkpoints")]


def stop_before(step: int) -> Callable[[], None]:
    calls = iter(range(step + 1))

    def stop() -> None:
        if next(calls) == step:
            raise KeyboardInterrupt

    return stop


def consume(experiment: Experiment, folder: Path, **named: Any) -> None:
    for _ in train_steps(experiment, RunFolder(folder), **named):
        pass


# --- One truth --------------------------------------------------------------------------------------------------------


def test_every_step_is_heard_of_and_a_run_is_its_reports(tmp_path: Path, digits: Dataset) -> None:
    heard = list(train_steps(build(RECIPE, CPU, digits), RunFolder(tmp_path / "steps")))
    assert [report and report.step for report in heard] == [None, 2, None, 4, None, 6]
    assert [report for report in heard if report] == list(run(RECIPE, tmp_path / "run", dataset=digits, device=CPU))


def test_what_is_trained_is_what_the_recipe_in_the_folder_says(tmp_path: Path, digits: Dataset) -> None:
    short = RECIPE.with_settings({"plan.steps": 3, "data.name": "of nobody"})
    assert list(run(short, tmp_path / "run", dataset=digits, device="cpu"))[-1].step == 3
    assert parse_recipe((tmp_path / "run" / "recipe.toml").read_text(), "x") == short
    assert load_run(tmp_path / "run").results["steps"] == 3


def test_no_step_is_thrown_away(tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, call = list[int](), Feed.__call__
    monkeypatch.setattr(Feed, "__call__", lambda feed, step: (asked.append(step), call(feed, step))[1])
    list(run(RECIPE, tmp_path / "run", dataset=digits, device="cpu"))
    assert asked == list(range(STEPS))


MOCO = replace(RECIPE, method={"name": "moco", "queue_size": 20}, projector={"size": 1, "out_dim": 8})


def test_looking_at_the_network_asks_it_nothing(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = build(MOCO, CPU, digits)
    with monkeypatch.context() as patched:
        patched.setattr(answering, "infer", lambda *_: pytest.fail("it was asked"))
        assert experiment.network is experiment.average.module
    assert answering_network(experiment) is not experiment.network, "that one has no classes yet"
    other = build(RECIPE, CPU, digits)
    assert answering_network(other) is other.network


def test_a_pre_training_is_asked_for_class_means_once_a_test(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, mean = [], answering.answer_by_nearest_mean
    monkeypatch.setattr(answering, "answer_by_nearest_mean", lambda *given: (asked.append(1), mean(*given)))
    recipe = MOCO.with_settings({"data.validation": 0.25, "plan.evaluate_every": 3})
    list(run(recipe, tmp_path / "run", dataset=digits, device="cpu"))
    assert len(asked) == 3, "two tests and the results"


# --- Leaks ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leaky() -> Dataset:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    return from_arrays(images, labels, images[:9], labels[:9], name="leaky")


LEAKY = RECIPE.with_settings({"data.name": "leaky", "data.labels": None})


def test_test_images_among_the_labeled_ones_are_refused_before_anything_is_written(
    tmp_path: Path, leaky: Dataset
) -> None:
    with pytest.raises(InputError) as error:
        next(run(LEAKY, tmp_path / "run", dataset=leaky, device="cpu"))
    assert str(error.value) == (
        "9 of 9 test images are among the labeled ones: remove them (see epass check leaky --seed 0) or train all the "
        "same with --allow-leak."
    )
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="9 of 9 test images"):  # there is nothing to resume yet
        next(run(LEAKY, tmp_path / "run", dataset=leaky, device="cpu", resume=True))


def test_whoever_started_a_run_decided_about_its_leaks(tmp_path: Path, leaky: Dataset) -> None:
    given = {"dataset": leaky, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        list(run(LEAKY, tmp_path / "run", allow_leak=True, stop=stop_before(3), **given))
    assert [report.step for report in run(LEAKY, tmp_path / "run", resume=True, **given)] == [4, 6]


def test_contradictory_labels_are_a_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    images[1] = images[0]
    twice = from_arrays(images[:51], labels[:51], images[51:], labels[51:], name="twice")
    recipe = RECIPE.with_settings({"data.name": "twice", "data.labels": None})
    with pytest.warns(
        UserWarning, match=r"^2 labeled images have an exact copy with another label, such as 'train 0' \("
    ):
        next(run(recipe, tmp_path / "run", dataset=twice, device="cpu"))


def test_where_no_label_teaches_nothing_leaks(tmp_path: Path, leaky: Dataset) -> None:
    recipe = MOCO.with_settings({"data.name": "leaky", "data.labels": None})
    assert len(list(run(recipe, tmp_path / "run", dataset=leaky, device="cpu"))) == 3


# --- Between two steps ------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is on disk before the next one is due."""
    is_due = Writer.is_due
    monkeypatch.setattr(Writer, "is_due", lambda writer: (writer.wait(), is_due(writer))[1])


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize(
    ("settings", "expected"), [({}, [[], [1], [2], [5]]), (NOW, [[], [1], [2, 1], [5, 4, 3]])], ids=["never", "always"]
)
def test_a_checkpoint_is_saved_when_due_and_at_a_stop_but_not_before_the_first_step(
    tmp_path: Path, digits: Dataset, settings: dict[str, float], expected: list[list[int]]
) -> None:
    for step, wanted in zip((0, 1, 2, 5), expected, strict=True):
        folder = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt):
            consume(build(RECIPE.with_settings(settings), CPU, digits), folder, stop=stop_before(step))
        assert saved(folder) == wanted


def test_a_state_is_written_once(tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the clock nor a stop writes what a test, or the process before, has written."""
    written, write = list[int](), running.write_checkpoint
    monkeypatch.setattr(
        running, "write_checkpoint", lambda folder, step, state: (written.append(step), write(folder, step, state))[1]
    )
    recipe = RECIPE.with_settings({"plan.evaluate_every": 2})
    with pytest.raises(KeyboardInterrupt):
        consume(build(recipe, CPU, digits), tmp_path / "run", stop=stop_before(4))
    assert written == [2, 4]
    with pytest.raises(KeyboardInterrupt):
        consume(build(recipe, CPU, digits), tmp_path / "run", resume=True, stop=stop_before(0))
    assert written == [2, 4]


def failing(experiment: Experiment, where: str, at: int) -> Experiment:
    """An experiment whose feed, step or memory fails at step `at`."""
    method: Any = experiment.method
    owner, name = {"feed": (experiment.feed, "select"), "step": (method, "forward"), "memory": (method, "update")}[
        where
    ]
    original, calls = getattr(owner, name), iter(range(100))

    def fail(*given: Any) -> Any:
        if next(calls) == at:
            raise OSError("unreadable")
        return original(*given)

    setattr(owner, name, fail)
    return experiment


@pytest.mark.parametrize(
    ("where", "expected"), [("feed", [3]), ("step", []), ("memory", [])], ids=["feed", "step", "memory"]
)
def test_a_feed_that_fails_costs_no_step_and_half_a_step_is_never_saved(
    tmp_path: Path, digits: Dataset, where: str, expected: list[int]
) -> None:
    list(run(RECIPE, tmp_path / "whole", dataset=digits, device="cpu"))
    with pytest.raises(OSError, match="unreadable"):
        consume(failing(build(RECIPE, CPU, digits), where, 3), tmp_path / "run")
    assert saved(tmp_path / "run") == expected
    list(run(RECIPE, tmp_path / "run", dataset=digits, device="cpu", resume=True))
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert both[0] == both[1]


def test_of_several_processes_one_whose_feed_fails_does_not_wait_for_the_others(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "alone", lambda: False)
    with pytest.raises(OSError, match="unreadable"):
        consume(failing(build(RECIPE, CPU, digits), "feed", 3), tmp_path / "run")
    assert saved(tmp_path / "run") == []


def test_a_report_that_cannot_be_written_is_no_reason_to_save(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "append_metrics", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        consume(build(RECIPE, CPU, digits), tmp_path / "run")
    assert saved(tmp_path / "run") == [], "or the report would be missing from a resumed run"


@pytest.mark.parametrize("ruined", [True, False])
def test_a_stop_is_not_hidden_by_a_state_that_cannot_be_kept_but_by_a_disk_that_is_full(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch, ruined: bool
) -> None:
    experiment = build(RECIPE, CPU, digits)
    if ruined:
        experiment.method.net.head.bias.data.fill_(math.nan)
    else:
        monkeypatch.setattr(running, "write_checkpoint", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(KeyboardInterrupt if ruined else OSError):
        consume(experiment, tmp_path / "run", stop=stop_before(1))
    assert saved(tmp_path / "run") == []


# --- Folders of the last version --------------------------------------------------------------------------------------


def as_the_last_version_wrote_it(path: Path) -> None:
    """The same checkpoint, its header by the library: step and checksum are two entries of the metadata."""
    step, tensors = read_checkpoint(path)
    digest = hashlib.sha256(str(step).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().tobytes())
    save_file(tensors, path, {"checksum": digest.hexdigest(), "step": str(step)})


@pytest.mark.filterwarnings("error")
def test_a_run_of_the_last_version_goes_on_exactly(tmp_path: Path, digits: Dataset) -> None:
    list(run(RECIPE, tmp_path / "whole", dataset=digits, device="cpu"))
    with pytest.raises(KeyboardInterrupt):
        list(run(RECIPE, tmp_path / "run", dataset=digits, device="cpu", stop=stop_before(3)))
    [path] = checkpoints(tmp_path / "run" / "checkpoints")
    as_the_last_version_wrote_it(path)
    assert [report.step for report in run(RECIPE, tmp_path / "run", dataset=digits, device="cpu", resume=True)] == [
        4,
        6,
    ]
    whole, resumed = (
        [{**json.loads(line), "seconds": 0} for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "run")
    )
    assert whole == resumed, "also the means of the report that the stop cut in two"
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert both[0] == both[1]


def test_what_the_last_step_answered_is_not_asked_again(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counting(net: torch.nn.Module, images: Any, *rest: Any) -> torch.Tensor:
        asked.append(len(images))
        return answering.predict(net, images, *rest)

    monkeypatch.setattr(running, "predict", counting)
    recipe = RECIPE.with_settings({"data.validation": 0.5})
    experiment = build(recipe, CPU, digits)
    list(run(recipe, tmp_path / "whole", dataset=digits, device="cpu"))
    test, validation = len(experiment.split.test), len(experiment.split.validation or ())
    assert asked == [test, validation]
    results = (tmp_path / "whole" / "results.json").read_text()
    (tmp_path / "whole" / "results.json").unlink()
    list(run(recipe, tmp_path / "whole", dataset=digits, device="cpu", resume=True))
    assert asked == [test, validation] * 2, "whoever did not train the last step asks once"
    assert (tmp_path / "whole" / "results.json").read_text() == results


def test_a_test_does_not_hold_the_features_of_all_images(digits: Dataset) -> None:
    features: list[weakref.ref[torch.Tensor]] = []
    held: list[int] = []
    experiment = build(RECIPE, CPU, digits)

    class Watched(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> Any:
            said = experiment.network(images)
            features.append(weakref.ref(said.features))
            held.append(sum(each() is not None for each in features))
            return said

    images = experiment.split.test.select(torch.arange(3000) % len(experiment.split.test))
    assert len(answering.predict(Watched(), images, digits, CPU)) == 3000
    assert len(held) > 3
    assert max(held) <= 2, "that of the batch, and that of the one before"
