"""`epass compare`: runs are alike, nothing is trained twice or lost, and the tables say what the runs say."""

from __future__ import annotations

import csv
import inspect
import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from calling import Answer, Epass, call

from epass.app.compare import compare
from epass.app.contenders import Contender, parse_contenders, parse_methods, recipes_for, settings_by_method
from epass.app.request import Request, starting_recipe
from epass.engine.models import takes_projector
from epass.errors import InputError
from epass.evaluation import paired_interval
from epass.method import Batch, Outcome
from epass.methods import METHODS
from epass.methods.fixmatch import FixMatch
from epass.recipe import Recipe
from epass.runs import load_run

NAMES = ["supervised", "fixmatch", "simmatch+3"]
LABELS = ["labels only", "FixMatch", "SimMatch + EPASS (3)"]
FOLDERS = [f"{name}-{seed}" for seed in (0, 1) for name in NAMES]
TABLES = ("results.csv", "comparison.json", "table.md", "report.html")
TYPED = ("compare", "digits", "--methods", "fixmatch,simmatch+3", "--seeds", "2", "--steps", "4", "--labels", "20")


class Shown(NamedTuple):
    out: Path
    answer: Answer


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A finished comparison; tests must not change it."""
    out = tmp_path_factory.mktemp("compare") / "out"
    answer = call(*TYPED, "--out", out)
    assert answer.code == 0, answer.err
    return Shown(out, answer)


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds."""
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)


def results(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((out / f"{name}-{seed}" / "results.json").read_text()) for seed in (0, 1)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def files(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def in_runs(found: dict[Path, bytes], out: Path) -> dict[Path, bytes]:
    return {path: data for path, data in found.items() if path.parent != out}


def test_it_says_what_it_does_and_reports_every_run(shown: Shown) -> None:
    first, *lines = shown.answer.out.splitlines()

    assert first == (
        f"3 ways of training on digits, 2 seeds each: 6 runs of 4 steps with the network small, in {shown.out}."
    )
    told = [line.partition(" % test error")[0].strip() for line in lines if line.startswith("  ")]
    assert told == [  # all methods with one seed before the next seed
        f"{label}, seed {seed}: {100 * results(shown.out, name)[seed]['last']['error']:.1f}"
        for seed in (0, 1)
        for label, name in zip(LABELS, NAMES, strict=True)
    ]
    warnings = shown.answer.err.splitlines()  # four steps teach nothing
    assert all(line.startswith("Warning: The result of ") and "than guessing" in line for line in warnings)
    assert "\x1b" not in shown.answer.out


def test_runs_that_differ_in_nothing_but_method_projectors_and_seed(shown: Shown) -> None:
    assert {path.name for path in shown.out.iterdir()} == {*FOLDERS, *TABLES}
    for folder in FOLDERS:
        run = load_run(shown.out / folder)
        method, _, seed = folder.rpartition("-")
        assert run.recipe["seed"] == int(seed)
        assert run.recipe["data"] == {"name": "digits", "labels": 20}
        assert run.recipe["net"] == {"name": "small"}
        assert run.recipe["plan"] == load_run(shown.out / FOLDERS[0]).recipe["plan"]
        assert run.recipe["method"]["name"] == method.partition("+")[0]
        assert run.recipe.get("projector", {}).get("size") == (3 if "+3" in method else None)
        assert run.environment["command"] == f"epass {' '.join(TYPED)} --out {shown.out}"
        assert run.results is not None
        assert (run.results["steps"], run.results["labels"]) == (4, 20)


def test_one_line_per_run_says_what_the_run_says(shown: Shown) -> None:
    rows = rows_of(shown.out / "results.csv")

    page = (Path(__file__).parents[2] / "docs/evaluation.md").read_text(encoding="utf-8")
    explained = page.partition("| column of `results.csv` |")[2].splitlines()[2:]
    assert [name for row in explained for name in re.findall("`([a-z_]+)`", row.split(" | ")[0])][: len(rows[0])] == [
        *rows[0]
    ]
    assert [(row["method"], row["projectors"], row["seed"]) for row in rows] == [
        (name, size, seed) for seed in "01" for name, size in (("supervised", ""), ("fixmatch", ""), ("simmatch", "3"))
    ]
    for folder, row in zip(FOLDERS, rows, strict=True):
        run = load_run(shown.out / folder)
        assert run.results is not None
        assert float(row["error_last"]) == run.results["last"]["error"]
        assert float(row["error_best_on_test"]) == run.results["best_on_test"]["error"]
        assert float(row["nll"]) == run.results["last"]["nll"]
        assert row["coverage_end"] == str(run.metrics[-1].get("coverage", ""))
        assert row["torch"] == run.environment["torch"]
        assert (row["labels"], row["steps"], row["device"]) == ("20", "4", "cpu")


def test_the_table_on_the_screen_and_in_the_file_is_sorted_and_right(shown: Shown) -> None:
    mean = {
        label: statistics.mean(100 * run["last"]["error"] for run in results(shown.out, name))
        for label, name in zip(LABELS, NAMES, strict=True)
    }
    table = (shown.out / "table.md").read_text(encoding="utf-8")

    order = [line.split(" | ")[0].strip("|* ") for line in table.splitlines() if line.startswith("|")][2:5]
    assert order == sorted(LABELS, key=lambda label: mean[label])
    assert table.startswith("# digits with 20 labels: which method?\n")
    assert "| **labels only** | **2** |" in table
    for label, name in zip(LABELS, NAMES, strict=True):
        spread = statistics.pstdev(100 * run["last"]["error"] for run in results(shown.out, name))
        cell = f"{mean[label]:.2f} ± {spread:.2f}"
        line, *differences = [line for line in shown.answer.out.splitlines() if line.startswith(f"{label}  ")]
        assert cell in line
        assert cell in table
        assert len(differences) == (label != "labels only")
        for difference in differences:
            assert re.split(" {2,}", difference)[1:3] == ["labels only", f"{mean[label] - mean['labels only']:+.2f}"]


def test_the_columns_on_the_screen_are_those_that_say_something(shown: Shown) -> None:
    (head,) = [line for line in shown.answer.out.splitlines() if line.startswith("method ") and "seeds" in line[:40]]
    assert re.split(" {2,}", head.strip()) == [
        "method",
        "seeds",
        "test error, last step, %",
        "accuracy, %",
        "best on test, as papers report, %",
        "ECE, %",
    ]
    assert "95 % interval" in shown.answer.out


def test_differences_are_those_of_the_stored_answers(shown: Shown) -> None:
    record = json.loads((shown.out / "comparison.json").read_text(encoding="utf-8"))

    told = {(row["method"], row["against"]): row for row in record["differences"]}
    assert set(told) == {("FixMatch", "labels only"), ("SimMatch + EPASS (3)", "labels only")}
    wrong = {name: np.array([load_run(shown.out / f"{name}-{seed}").wrong for seed in (0, 1)]) for name in NAMES}
    gaps = wrong["fixmatch"].astype(int) - wrong["supervised"]
    row = told["FixMatch", "labels only"]
    assert row["difference"] == pytest.approx(gaps.mean())
    assert row["interval"] == pytest.approx(paired_interval(gaps.mean(axis=1), gaps.mean(axis=0)))
    assert (row["seeds"], row["test_images"]) == (2, gaps.shape[1])
    assert record["verdict"][0].endswith(f" seeds and {gaps.shape[1]} test images.")


@pytest.mark.usefixtures("no_page")
def test_the_three_errors_on_screen_in_csv_and_in_json(epass: Epass) -> None:
    line = ("compare", "digits", "--methods", "pi_model", "--seeds", "1", "--steps", "3", "--out", "out")
    answer = epass(*line, "--labels", "40", "--set", "data.validation=0.5", "--set", "plan.evaluate_every=1")

    assert answer.code == 0, answer.err
    heads = ("test error, last step, %", "accuracy, %", "validation selected, %", "best on test, as papers report, %")
    assert "   ".join(heads) in answer.out
    for row in rows_of(Path("out/results.csv")):
        found = load_run(f"out/{row['method']}-0").results
        assert found is not None
        for name in ("last", "validation_selected", "best_on_test"):
            assert float(row[f"error_{name}"]) == found[name]["error"]
    again = epass(*line, "--labels", "40", "--set", "data.validation=0.5", "--set", "plan.evaluate_every=1", "--json")
    assert (again.code, again.err) == (0, "")
    record = json.loads(again.out)
    assert record == json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))
    assert [row["error_validation_selected"] for row in record["runs"]] == [
        float(row["error_validation_selected"]) for row in rows_of(Path("out/results.csv"))
    ]


@pytest.mark.usefixtures("no_page")
def test_projectors_and_strategies_are_a_grid(epass: Epass) -> None:
    grid = ("--methods", "simmatch,pi_model", "--projectors", "1,2", "--strategies", "mean,concat", "--seeds", "1")
    answer = epass("compare", "digits", *grid, "--steps", "2", "--set", "net.width=4", "--out", "out")

    assert answer.code == 0, answer.err
    folders = ["supervised-0", "simmatch-0", "simmatch+2-0", "simmatch+2-concat-0", "pi_model-0"]
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == sorted(folders)
    rows = rows_of(Path("out/results.csv"))
    assert [(row["method"], row["projectors"], row["strategy"]) for row in rows] == [
        ("supervised", "", ""),
        ("simmatch", "1", ""),
        ("simmatch", "2", "mean"),
        ("simmatch", "2", "concat"),
        ("pi_model", "", ""),
    ]
    assert load_run("out/simmatch+2-concat-0").recipe["projector"]["combine"] == "concat"
    record = json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in record["differences"] if row["against"] == "SimMatch"] == [
        "SimMatch + EPASS (2) · combine = concat",
        "SimMatch + EPASS (2) · combine = mean",
    ]
    assert sum("whether EPASS helped SimMatch" in sentence for sentence in record["verdict"]) == 2


def test_the_verdict_and_where_everything_is(shown: Shown) -> None:
    out = shown.answer.out

    assert "the best of 2 configurations, ends at " in out
    assert "the noise of 2 seeds" in out
    assert out.endswith(f"Open the page: {(shown.out / 'report.html').resolve()}\n")
    page = (shown.out / "report.html").read_text(encoding="utf-8")
    assert "digits with 20 labels: which method?" in page
    for label in LABELS:
        assert label in page


@pytest.mark.usefixtures("no_page")
def test_finished_runs_are_kept_and_unfinished_ones_resumed(epass: Epass, shown: Shown) -> None:
    out = Path("again")
    shutil.copytree(shown.out, out)
    before = files(out)
    for name in ("model.safetensors", "model.json", "predictions.npz", "results.json"):
        (out / "fixmatch-1" / name).unlink()
    max((out / "fixmatch-1" / "checkpoints").iterdir()).unlink()
    shutil.rmtree(out / "simmatch+3-1")
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*-0/*")}
    started = (out / "fixmatch-1" / "environment.json").stat().st_mtime_ns

    answer = epass(*TYPED, "--out", out)

    assert answer.code == 0, answer.err
    told = [line for line in answer.out.splitlines() if line.startswith("  ")]
    assert [line.endswith("(was there)") for line in told] == [True, True, True, True, False, False]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*-0/*")} == kept
    assert (out / "fixmatch-1" / "environment.json").stat().st_mtime_ns == started  # it went on, not from the start
    for name in ("fixmatch-1", "simmatch+3-1"):  # the same as if it had never stopped
        assert (out / name / "model.safetensors").read_bytes() == before[out / name / "model.safetensors"]
    assert [row["error_last"] for row in rows_of(out / "results.csv")] == [
        row["error_last"] for row in rows_of(shown.out / "results.csv")
    ]


@pytest.mark.usefixtures("no_page")
def test_more_methods_and_seeds_are_added_to_what_is_there(epass: Epass, shown: Shown) -> None:
    out = Path("more")
    shutil.copytree(shown.out, out)
    before = in_runs(files(out), out)

    answer = epass(*TYPED[:3], "fixmatch,simmatch+3,pi_model", "--seeds", "3", *TYPED[6:], "--out", out)

    assert answer.code == 0, answer.err
    assert in_runs(files(out), out).items() >= before.items()
    assert len(rows_of(out / "results.csv")) == 12


@pytest.mark.usefixtures("no_page")
def test_finished_runs_that_a_smaller_comparison_leaves_out_are_named(epass: Epass, shown: Shown) -> None:
    out = Path("fewer")
    shutil.copytree(shown.out, out)

    answer = epass(*TYPED[:3], "fixmatch", "--seeds", "1", *TYPED[6:], "--out", out)

    assert answer.code == 0, answer.err
    assert answer.err.startswith(
        "Warning: 'fewer' also holds fixmatch-1, simmatch+3-0, simmatch+3-1, supervised-1, which its tables leave out "
        "now: name all --methods and --seeds that they shall show, or another --out.\n"
    )
    assert len(rows_of(out / "results.csv")) == 2
    whole = epass(*TYPED, "--out", out)
    assert "also holds" not in whole.err
    assert len(rows_of(out / "results.csv")) == 6


def test_another_recipe_in_the_folder_is_refused_and_nothing_changes(epass: Epass, shown: Shown) -> None:
    before = files(shown.out)

    answer = epass("compare", "digits", "--methods", "pi_model,fixmatch", "--steps", "5", "--out", shown.out)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(
        f"Error: '{shown.out / 'supervised-0'}' was started with another recipe (data.labels: "
    )
    assert answer.err.endswith("): choose another folder with --out.\n")
    assert "plan.steps: 4 -> 5" in answer.err
    assert files(shown.out) == before


@pytest.mark.usefixtures("no_page")
def test_a_method_that_fails_does_not_stop_the_others(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FixMatch, batch: Batch) -> Outcome:
        raise RuntimeError("the views\ndo not fit")

    typed = ("compare", "digits", "--methods", "fixmatch,pi_model", "--seeds", "2", "--steps", "2", "--out", "out")
    with monkeypatch.context() as patched:
        patched.setattr(FixMatch, "forward", broken)
        answer = epass(*typed)

    assert answer.code == 1
    assert answer.err.splitlines() == [
        "Error: fixmatch-0 failed: RuntimeError: the views do not fit",
        "Error: fixmatch-1 failed: RuntimeError: the views do not fit",
        "Error: 2 of 6 runs failed (fixmatch-0, fixmatch-1); the same command tries them again.",
    ]
    for name in ("supervised", "pi_model"):
        for seed in (0, 1):
            assert Path(f"out/{name}-{seed}/results.json").exists()
    table = Path("out/table.md").read_text(encoding="utf-8")
    assert "fixmatch-1 is missing: RuntimeError: the views do not fit" in table
    assert "| FixMatch | 0 (2 unfinished) | – |" in table
    assert [row["error_last"] == "" for row in rows_of(Path("out/results.csv"))] == [False, True, False] * 2
    assert "the best of" not in answer.out  # one contender is left

    again = epass(*typed)

    assert again.code == 0, again.err
    assert again.out.count("(was there)") == 4
    assert "missing" not in Path("out/table.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_page")
def test_a_loss_that_is_no_number_is_a_failure_like_any_other(epass: Epass) -> None:
    answer = epass(
        "compare", "digits", "--methods", "pi_model", "--seeds", "1", "--steps", "2", "--set", "plan.lr=1e38"
    )

    assert answer.code == 1
    assert answer.err.startswith("Error: supervised-0 failed: NotFiniteError: ")
    assert "2 of 2 runs failed" in answer.err
    assert "No run has finished yet" in answer.out


@pytest.mark.usefixtures("no_page")
def test_interrupted_it_says_how_to_go_on_and_keeps_what_is_done(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.engine import run as running

    def interrupted(recipe: Recipe, *arguments: Any, **named: Any) -> Iterator[Any]:
        for report in run(recipe, *arguments, **named):
            if recipe.method["name"] == "fixmatch" and report.step == 2:
                raise KeyboardInterrupt
            yield report

    run = running.run
    typed = ("compare", "digits", "--methods", "fixmatch", "--seeds", "1", "--steps", "3", "--out", "out")
    with monkeypatch.context() as patched:
        patched.setattr(running, "run", interrupted)
        answer = epass(*typed)

    assert answer.code == 130
    assert answer.err == "Stopped: the same command goes on from here; finished runs are in out.\n"
    assert [row["method"] for row in rows_of(Path("out/results.csv"))] == ["supervised"]

    again = epass(*typed)
    assert again.code == 0, again.err
    assert again.out.count("(was there)") == 1
    assert len(rows_of(Path("out/results.csv"))) == 2


@pytest.mark.usefixtures("no_page")
def test_own_images_and_one_seed(epass: Epass) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    np.savez("mine.npz", train_images=pixels, train_labels=np.where(np.arange(60) < 40, np.arange(60) % 2, -1))

    answer = epass(
        "compare", "mine.npz", "--methods", "fixmatch", "--seeds", "1", "--steps", "1", "--set", "net.width=4"
    )

    assert answer.code == 0, answer.err
    assert answer.out.startswith("2 ways of training on mine, 1 seed each: 2 runs of 1 steps ")
    assert load_run("runs/compare/fixmatch-0").recipe["net"] == {"name": "small", "width": 4}
    assert Path("runs/compare/table.md").read_text().startswith("# mine with all labels: which method?")
    assert "one seed cannot tell" in answer.out


def names(text: str) -> list[str]:
    return [contender.name for contender in parse_methods(text)]


def test_labels_only_is_always_there_and_nothing_twice() -> None:
    assert names("simmatch+3, fixmatch,simmatch,fixmatch,simmatch+1,") == [
        "supervised",
        "simmatch+3",
        "fixmatch",
        "simmatch",
    ]
    assert names("supervised") == names("") == ["supervised"]


def test_all_means_every_method_and_every_projector_three_times() -> None:
    with_embedding = [name for name, cls in METHODS.items() if takes_projector(cls)]

    assert {"simmatch", "comatch"} <= set(with_embedding)
    assert sorted(names("all")) == sorted([*METHODS, *(f"{name}+3" for name in with_embedding)])
    assert names("all,simmatch+5")[-1] == "simmatch+5"


def test_a_plain_method_has_one_projector_where_it_has_any() -> None:
    assert parse_methods("simmatch,fixmatch")[1:] == [Contender("simmatch", 1), Contender("fixmatch", None)]


def test_projectors_and_strategies_are_for_those_that_have_them() -> None:
    found = parse_contenders("fixmatch,simmatch,comatch+5", "1,3", "mean,sum")
    assert [contender.name for contender in found] == [
        "supervised",
        "fixmatch",
        "simmatch",
        "simmatch+3",
        "simmatch+3-sum",
        "comatch+5",
        "comatch+5-sum",
    ]
    assert [contender.name for contender in parse_contenders("simmatch", "3", "concat")] == [
        "supervised",
        "simmatch+3-concat",
    ]
    everyone = {contender.name for contender in parse_contenders("all", "1,2", None)}
    assert {"simmatch", "simmatch+2", "comatch+2", "fixmatch"} <= everyone
    assert not any("+3" in name for name in everyone)


def test_a_setting_of_methods_goes_to_those_that_have_it() -> None:
    contenders = parse_methods("fixmatch,simmatch,pi_model")
    found = settings_by_method(["method.threshold=0.8", "projector.out_dim=8", "plan.lr=0.1"], contenders)

    assert found == {
        "supervised": ("plan.lr=0.1",),
        "fixmatch": ("method.threshold=0.8", "plan.lr=0.1"),
        "simmatch": ("method.threshold=0.8", "projector.out_dim=8", "plan.lr=0.1"),
        "pi_model": ("plan.lr=0.1",),
    }


def test_every_built_in_comparison_is_one() -> None:
    for data in ("digits", "somewhere/photos"):
        recipes = recipes_for(Request(data=data), parse_methods("all"), 3)
        assert {recipe.seed for recipe in recipes.values()} == {3}


def test_recipes_with_other_networks_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def uneven(request: Request) -> Recipe:
        recipe = starting_recipe(request)
        return replace(recipe, net={"name": "small", "width": 8}) if request.method == "fixmatch" else recipe

    monkeypatch.setattr("epass.app.contenders.starting_recipe", uneven)
    with pytest.raises(
        InputError, match=r"^The recipes of 'supervised' and 'fixmatch' differ in net.width: not set -> 8: make"
    ):
        recipes_for(Request(data="digits"), parse_methods("fixmatch"), 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "simatch"], "Unknown method 'simatch': did you mean 'simmatch'?"),
        (["--methods", "simmatch+three"], "'simmatch+three' names no number of projectors: write simmatch+3."),
        (["--methods", "simmatch+0"], "write simmatch+3."),
        (["--methods", "fixmatch+3"], "'fixmatch' has no embedding and so takes no projector: use one of comatch, "),
        (["--set", "seed=3"], "'seed' is not one for all runs: it is decided by --seeds."),
        (["--set", "projector.size=5"], "it is decided by --projectors 1,3 or --methods simmatch+3."),
        (["--set", "projector.combine=sum"], "it is decided by --strategies mean,concat."),
        (["--projectors", "1,three"], "'three' is no number of projectors: write --projectors 1,3."),
        (["--projectors", ","], "',' is no number of projectors: write --projectors 1,3."),
        (
            ["--methods", "fixmatch", "--projectors", "1,3"],
            "--projectors is for methods with an embedding: use one of ",
        ),
        (["--strategies", "mean,concta"], "Unknown strategy 'concta': did you mean 'concat'?"),
        (["--strategies", ""], "--strategies names none: use some of mean, sum, concat."),
        (["--methods", "simmatch", "--strategies", "sum"], "--strategies is for several projectors: add --projectors"),
        (["--set", "method.treshold=1"], "did you mean 'method.threshold'?"),
        (["--methods", "supervised", "--set", "projector.out_dim=8"], "None of supervised has the setting 'projector."),
        (["--set", "plan.stps=1"], "did you mean 'plan.steps'?"),
        (["--net", "smal"], "did you mean 'small'?"),
        (["--labels", "45"], "use 40 or 50."),
        (["--steps", "0"], "plan.steps must be at least 1"),
        (["--device", "cdua"], "did you mean 'cuda'?"),
        (["--out", "tiny.toml"], "'tiny.toml' is a file; the runs need a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_sentence_before_anything_is_trained(
    epass: Epass, tmp_path: Path, arguments: list[str], words: str
) -> None:
    answer = epass("compare", "digits", "--seeds", "1", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Error: ")
    assert words in answer.err
    assert answer.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


def test_a_folder_of_somebody_else_is_refused(epass: Epass) -> None:
    Path("out/simmatch-1").mkdir(parents=True)
    Path("out/simmatch-1/thesis.txt").write_text("mine")

    answer = epass("compare", "digits", "--out", "out")

    assert (answer.code, answer.out) == (2, "")
    assert "'out/simmatch-1' is not empty and holds no run" in answer.err
    assert [str(path) for path in Path("out").rglob("*")] == ["out/simmatch-1", "out/simmatch-1/thesis.txt"]


def spoil_results(folder: Path) -> str:
    (folder / "results.json").write_text("{")
    return f"'{folder / 'results.json'}' is damaged: "


def make_newer(folder: Path) -> str:
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("format = 1", "format = 2"))
    return f"{recipe}: this version reads recipes with 'format = 1'."


def lose_predictions(folder: Path) -> str:
    (folder / "predictions.npz").unlink()
    return f"'{folder}' is incomplete: it has results, but lacks predictions.npz."


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("spoil", [spoil_results, make_newer, lose_predictions])
def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(
    epass: Epass, shown: Shown, spoil: Callable[[Path], str]
) -> None:
    shutil.copytree(shown.out, "out")
    sentence = spoil(Path("out/simmatch+3-1"))
    spoiled = in_runs(files(Path("out")), Path("out"))

    answer = epass(*TYPED, "--out", "out")

    assert answer.code == 1
    first, last = answer.err.splitlines()
    assert first.startswith(f"Left out: {sentence}")
    assert last == "Error: 1 of 6 runs are left out (simmatch+3-1); without their folders they start anew."
    assert in_runs(files(Path("out")), Path("out")) == spoiled
    assert "The unlabeled images" in answer.out
    assert len(rows_of(Path("out/results.csv"))) == 5
    assert "simmatch+3-1 is missing: " in Path("out/table.md").read_text(encoding="utf-8")
    assert json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))["missing"].keys() == {"simmatch+3-1"}


def test_help_teaches(epass: Epass) -> None:
    answer = epass("compare", "--help")

    assert answer.code == 0
    for words in (
        "simmatch,simmatch+3",
        "--methods all",
        "results.csv",
        "table.md",
        "Labels only",
        "goes on where it was",
        "--projectors 1,3 --strategies mean,concat",
        "as papers report",
        "comparison.json",
    ):
        assert words in answer.out


def test_it_starts_from_what_can_be_told_apart() -> None:
    typed = inspect.signature(compare).parameters
    assert (typed["methods"].default, typed["seeds"].default) == ("fixmatch,simmatch,simmatch+3", 3)
