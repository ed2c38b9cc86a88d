from __future__ import annotations

import csv
import json
import re
import statistics

import pytest

from epass.report import (
    DIFFERENCE_HEADS,
    comparison_record,
    difference_rows,
    group_runs,
    table_heads,
    table_rows,
    write_rows,
    write_table,
)
from epass.report.table import ms_per_step, run_rows


def cells(groups, label):
    (row,) = [cells for _, cells in table_rows(groups) if cells[0] == label]
    return dict(zip(table_heads(groups), row, strict=True))


@pytest.fixture
def runs(make_runs):
    return [
        *make_runs("supervised", [0.50, 0.52, 0.54]),
        *make_runs("fixmatch", [0.49, 0.53, 0.51]),
        *make_runs("simmatch", [0.20, 0.23, 0.23], size=3),
        *make_runs("vat", [0.60, 0.62, 0.65]),
    ]


def test_the_lowest_error_comes_first_and_labels_only_is_marked(runs):
    rows = table_rows(group_runs(runs))
    assert [row[0] for _, row in rows] == ["SimMatch + EPASS (3)", "FixMatch", "labels only", "VAT"]
    assert [marked for marked, _ in rows] == [False, False, True, False]


def test_every_cell_of_a_row(runs):
    spread = statistics.pstdev([20, 23, 23])
    assert cells(group_runs(runs), "SimMatch + EPASS (3)") == {
        "method": "SimMatch + EPASS (3)",
        "seeds": "3",
        "test error, last step, %": f"22.00 ± {spread:.2f}",
        "accuracy, %": f"78.00 ± {spread:.2f}",
        "best on test, as papers report, %": f"21.00 ± {spread:.2f}",
        "ECE, %": "5.00 ± 0.00",
        "NLL": "0.400 ± 0.000",
        "coverage, %": "100 ± 0",
        "quality, %": "78 ± 1",
        "time per run": "10 min",
        "ms per step": "100.0 ± 0.0",
    }


def told(groups, label, against="labels only"):
    rows = [dict(zip(DIFFERENCE_HEADS, row, strict=True)) for row in difference_rows(groups)]
    (row,) = [row for row in rows if (row["method"], row["against"]) == (label, against)]
    return row


def test_the_three_errors_stand_side_by_side(make_runs):
    runs = make_runs("fixmatch", [0.20, 0.30])
    for run, error in zip(runs, [0.21, 0.33], strict=True):
        run.results["validation_selected"] = {"step": 200, "error": error}
    assert list(cells(group_runs(runs), "FixMatch").items())[2:6] == [
        ("test error, last step, %", "25.00 ± 5.00"),
        ("accuracy, %", "75.00 ± 5.00"),
        ("validation selected, %", "27.00 ± 6.00"),
        ("best on test, as papers report, %", "24.00 ± 5.00"),
    ]
    assert run_rows(runs)[0]["error_validation_selected"] == 0.21
    record = comparison_record(runs, title="", missing={})
    assert record["runs"][1]["error_validation_selected"] == 0.33
    assert record["methods"][0]["error_validation_selected"] == {
        "mean": pytest.approx(0.27),
        "std": pytest.approx(0.06),
    }


def test_a_difference_has_a_sign_an_interval_and_says_whether_it_is_noise(runs):
    groups = group_runs(runs)
    assert told(groups, "SimMatch + EPASS (3)") == {
        "method": "SimMatch + EPASS (3)",
        "against": "labels only",
        "difference, points": "-30.00",
        "95 % interval": "-32.69 to -27.31",
        "more than noise?": "yes",
        "seeds": "3",
        "test images": "60",
    }
    assert (told(groups, "FixMatch")["difference, points"], told(groups, "FixMatch")["more than noise?"]) == (
        "-1.00",
        "no",
    )
    assert (told(groups, "VAT")["difference, points"], told(groups, "VAT")["more than noise?"]) == ("+10.33", "yes")
    assert [row[0] for row in difference_rows(groups)] == ["SimMatch + EPASS (3)", "FixMatch", "VAT"]


def test_epass_stands_against_one_projector_below(make_runs, runs):
    groups = group_runs([*runs, *make_runs("simmatch", [0.4, 0.43, 0.43])])
    assert [row[:3] for row in difference_rows(groups)] == [
        ["SimMatch + EPASS (3)", "labels only", "-30.00"],
        ["SimMatch", "labels only", "-10.00"],
        ["FixMatch", "labels only", "-1.00"],
        ["VAT", "labels only", "+10.33"],
        ["SimMatch + EPASS (3)", "SimMatch", "-20.00"],
    ]


def test_one_seed_cannot_tell(make_run):
    groups = group_runs([make_run("supervised", error=0.5), make_run("fixmatch", error=0.4)])
    assert told(groups, "FixMatch")["more than noise?"] == "one seed cannot tell"
    assert cells(groups, "FixMatch")["test error, last step, %"] == "40.00"


def test_labels_only_on_other_data_is_no_yardstick(make_runs):
    other = make_runs("supervised", [0.5, 0.5, 0.5], data__num_labeled=400)
    groups = group_runs([*other, *make_runs("fixmatch", [0.4, 0.4, 0.4])])
    assert difference_rows(groups) == []


def test_other_seeds_have_no_interval(make_run):
    theirs = [make_run("supervised", seed=seed, error=0.5) for seed in (0, 1)]
    ours = [make_run("fixmatch", seed=seed, error=0.4) for seed in (2, 3)]
    row = told(group_runs([*theirs, *ours]), "FixMatch")
    assert (row["95 % interval"], row["test images"]) == ("–", "–")


def test_the_record_for_programs(make_run, runs):
    unfinished = make_run("simmatch", size=3, seed=3, finished=False)
    record = comparison_record([*runs, unfinished], title="Which?", missing={"uda-0": "It broke."})
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["title"], record["missing"]) == ("Which?", {"uda-0": "It broke."})
    assert record["verdict"][0].startswith("The unlabeled images helped: ")
    assert record["runs"] == run_rows([*runs, unfinished])
    assert record["methods"][-1] == {
        "label": "SimMatch + EPASS (3)",
        "method": "simmatch",
        "projectors": 3,
        "strategy": "mean",
        "seeds": [0, 1, 2],
        "unfinished": 1,
        "error_last": {"mean": pytest.approx(0.22), "std": pytest.approx(statistics.pstdev([0.2, 0.23, 0.23]))},
        "accuracy": {"mean": pytest.approx(0.78), "std": pytest.approx(statistics.pstdev([0.2, 0.23, 0.23]))},
        "error_validation_selected": None,
        "error_best_on_test": {
            "mean": pytest.approx(0.21),
            "std": pytest.approx(statistics.pstdev([0.2, 0.23, 0.23])),
        },
        "ece": {"mean": pytest.approx(0.05), "std": pytest.approx(0)},
        "nll": {"mean": pytest.approx(0.4), "std": pytest.approx(0)},
        "coverage_end": {"mean": 1, "std": 0},
        "quality_end": {"mean": pytest.approx(0.78), "std": pytest.approx(statistics.pstdev([0.2, 0.23, 0.23]))},
        "seconds": {"mean": 601, "std": pytest.approx(statistics.pstdev([0, 1, 2]))},
        "ms_per_step": {"mean": 100, "std": 0},
    }
    (found,) = [row for row in record["differences"] if row["method"] == "SimMatch + EPASS (3)"]
    assert found == {
        "method": "SimMatch + EPASS (3)",
        "against": "labels only",
        "difference": pytest.approx(-0.3),
        "interval": pytest.approx([-0.3269, -0.2731], abs=1e-4),
        "more_than_noise": True,
        "seeds": 3,
        "test_images": 60,
    }
    alone = comparison_record([run for run in runs if run.recipe["seed"] == 0], title="", missing={})
    assert {row["more_than_noise"] for row in alone["differences"]} == {None}


def test_what_did_not_finish_is_last_and_says_so(make_run, runs):
    groups = group_runs([make_run("adamatch", finished=False), *runs])
    rows = table_rows(groups)
    assert rows[-1][1][:4] == ["AdaMatch", "0 (1 unfinished)", "–", "–"]
    assert len(rows) == 5


def test_the_pace_is_that_of_most_steps(make_run):
    run = make_run()
    assert ms_per_step(run) == 100
    for row in run.metrics[3:]:
        row["seconds"] += 1000  # one long pause
    assert ms_per_step(run) == 100
    run.metrics.clear()
    assert ms_per_step(run) is None


def test_one_line_per_run(tmp_path, runs, make_run):
    unfinished = make_run("uda", finished=False)
    path = write_rows(tmp_path / "new" / "results.csv", [*runs, unfinished])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert len(rows) == 13
    assert rows[7] | {"command": ""} == {
        "method": "simmatch",
        "projectors": "3",
        "strategy": "mean",
        "labels": "",
        "seed": "1",
        "steps": "400",
        "error_last": "0.23",
        "accuracy": "0.77",
        "error_validation_selected": "",
        "error_best_on_test": str(0.23 - 0.01),
        "ece": "0.05",
        "nll": "0.4",
        "coverage_end": "1.0",
        "quality_end": "0.77",
        "seconds": "601.0",
        "ms_per_step": "100.0",
        "device": "",
        "torch": "2.13.0",
        "commit": "abc123",
        "command": "",
    }
    assert rows[7]["command"] == "epass train --seed 1"
    assert (rows[0]["projectors"], rows[0]["coverage_end"]) == ("", "")
    assert (rows[12]["method"], rows[12]["error_last"], rows[12]["seconds"]) == ("uda", "", "")


def test_quality_is_that_of_the_end_or_nothing(make_run):
    run = make_run()
    del run.metrics[-1]["quality"]  # nothing was trusted in the last steps
    (row,) = run_rows([run])
    assert row["quality_end"] is None
    assert row["coverage_end"] == 1


def test_the_file_for_people(tmp_path, runs):
    path = write_table(tmp_path / "table.md", group_runs(runs), title="Which?", missing={"uda-0": "It broke."})
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()

    assert lines[0] == "# Which?"
    assert lines[2].startswith("The unlabeled images helped: SimMatch + EPASS (3), the best of 3 configurations,")
    table = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("|")]
    heads = table_heads(group_runs(runs))
    assert (table[0], table[6]) == (heads, list(DIFFERENCE_HEADS))
    assert [len(row) for row in table] == [len(heads)] * 6 + [len(DIFFERENCE_HEADS)] * 5
    assert [row[0] for row in table[2:6]] == ["SimMatch + EPASS (3)", "FixMatch", "**labels only**", "VAT"]
    assert [row[0] for row in table[8:]] == ["SimMatch + EPASS (3)", "FixMatch", "VAT"]
    assert "Of these 3 answers about noise" in text
    assert lines[-1] == "uda-0 is missing: It broke."


def test_a_bar_in_a_label_does_not_make_a_column(tmp_path, make_run):
    runs = [make_run("fixmatch", seed=seed, method__mode=mode) for seed, mode in enumerate(["a|b", "c"])]
    path = write_table(tmp_path / "table.md", group_runs(runs), title="Which?", missing={})
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {len(table_heads(group_runs(runs))) + 1}
