"""A table of methods by data sets: ours beside the paper's, and why a number is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epass.errors import InputError
from epass.recipe import read_recipe
from epass.report.summary import Spread
from epass.reproduce import Benchmark, Gap, Outcome, Trial, benchmark_sheet, choose, read_benchmark
from epass.reproduce.benchmarks import row_title, value_of
from epass.reproduce.scores import METRICS, counted_before, measured

RESULTS = [
    {"last": {"error": 0.10, "top5_error": 0.02, "f1": 0.9}, "best_on_test": {"error": 0.08}},
    {"last": {"error": 0.14, "top5_error": 0.04, "f1": 0.8}, "best_on_test": {"error": 0.10}},
]


def with_trials(table: str, *names: str) -> tuple[Benchmark, list[Trial]]:
    found = read_benchmark(table)
    by_name = {trial.name: trial for trial in found.trials}
    return found, [by_name[name] for name in names]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10.20±5.05", Spread(10.20, 5.05, 3)),
        ("43.66", Spread(43.66, 0.0, 1)),
        ("~400", Spread(400.0, 0.0, 1)),
        ("", None),
    ],
)
def test_printed_values_are_read(text: str, value: Spread | None) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ("fixmatch", "FixMatch"),
        ("simmatch+3", "SimMatch + EPASS"),
        ("freematch+abc", "FreeMatch + ABC"),
        ("comatch+3+abc", "CoMatch + EPASS + ABC"),
    ],
)
def test_rows_have_names_for_people(row: str, title: str) -> None:
    assert row_title(row) == title


@pytest.mark.parametrize(
    ("metric", "moment", "mean"),
    [
        ("error", "last", 0.12),
        ("error", "best_on_test", 0.09),
        ("accuracy", "last", 0.88),
        ("accuracy", "best_on_test", 0.91),
        ("top5_error", "last", 0.03),
        ("top5_accuracy", "last", 0.97),
        ("f1", "last", 0.85),
    ],
)
def test_scores_are_means_over_seeds(metric: str, moment: str, mean: float) -> None:
    found = measured(METRICS[metric], RESULTS, moment)
    assert found is not None
    assert (found.mean, found.num_seeds) == (pytest.approx(mean), 2)
    assert measured(METRICS[metric], [], moment) is None


def test_epochs_and_parameters_are_counted_in_the_recipe() -> None:
    recipe = read_recipe("imagenet_1percent-simmatch")
    found = {
        metric: counted_before(metric, recipe.with_settings({"projector.size": 3}), images=1_281_167, classes=1000).mean
        for metric in ("epochs", "training_parameters", "test_parameters")
    }
    assert found["epochs"] == pytest.approx(1_585_200 * 5 * 64 / 1_281_167)
    assert found["training_parameters"] == 38.932904
    assert found["test_parameters"] == 25.557032
    assert counted_before("training_parameters", recipe, images=1, classes=1000).mean == 30.015656


def test_ours_is_the_best_on_test_where_the_papers_is() -> None:
    table, (trial,) = with_trials("classic", "cifar10-40-uda")
    sheet = benchmark_sheet(table, {trial: Outcome(None, RESULTS)}, odd=[], instead=None, scale=1.0)
    (cell,) = sheet.cells
    assert cell == {
        "method": "uda",
        "column": "cifar10-40",
        "metric": "error",
        "paper": 10.20,
        "paper_std": 5.05,
        "ours": 9.0,
        "std": 1.0,
        "ours_last": 12.0,
        "seeds": 2,
        "difference": -1.2,
        "scale": 1.0,
        "recipe": "cifar10-uda",
        "data": "cifar10",
        "missing": None,
    }
    heads = ["method", "data", "paper", "ours, best on test", "ours, last step", "difference", "scale"]
    assert sheet.heads == heads
    row = ["UDA", "CIFAR-10, 40 labels", "10.20 ± 5.05", "9.00 ± 1.00", "12.00 ± 2.00", "-1.20", "1"]
    assert sheet.rows == [row]
    assert "all of the recipe's steps" in sheet.notes[0]
    assert not any("Differences" in note or "Not comparable" in note for note in sheet.notes)


def test_a_short_run_keeps_its_difference_and_says_that_it_was_short() -> None:
    table, (trial,) = with_trials("classic", "cifar10-40-uda")
    sheet = benchmark_sheet(table, {trial: Outcome(None, RESULTS[:1])}, odd=[], instead=None, scale=0.03)
    assert (sheet.cells[0]["difference"], sheet.cells[0]["scale"], sheet.cells[0]["std"]) == (-2.2, 0.03, None)
    assert sheet.rows[0][-2:] == ["-2.20", "0.03"]
    assert any("0.03 of the length" in note for note in sheet.notes)


def test_what_cannot_be_compared_has_no_difference() -> None:
    table, (trial,) = with_trials("classic", "cifar10-40-uda")
    sheet = benchmark_sheet(table, {trial: Outcome(None, RESULTS)}, odd=["data: a -> b"], instead="b", scale=1.0)
    assert sheet.cells[0]["difference"] is None
    assert sheet.cells[0]["data"] == "b"
    assert "difference" not in sheet.heads
    assert len(sheet.rows[0]) == len(sheet.heads)
    assert "Not comparable, so without differences (paper -> ours): data: a -> b." in sheet.notes
    assert "b in place of every data set" in sheet.notes[0]


def test_reasons_are_said_once_and_shown_in_their_cells() -> None:
    table, trials = with_trials("classic", "svhn-40-uda", "svhn-250-uda", "svhn-40-dash")
    nowhere, broken = Gap("no data", "svhn is not here"), Gap("failed", "svhn-40-dash-0: it broke")
    outcomes = {trials[0]: Outcome(None, [], nowhere), trials[1]: Outcome(None, [], nowhere)}
    sheet = benchmark_sheet(table, outcomes | {trials[2]: Outcome(None, [], broken)}, odd=[], instead=None, scale=1.0)
    assert [row[3] for row in sheet.rows] == ["no data", "no data", "failed"]
    assert [row[4:6] for row in sheet.rows] == [["–", "–"]] * 3
    assert sheet.notes[1:3] == [
        "Not trained, 2 cells: svhn is not here.",
        "Not trained, 1 cell: svhn-40-dash-0: it broke.",
    ]
    assert [cell["missing"] for cell in sheet.cells] == ["svhn is not here"] * 2 + ["svhn-40-dash-0: it broke"]


def test_every_number_of_a_cell_has_its_line() -> None:
    table, (trial,) = with_trials("imagenet", "100k-softmatch")
    sheet = benchmark_sheet(table, {trial: Outcome(None, RESULTS[:1])}, odd=[], instead=None, scale=1.0)
    assert sheet.heads == ["method", "data", "number", "paper", "ours", "difference", "scale"]
    assert [row[2:6] for row in sheet.rows] == [
        ["top-1 error, %", "40.52", "10.00", "-30.52"],
        ["top-5 error, %", "–", "2.00", "–"],
    ]


def test_counts_need_no_run() -> None:
    table, (trial,) = with_trials("imagenet-detail", "10percent-comatch+3")
    recipe = read_recipe("imagenet-comatch").with_settings({"projector.size": 3})
    outcome = Outcome(recipe, [], Gap("no data", "imagenet is not here"))
    sheet = benchmark_sheet(table, {trial: outcome}, odd=[], instead=None, scale=1.0)
    assert [row[3:6] for row in sheet.rows] == [
        ["~400", "52", "-348"],
        ["30.0", "38.9", "+8.9"],
        ["25.6", "25.6", "+0.0"],
        ["74.1", "no data", "–"],
        ["91.5", "no data", "–"],
    ]
    elsewhere = benchmark_sheet(table, {trial: outcome}, odd=["data"], instead="digits", scale=1.0)
    assert [cell["ours"] for cell in elsewhere.cells] == [None] * 5


def test_rows_and_columns_are_chosen_by_name_or_data_set() -> None:
    trials = read_benchmark("classic").trials
    assert [trial.name for trial in choose(trials, ["simmatch", "uda"], ["svhn-40"])] == [
        "svhn-40-uda",
        "svhn-40-simmatch",
    ]
    assert {trial.column.name for trial in choose(trials, ["uda"], ["cifar10"])} == {
        "cifar10-40",
        "cifar10-250",
        "cifar10-4000",
    }
    assert choose(trials, [], []) == trials
    with pytest.raises(InputError, match=r"Unknown method of this table 'simmatsh': did you mean 'simmatch'\?"):
        choose(trials, ["simmatsh"], [])
    with pytest.raises(InputError, match=r"Unknown column of this table 'cifar11': did you mean 'cifar10'\?"):
        choose(trials, [], ["cifar11"])


def test_a_row_says_what_is_trained() -> None:
    trial = read_benchmark("longtail").trials[0]
    words = {row: replace(trial, row=row) for row in ("fixmatch", "simmatch+3", "simmatch+3+abc", "dash+abc")}
    assert [(t.method, t.projectors, t.wrapper) for t in words.values()] == [
        ("fixmatch", None, None),
        ("simmatch", 3, None),
        ("simmatch", 3, "abc"),
        ("dash", None, "abc"),
    ]
