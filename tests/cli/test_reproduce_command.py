"""`epass reproduce`: counts are counted, runs are those of the recipes, and only what is alike is compared."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling import Answer, Epass, call

from epass.app.cells import recipe_of_trial
from epass.app.reproduce import Asked
from epass.networks import NETWORKS
from epass.recipe import Recipe, read_recipe
from epass.reproduce import Outcome, Trial, ablation_sheet, obstacles, on_other_data, parameters, read_benchmark
from epass.reproduce.counts import count, counted
from epass.reproduce.sheet import in_tex
from epass.runs import load_run

SHORT = ("--scale", "0.005")  # 3 of 600 steps


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A finished table over two seeds; tests must not change it."""
    out = tmp_path_factory.mktemp("reproduce") / "out"
    answer = call("reproduce", "projectors", "--data", "digits", *SHORT, "--seeds", "2", "--out", out)
    assert answer.code == 0, answer.err
    return out, answer


def results_with(error: float) -> dict[str, Any]:
    return {"last": {"error": error}, "best_on_test": {"error": error / 2}}


def trial_of(table: str, row: str, column: str) -> Trial:
    (found,) = [t for t in read_benchmark(table).trials if (t.row, t.column.name) == (row, column)]
    return found


def recipe_on(trial: Trial, data: str, scale: float, seed: int) -> Recipe:
    """The recipe of a cell on other data."""
    trial = on_other_data(trial, data)
    assert trial.recipe is not None
    return recipe_of_trial(trial, read_recipe(trial.recipe), seed, Asked("strategies", data=data, scale=scale))


# Parameters


def test_every_network_that_exists_has_the_published_count() -> None:
    cells = parameters().cells
    here = [cell for cell in cells if cell["network"] in NETWORKS]
    unpublished = {"small", "resnet-18", "mlp", *(name for name in NETWORKS if name.startswith("efficientnet"))}
    assert {cell["network"] for cell in here} == set(NETWORKS) - unpublished
    assert [cell for cell in here if cell["against_code"] != 0] == []
    assert {cell["projectors"] for cell in here} == {None, 1, 3}
    assert len({cell["network"] for cell in cells} - set(NETWORKS)) == 2


def test_the_paper_rounds_its_counts_except_those_of_imagenet() -> None:
    far = [cell for cell in parameters().cells if abs(cell["against_paper_millions"] or 0) > 0.07]
    assert [(cell["network"], cell["projectors"], cell["against_paper_millions"]) for cell in far] == [
        ("resnet-50", 3, 8.932904)
    ] * 2


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, 0),
        ({"classes": 11}, 129),
        ({"projectors": 2, "out_dim": 64}, 2 * (128 * 128 + 128 + 128 * 64 + 64)),
        ({"net": {"stem_bias": False}}, -16),
        ({"heads": 1}, 0),
    ],
)
def test_a_count_contains_what_the_row_says(changes: dict[str, Any], more: int) -> None:
    assert count({"network": "wrn-28-2", "classes": 10} | changes) == 1_467_626 + more


def test_a_wrong_count_shows() -> None:
    row = {"method": "FixMatch", "network": "wrn-28-2", "classes": 10, "code": 1_467_000, "paper": "1.5"}
    cell = counted(row)
    assert (cell["against_code"], cell["against_paper_millions"]) == (626, -0.032374)


def test_parameters_are_printed_and_written(epass: Epass, tmp_path: Path) -> None:
    answer = epass("reproduce", "parameters", "--out", tmp_path / "new")
    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"wrn-28-8 +100 +CoMatch +3 × 64 +24\.30 M +24,287,492 +24,287,492 +-0\.01 M +0", answer.out)
    assert re.search(r"wrn-28-8 +100 +SimMatch +3 × 128 +24\.39 M .* \+0\.00 M +0", answer.out)
    assert re.search(r"vit-tiny-patch4-32 .* 5,362,376 +no such network here", answer.out)
    cells = json.loads(epass("reproduce", "parameters", "--json").out)
    with (tmp_path / "new" / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{key: "" if value is None else str(value) for key, value in cell.items()} for cell in cells]


def test_a_file_in_the_place_of_the_folder_is_refused(epass: Epass, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for table in ("parameters", "strategies"):
        answer = epass("reproduce", table, "--out", file)
        assert answer.code == 2
        assert answer.err.startswith(f"Error: '{file}' is a file")
    assert file.read_text() == "mine"


# Ablations


def test_the_cells_are_those_of_the_paper() -> None:
    projectors = {trial.row: trial.paper for trial in read_benchmark("projectors").trials}
    assert len(projectors) == 8
    assert projectors["simmatch+3"] == ["75.3"]
    assert projectors["comatch"] == ["73.6"]
    strategies = {(trial.row, trial.column.name): trial.paper for trial in read_benchmark("strategies").trials}
    assert len(strategies) == 6
    assert strategies["simmatch+3", "mean"] == ["75.3"]
    assert strategies["comatch+3", "concat"] == ["74.0"]


def test_a_recipe_is_the_data_sets_own_but_shorter() -> None:
    recipe = recipe_on(trial_of("strategies", "comatch+3", "concat"), "digits", 0.1, seed=7)
    own = read_recipe("digits-comatch")
    wanted = {"plan.steps": 60, "projector.size": 3, "projector.combine": "concat", "seed": 7}
    assert recipe == own.with_settings(wanted)
    assert recipe.method["warmup_steps"] == 6


def test_data_without_recipes_takes_the_one_for_folders(tmp_path: Path) -> None:
    trial = trial_of("projectors", "simmatch+2", "10percent")
    recipe = recipe_on(trial, str(tmp_path), 1.0, seed=0)
    assert recipe == read_recipe("folder-simmatch").with_settings({"data.name": str(tmp_path), "projector.size": 2})
    assert recipe_on(trial, "folder", 1.0, seed=0).data["name"] == "folder"


def test_every_run_is_in_its_folder(shown: tuple[Path, Answer]) -> None:
    out, _ = shown
    names = [
        f"{method}{size}-{seed}"
        for method in ("comatch", "simmatch")
        for size in ("", "+2", "+3", "+4")
        for seed in (0, 1)
    ]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(names)
    run = load_run(out / "simmatch+4-1")
    assert (run.recipe["method"]["name"], run.recipe["projector"]["size"], run.recipe["seed"]) == ("simmatch", 4, 1)
    assert run.recipe["plan"]["steps"] == 3


def test_the_table_says_what_the_runs_say(shown: tuple[Path, Answer]) -> None:
    out, answer = shown
    with (out / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["projectors"]) for row in rows] == [
        (m, p) for m in ("comatch", "simmatch") for p in "1234"
    ]
    results = [load_run(out / f"simmatch+3-{seed}").results for seed in (0, 1)]
    low, high = sorted(100 * (1 - found["last"]["error"]) for found in results if found)
    cell = rows[6]
    assert float(cell["ours"]) == pytest.approx((low + high) / 2, abs=1e-3)
    assert float(cell["std"]) == pytest.approx((high - low) / 2, abs=1e-3)
    assert (cell["paper"], cell["seeds"], cell["difference"], cell["scale"]) == ("75.3", "2", "", "0.005")
    line = f"{(low + high) / 2:.2f} ± {(high - low) / 2:.2f}"
    assert re.search(rf"SimMatch +3 +75\.3 +{line}", answer.out)
    assert f"| SimMatch | 3 | 75.3 | {line} |" in (out / "table.md").read_text()
    assert f"SimMatch & 3 & 75.3 & {line.replace('±', '$' + chr(92) + 'pm$')} " in (out / "table.tex").read_text()


def test_it_is_said_once_that_nothing_can_be_compared(shown: tuple[Path, Answer]) -> None:
    out, answer = shown
    for text in (answer.out, (out / "table.md").read_text(), (out / "table.tex").read_text()):
        assert text.count("Not comparable") == 1
        assert "data.name: imagenet -> digits" in text
        assert "scale: 1 -> 0.005" in text
        assert "difference, points" not in text


def test_nothing_is_trained_twice(shown: tuple[Path, Answer], epass: Epass) -> None:
    out, _ = shown
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    answer = epass("reproduce", "projectors", *SHORT, "--seeds", "2", "--out", out, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before
    assert [cell["seeds"] for cell in json.loads(answer.out)] == [2] * 8


def test_another_scale_needs_another_folder(shown: tuple[Path, Answer], epass: Epass) -> None:
    answer = epass("reproduce", "projectors", "--scale", "0.01", "--out", shown[0])
    assert answer.code == 2
    assert "plan.steps: 3 -> 6" in answer.err
    assert answer.err.endswith("choose another folder with --out.\n")


def test_strategies_print_their_cells(epass: Epass, tmp_path: Path) -> None:
    answer = epass("reproduce", "strategies", "--scale", "0.0001", "--out", tmp_path / "out", "--json")
    assert (answer.code, answer.err) == (0, "")
    cells = json.loads(answer.out)
    keys = [(method, strategy) for method in ("comatch", "simmatch") for strategy in ("concat", "sum", "mean")]
    assert [(cell["method"], cell["strategy"]) for cell in cells] == keys
    assert all(cell["std"] is None and cell["difference"] is None and 0 < cell["ours"] < 100 for cell in cells)
    recipes = {strategy: load_run(tmp_path / "out" / f"simmatch+3{strategy}-0").recipe for strategy in ("", "-concat")}
    assert recipes["-concat"]["projector"] == recipes[""]["projector"] | {"combine": "concat"}
    assert recipes[""]["plan"]["steps"] == 1


def test_a_run_that_fails_leaves_a_gap(epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.engine.run import run

    def trip(recipe: Any, *arguments: Any, **others: Any) -> Any:
        if recipe.projector.get("combine") == "sum":
            raise RuntimeError("tripped")
        return run(recipe, *arguments, **others)

    monkeypatch.setattr("epass.engine.run.run", trip)
    answer = epass("reproduce", "strategies", "--scale", "0.0001", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "2 of 6 runs failed (comatch+3-sum-0, simmatch+3-sum-0)" in answer.err
    assert re.search(r"SimMatch +sum +74\.8 +–", answer.out)
    assert re.search(r"SimMatch +mean +75\.3 +[0-9.]+", answer.out)


def test_a_stop_keeps_what_there_is(epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.engine.run import run

    def stop(recipe: Any, *arguments: Any, **others: Any) -> Any:
        if recipe.projector.get("combine") == "sum":
            raise KeyboardInterrupt
        return run(recipe, *arguments, **others)

    monkeypatch.setattr("epass.engine.run.run", stop)
    out = tmp_path / "out"
    answer = epass("reproduce", "strategies", "--scale", "0.0001", "--out", out)
    assert answer.code == 130
    assert answer.err == f"Stopped: the same command goes on from here; finished runs are in {out}.\n"
    with (out / "table.csv").open(newline="") as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["1", "0", "0", "0", "0", "0"]


def test_a_damaged_run_is_left_out_and_the_rest_goes_on(epass: Epass, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = ("reproduce", "strategies", "--scale", "0.0001", "--only", "simmatch+3", "--out", out)
    assert epass(*line).code == 0
    (out / "simmatch+3-sum-0" / "results.json").write_text('{"last": ')
    (out / "simmatch+3-0" / "results.json").unlink()

    answer = epass(*line)

    assert answer.code == 1
    left_out, end = answer.err.splitlines()
    assert left_out.startswith(f"Left out: '{out}/simmatch+3-sum-0/results.json' is damaged")
    assert end == ("Error: 1 of 3 runs are left out (simmatch+3-sum-0); without their folders they start anew.")
    assert "1 run to train, 1 finished, 1 skipped" in answer.out
    assert re.search(r"SimMatch +sum +74\.8 +–", answer.out)
    assert re.search(r"SimMatch +mean +75\.3 +[0-9.]+", answer.out)


def test_an_ablation_looks_for_no_data(epass: Epass) -> None:
    answer = epass("reproduce", "projectors", "--root", "data", "--dry-run")

    assert answer.code == 2
    assert "Unknown flag" in answer.err


def test_an_ablation_has_a_plan(epass: Epass, tmp_path: Path) -> None:
    answer = epass("reproduce", "strategies", "--only", "comatch+3", "--columns", "concat", "--dry-run")

    assert (answer.code, answer.err) == (0, "")
    changes = r"projector\.combine=concat, projector\.size=3"
    assert re.search(rf"comatch\+3 +concat +0 +digits-comatch +{changes} +600 +to train", answer.out)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("--data", "cifar10"), "'cifar-10-batches-py'"),
        (("--data", "imagenet"), "'imagenet' is not built in: give the path of its original files"),
        (("--data", "digit"), "did you mean 'digits'?"),
        (("--data", "folder"), "There is no file or folder 'folder'"),
        (("--scale", "0"), "--scale is a share of the recipe's steps, above 0 and at most 1, not 0."),
        (("--scale", "1.5"), "not 1.5."),
        (("--scale", "nan"), "not nan."),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    typed: tuple[str, ...], sentence: str, epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = epass("reproduce", "projectors", *typed)
    assert answer.code == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_only_the_papers_conditions_can_be_compared() -> None:
    table = read_benchmark("projectors")
    labels = {"data.name": "imagenet", "data.label_share": 0.1, "net.name": "resnet-50"}
    recipe = read_recipe("digits-simmatch").with_settings(labels)
    assert obstacles(table, [recipe], instead="imagenet") == []
    digits = recipe.with_settings({"data.name": "digits"})
    assert obstacles(table, [digits], instead="digits") == ["data.name: imagenet -> digits"]
    assert obstacles(table, [recipe], scale=0.5) == ["scale: 1 -> 0.5"]
    fewer = recipe.with_settings({"data.label_share": None})
    assert obstacles(table, [fewer]) == ["data.label_share: 0.1 -> not set"]
    assert len(obstacles(table, [replace(recipe, net={"name": "small"})])) == 1
    longer = {"plan.lr": 1.0, "net.name": "resnet-50"}
    assert obstacles(table, [recipe], settings=longer) == ["plan.lr: that of the recipe -> 1.0"]


def test_a_difference_is_ours_less_the_papers() -> None:
    table = read_benchmark("projectors")
    three, four = (trial_of("projectors", f"simmatch+{size}", "10percent") for size in (3, 4))
    outcomes = {three: Outcome(None, [results_with(0.25), results_with(0.26)]), four: Outcome(None, [])}
    sheet = ablation_sheet(table, outcomes, odd=[], instead="imagenet", scale=1.0)
    assert [cell["difference"] for cell in sheet.cells] == [pytest.approx(-0.8), None]
    assert [cell["seeds"] for cell in sheet.cells] == [2, 0]
    assert [cell["projectors"] for cell in sheet.cells] == [3, 4]
    assert sheet.cells[0]["ours_best_on_test"] == pytest.approx(87.25)
    assert sheet.rows == [
        ["SimMatch", "3", "75.3", "74.50 ± 0.50", "-0.80"],
        ["SimMatch", "4", "75.2", "–", "–"],
    ]
    assert sheet.heads[-1] == "difference, points"
    assert "Not comparable" not in sheet.as_markdown()


def test_tex_prints_signs_as_they_are() -> None:
    assert in_tex("50 % of a_b & c ± 1 × 2 – $\\") == r"50 \% of a\_b \& c $\pm$ 1 $\times$ 2 -- \$\textbackslash{}"
