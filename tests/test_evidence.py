"""The list of runs: it survives being cut off, and nothing is measured twice."""

from __future__ import annotations

import csv
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import evidence
import pytest

from epass.cli import main
from epass.machine.signals import Stop, Terminated
from epass.recipe import parse_setting, read_recipe
from epass.runs import load_run

STEPS = 12
LIST = f"""
[moco]
why = "to start from"
data = "digits"
recipe = "digits-moco"
labels = 40
projectors = [1]
seeds = [0]
steps = {STEPS}
set = ["net.width=4", "plan.evaluate_every=12", "method.queue_size=64"]
minutes = 2

[after-moco]
why = "to be cut off"
file = "rows.csv"
after = "moco"
columns = {{ kernels = "own" }}
data = "digits"
recipe = "digits-simmatch"
labels = 40
projectors = [1]
seeds = [0]
steps = {STEPS}
set = ["net.width=4", "plan.evaluate_every=12", "wrapper.name=mix"]
minutes = 2
"""
WITHOUT_PROJECTORS = f"""
[infomatch]
why = "it has none"
file = "rows.csv"
data = "digits"
recipe = "digits-infomatch"
labels = 40
seeds = [3]
steps = {STEPS}
set = ["net.width=4", "plan.evaluate_every=12"]
minutes = 5
"""


class Machine:
    """Trains in this process, by a clock of its own, and ends a run when its time is over, as a signal would."""

    def __init__(self) -> None:
        self.now, self.seconds_a_step, self.launched = 0.0, 20.0, list[str]()

    def clock(self) -> float:
        return self.now

    def run(self, command: Sequence[str], seconds: float) -> int:
        self.launched.append(Path(command[-1]).name)
        until = self.now + seconds

        def step(stop: Stop) -> None:
            if self.now + self.seconds_a_step > until:
                self.now = until
                raise Terminated
            self.now += self.seconds_a_step

        with patch.object(Stop, "__call__", step), patch.object(sys, "argv", list(command[2:])):
            try:
                main()
            except SystemExit as end:
                return int(end.code or 0)
        return 0


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[evidence.Entry]:
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # takes longer than the training
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(LIST)
    return evidence.entries(Path("list.toml"))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_time_cuts_off_goes_on_and_has_one_row(listed: list[evidence.Entry], tmp_path: Path) -> None:
    machine, runs, rows = Machine(), tmp_path / "runs", tmp_path / "rows.csv"

    def measure(seconds: float) -> list[str]:
        return evidence.measure(listed, runs, seconds, results=tmp_path, run=machine.run, clock=machine.clock)

    assert measure(400) == ["after-moco-1-0: goes on next time"]
    assert machine.launched == ["moco-1-0", "after-moco-1-0"]
    assert not rows.exists()  # only a finished run has one
    kept = load_run(runs / "after-moco-1-0").path / "checkpoints"
    assert max(path.name for path in kept.iterdir()) == "step-00000007.safetensors"

    assert measure(400) == ["after-moco-1-0: finished, its row is in rows.csv"]
    assert machine.launched[2:] == ["after-moco-1-0"]
    assert machine.now == pytest.approx(385 + (STEPS - 7) * machine.seconds_a_step)  # nothing was made again
    (row,) = read(rows)
    run = load_run(runs / "after-moco-1-0")
    assert run.results is not None
    assert (row["method"], row["projectors"], row["seed"], row["start"]) == ("simmatch", "1", "0", "moco")
    assert row["wrapper"] == "mix"
    assert float(row["error_last"]) == pytest.approx(100 * run.results["last"]["error"], abs=0.005)
    assert (row["device"], row["kernels"]) == (run.environment["device_name"], "own")
    assert row["commit"] == "" or len(row["commit"].removesuffix("-dirty")) == 7
    assert "--from runs/moco-1-0" in row["command"]
    assert "--out" not in row["command"]
    assert (tmp_path / row["curve"]).read_bytes() == (runs / "after-moco-1-0" / "metrics.jsonl").read_bytes()

    assert measure(400) == []
    assert len(machine.launched) == 3
    evidence.add_row(listed[1], runs / "after-moco-1-0", tmp_path)
    assert len(read(rows)) == 1


def test_a_method_without_projectors_is_asked_for_none(listed: list[evidence.Entry], tmp_path: Path) -> None:
    Path("list.toml").write_text(WITHOUT_PROJECTORS)
    machine, entries = Machine(), evidence.entries(Path("list.toml"))
    told = evidence.measure(entries, tmp_path, 400, results=tmp_path, run=machine.run, clock=machine.clock)
    assert told == ["infomatch-3: finished, its row is in rows.csv"]
    (row,) = read(tmp_path / "rows.csv")
    assert (row["method"], row["projectors"], row["seed"], row["curve"]) == ("infomatch", "0", "3", "infomatch-3.jsonl")
    assert row["wrapper"] == ""
    assert "--projectors" not in row["command"]


def test_a_run_begins_only_where_it_fits_or_may_be_cut(listed: list[evidence.Entry], tmp_path: Path) -> None:
    def first(left: float, whole: bool) -> str | None:
        chosen = evidence.next_of(evidence.to_come(listed, tmp_path), tmp_path, left, whole)
        return chosen and chosen.name

    assert (first(239, True), first(240, True)) == (None, "moco-1-0")  # and what starts from it
    assert (first(evidence.LEAST - 1, False), first(evidence.LEAST, False)) == (None, "moco-1-0")


def test_a_run_that_fails_is_named_and_not_tried_again(listed: list[evidence.Entry], tmp_path: Path) -> None:
    told = evidence.measure(listed, tmp_path, 400, results=tmp_path, run=lambda *_: 2, clock=lambda: 0.0)
    assert told == ["moco-1-0: failed with exit code 2"]


def test_a_row_is_known_by_its_command_in_any_order(listed: list[evidence.Entry]) -> None:
    command = "epass train digits --seed 0 --set net.width=4 --from runs/moco-1-0 --projectors 1 --steps 12"
    command += " --set wrapper.name=mix --recipe digits-simmatch --set plan.evaluate_every=12 --labels 40"
    assert listed[1].has_row([{"command": command}])
    assert not listed[1].has_row([{"command": command.replace("--seed 0", "--seed 1")}])


def test_a_program_ends_when_its_time_is_over() -> None:
    assert evidence.launch([sys.executable, "-c", "import time; time.sleep(60)"], 0.2) != 0
    assert evidence.launch([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3


def test_a_start_without_heads_is_that_of_all_runs_of_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        LIST.replace("moco", "rotnet-1")
        .replace("digits-rotnet-1", "digits-rotnet")
        .replace('"method.queue_size=64"', "")
        .replace("projectors = [1]\n", "", 1)
    )
    (tmp_path / "list.toml").write_text(text.replace("projectors = [1]", "projectors = [1, 2]"))
    listed = evidence.entries(tmp_path / "list.toml")
    started = [(entry.name, entry.after) for entry in listed]
    assert started == [("rotnet-1-0", None), ("after-rotnet-1-1-0", "rotnet-1-0"), ("after-rotnet-1-2-0", "rotnet-1-0")]

    machine = Machine()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)
    evidence.measure(listed, Path("runs"), 10_000, results=tmp_path, run=machine.run, clock=machine.clock)
    assert machine.launched == ["rotnet-1-0", "after-rotnet-1-1-0", "after-rotnet-1-2-0"]
    rows = read(tmp_path / "rows.csv")
    assert [(row["projectors"], row["start"]) for row in rows] == [("1", "rotnet-1"), ("2", "rotnet-1")]


def test_the_list_names_recipes_and_tables_that_exist() -> None:
    from epass.recipes import builtin_recipes

    listed = evidence.entries()
    names = {entry.name for entry in listed}
    assert len(names) == len(listed)
    for entry in listed:
        assert entry.after is None or entry.after in names
        assert entry.command[4] in builtin_recipes()


@pytest.mark.parametrize(
    ("name", "table"), [("svhn_fast-rotnet", "svhn-rotnet-20k"), ("svhn_fast-simmatch", "svhn-simmatch-after-rotnet")]
)
def test_the_fast_recipe_is_what_was_measured(name: str, table: str) -> None:
    """`report_every` may say more often how it goes."""
    entry = tomllib.loads((evidence.RESULTS / "runs.toml").read_text(encoding="utf-8"))[table]
    made = {"data.name": entry["data"], "data.labels": entry["labels"], "plan.steps": entry["steps"]}
    made |= dict(parse_setting(setting) for setting in entry["set"])
    assert read_recipe(entry["recipe"]).with_settings(made).flat() == read_recipe(name).flat()
