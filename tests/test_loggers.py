"""Reports reach the tools that people use, and a tool that fails ends no training."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from epass.engine.run import run
from epass.errors import InputError
from epass.loggers import LOGGERS, MLflow, TensorBoard, WeightsAndBiases, logged, make_loggers
from epass.recipe import read_recipe
from epass.training.loop import Report

REPORTS = [Report(10, {"loss": 2.0, "lr": 0.1}), Report(20, {"loss": 1.5, "lr": 0.05, "by_class": [1.0, 2.0]})]  # type: ignore[dict-item]
SETTINGS = {"method.name": "fixmatch", "seed": 0}


class Notebook:
    """Writes down what it is told, and fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.fails = fails

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.note("start", folder, settings)

    def report(self, step: int, values: Mapping[str, float]) -> None:
        self.note("report", step, values)

    def finish(self) -> None:
        self.note("finish")

    def note(self, what: str, *facts: Any) -> None:
        self.notes.append((what, *facts))
        if what == self.fails:
            raise ConnectionError("no route\nto host")


def test_every_logger_hears_everything_and_the_reports_pass_unchanged(tmp_path: Path) -> None:
    first, second = Notebook(), Notebook()
    assert list(logged(REPORTS, [first, second], tmp_path, SETTINGS)) == REPORTS
    assert first.notes == second.notes
    assert first.notes == [
        ("start", tmp_path, SETTINGS),
        ("report", 10, {"loss": 2.0, "lr": 0.1}),
        ("report", 20, {"loss": 1.5, "lr": 0.05}),  # numbers only: no tool draws a curve of lists
        ("finish",),
    ]


@pytest.mark.parametrize(("fails", "heard"), [("start", 1), ("report", 2), ("finish", 4)])
def test_one_that_fails_is_named_and_left_out_and_nobody_else_notices(tmp_path: Path, fails: str, heard: int) -> None:
    broken, whole = Notebook(fails), Notebook()
    with pytest.warns(UserWarning, match=r"^Notebook failed \(no route\); going on without it\.$") as warned:
        assert list(logged(REPORTS, [broken, whole], tmp_path, SETTINGS)) == REPORTS
    assert len(warned) == 1
    assert len(broken.notes) == heard
    assert len(whole.notes) == 4


def test_a_stopped_run_is_finished_too(tmp_path: Path) -> None:
    def stopped() -> Iterator[Report]:
        yield REPORTS[0]
        raise KeyboardInterrupt

    notebook = Notebook()
    with pytest.raises(KeyboardInterrupt):
        list(logged(stopped(), [notebook], tmp_path, SETTINGS))
    assert notebook.notes[-1] == ("finish",)


def test_names_are_checked_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Unknown logger 'tensorbord': did you mean 'tensorboard'"):
        make_loggers(["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"'wandb' cannot be imported .*pip install 'epass\[wandb\]'"):
        make_loggers(["wandb"])
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    (logger,) = make_loggers(["wandb", "wandb"])
    assert isinstance(logger, WeightsAndBiases)
    assert make_loggers([]) == []
    assert set(LOGGERS) == {"tensorboard", "wandb", "mlflow"}


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(e.step, round(e.value, 4)) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_reads_what_we_write(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    list(logged(REPORTS, [TensorBoard()], tmp_path, SETTINGS))
    assert curves(tmp_path) == {"loss": [(10, 2.0), (20, 1.5)], "lr": [(10, 0.1), (20, 0.05)]}


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    list(logged(REPORTS, [TensorBoard()], tmp_path, SETTINGS))
    list(logged([Report(20, {"loss": 1.0}), Report(30, {"loss": 0.5})], [TensorBoard()], tmp_path, SETTINGS))
    assert curves(tmp_path)["loss"] == [(10, 2.0), (20, 1.0), (30, 0.5)]


def test_a_run_without_a_report_leaves_no_event_file(tmp_path: Path) -> None:
    list(logged([], [TensorBoard()], tmp_path, SETTINGS))
    assert list(tmp_path.iterdir()) == []


def test_wandb_is_called_as_its_documentation_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Run:
        def log(self, values: Mapping[str, float], step: int) -> None:
            calls.append(("log", step, values))

        def finish(self) -> None:
            calls.append(("finish",))

    fake = ModuleType("wandb")
    fake.init = lambda **given: calls.append(("init", given)) or Run()  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    folder = tmp_path / "digits-fixmatch-0"
    list(logged(REPORTS, [WeightsAndBiases()], folder, SETTINGS))
    (_, given), *rest = calls
    assert given["name"] == given["id"] == "digits-fixmatch-0"
    assert given["resume"] == "allow"
    assert given["config"] == SETTINGS
    assert rest == [("log", 10, {"loss": 2.0, "lr": 0.1}), ("log", 20, {"loss": 1.5, "lr": 0.05}), ("finish",)]


def test_mlflow_is_called_as_its_documentation_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = ModuleType("mlflow")
    for name in ("set_experiment", "start_run", "log_params", "log_metrics", "end_run"):
        setattr(fake, name, lambda *given, _name=name, **named: calls.append((_name, *given, named)))
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    list(logged(REPORTS, [MLflow()], tmp_path / "digits-fixmatch-0", SETTINGS))
    assert calls == [
        ("set_experiment", "epass", {}),
        ("start_run", {"run_name": "digits-fixmatch-0"}),
        ("log_params", SETTINGS, {}),
        ("log_metrics", {"loss": 2.0, "lr": 0.1}, {"step": 10}),
        ("log_metrics", {"loss": 1.5, "lr": 0.05}, {"step": 20}),
        ("end_run", {}),
    ]


def test_the_command_line_logs_what_metrics_jsonl_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epass.cli import main

    notebook = Notebook()
    monkeypatch.setitem(LOGGERS, "tensorboard", ("json", lambda: notebook))  # type: ignore[arg-type]
    words = "train digits --steps 4 --log tensorboard --device cpu --out"
    monkeypatch.setattr(sys, "argv", ["epass", *words.split(), str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code, capsys.readouterr().err
    rows = [line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if line]
    reported = [note for note in notebook.notes if note[0] == "report"]
    assert len(reported) == len(rows) > 0
    assert notebook.notes[0][2]["method.name"] == "simmatch"
    assert notebook.notes[-1] == ("finish",)


def test_a_bad_name_on_the_command_line_is_one_sentence_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epass.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["epass", "train", "digits", "--log", "wndb"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "Error: Unknown logger 'wndb': did you mean 'wandb'?\n"
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_of_a_real_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    recipe = read_recipe("digits-fixmatch").with_settings({"plan.steps": 4, "plan.report_every": 2})
    reports = list(
        logged(run(recipe, tmp_path / "run", device="cpu"), [TensorBoard()], tmp_path / "run", recipe.flat())
    )
    found = curves(tmp_path / "run")
    assert [step for step, _ in found["loss"]] == [2, 4]
    assert found["test_error"][-1:] == [(4, pytest.approx(reports[-1].values["test_error"], abs=1e-4))]
