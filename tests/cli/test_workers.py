"""Runs side by side: two processes that train on the CPU stand in for two GPUs."""

from __future__ import annotations

import io
import os
import pickle
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from calling import Epass
from rich.console import Console

from epass.app.events import Progress
from epass.app.flags import go_on
from epass.app.workers import How, Order, Update, describe_end, train_apart, train_here, work
from epass.cli.progress import ManyRuns
from epass.data import open_dataset
from epass.machine.device import all_devices
from epass.recipe import Recipe, read_recipe
from epass.runs import load_run

SMALL = {"net.width": 4, "plan.steps": 3, "plan.report_every": 1, "plan.evaluate_every": 3}


class Deadly:
    """Whoever unpickles it ends, as a process does that runs out of memory."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def recipe(seed: int = 0, **settings: Any) -> Recipe:
    return read_recipe("digits-supervised").with_settings({**SMALL, "seed": seed, **settings})


def test_every_visible_gpu_is_used_unless_one_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert list(map(str, all_devices(torch.device("cuda")))) == ["cuda:0", "cuda:1", "cuda:2"]
    assert all_devices(torch.device("cuda:1")) == [torch.device("cuda:1")]
    assert all_devices(torch.device("cpu")) == [torch.device("cpu")]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert all_devices(torch.device("cuda")) == [torch.device("cuda")]


@pytest.mark.slow
def test_a_run_that_fails_and_a_process_that_dies_do_not_stop_the_others(tmp_path: Path) -> None:
    jobs: dict[Path, Any] = {
        tmp_path / "good-0": recipe(),
        tmp_path / "deadly": Deadly(),
        tmp_path / "diverging": recipe(**{"plan.lr": 1e38}),
        tmp_path / "good-1": recipe(1),
    }
    told = list(train_apart(jobs, open_dataset("digits"), ["cpu", "cpu"], How()))

    ends = {update.folder.name: update.problem for update in told if update.ended}
    assert ends.keys() == {"good-0", "deadly", "diverging", "good-1"}
    assert (ends["good-0"], ends["deadly"], ends["good-1"]) == (None, "its process ended with exit code 9.", None)
    assert (ends["diverging"] or "").startswith("NotFiniteError: ")
    assert [update.folder.name for update in told if update.lost] == ["deadly"]
    steps = [update.step for update in told if update.folder.name == "good-1"]
    assert steps == [1, 2, 3, 3]
    alone = tmp_path / "alone"
    assert list(train_here({alone: recipe(1)}, open_dataset("digits"), "cpu", How(), go_on))
    for name in ("model.safetensors", "predictions.npz"):
        assert (tmp_path / "good-1" / name).read_bytes() == (alone / name).read_bytes()


@pytest.mark.slow
def test_a_comparison_on_two_devices(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.machine.device.all_devices", lambda place: [place, place])
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)
    line = ("compare", "digits", "--methods", "pi_model", "--seeds", "1", "--steps", "3", "--set", "net.width=4")

    answer = epass(*line, "--out", "out")

    assert (answer.code, answer.err) == (0, "")
    told = sorted(line for line in answer.out.splitlines() if line.startswith("  "))
    assert [line.partition(":")[0].strip() for line in told] == ["Pi-Model, seed 0", "labels only, seed 0"]
    assert all(line.endswith(" on cpu") for line in told)
    for name in ("supervised-0", "pi_model-0"):
        assert load_run(f"out/{name}").environment["command"] == f"epass {' '.join(line)} --out out"
    assert re.search(r"(One seed cannot tell whether|On this one seed) the unlabeled images", answer.out)


def test_whoever_is_left_alone_stops_with_a_checkpoint(tmp_path: Path) -> None:
    """The process that started it was killed: nobody listens."""

    class Deaf:
        def __init__(self) -> None:
            self.sent: list[Update] = []

        def recv(self) -> tuple[Path, Recipe]:
            return tmp_path / "run", recipe()

        def send(self, update: Update) -> None:
            self.sent.append(update)
            raise BrokenPipeError

    deaf, threads = Deaf(), torch.get_num_threads()
    try:
        work(deaf, "cpu", Order(pickle.dumps(open_dataset("digits")), How(), 1))  # type: ignore[arg-type]
    finally:
        torch.set_num_threads(threads)
    assert [update.step for update in deaf.sent] == [1]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000001.safetensors"]


def test_warnings_of_a_worker_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warning_run(jobs: dict[Path, Recipe], *_: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("more slowly", stacklevel=1)
        return iter([Update(next(iter(jobs)), "cpu", ended=True)])

    sent, jobs = [], iter([(tmp_path, None)])

    def receive() -> Any:
        for job in jobs:
            return job
        raise EOFError

    monkeypatch.setattr("epass.app.workers.train_here", warning_run)
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    work(SimpleNamespace(recv=receive, send=sent.append), "cpu", Order(b"N.", How(), 1))  # type: ignore[arg-type]
    assert sent == [Update(tmp_path, "cpu", warning="more slowly"), Update(tmp_path, "cpu", ended=True)]


def test_why_a_process_went_away() -> None:
    assert describe_end(3) == "its process ended with exit code 3."
    assert describe_end(-9) == "its process was killed by SIGKILL; was there enough memory?"


def test_each_device_has_a_line_of_its_own_below_that_of_all() -> None:
    bars = ManyRuns(Console(file=io.StringIO(), force_terminal=True, width=60))
    for event in (
        Progress(0, 3, run="a-0"),
        Progress(0, 3, run="b-0"),
        Progress(3, 3, run="c-0"),  # was there
        Progress(1, 3, run="a-0", place="cuda:0"),
        Progress(2, 3, run="b-0", place="cuda:1"),
    ):
        bars.draw(event)
    assert [(task.description, task.completed, task.total) for task in bars.bar.tasks] == [
        ("training", 6, 9),
        ("cuda:0: a-0", 1, 3),
        ("cuda:1: b-0", 2, 3),
    ]
    bars.draw(Progress(3, 3, run="a-0", place="cuda:0"))
    assert (bars.bar.tasks[0].completed, bars.bar.tasks[1].completed) == (8, 3)
    bars.stop()
