"""`epass reproduce` for tables of methods by data sets: a made-up one of seconds, on digits in a file."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import Answer, Epass, call
from sklearn import metrics

from epass.app.cells import absent, find_data
from epass.data import open_dataset
from epass.recipe import read_recipe
from epass.reproduce import obstacles, read_benchmark
from epass.reproduce.sheet import PAPER
from epass.runs import load_run

# `tiny` can be there, cifar100 is not, usb_eurosat has no recipe of uda, and tiny has no 5,000 labels.
TABLE = """
title = "Made up: test error"
setup = "nowhere"
metrics = ["error"]
moment = "best_on_test"
note = "Nothing of this is in the paper."

[columns.tiny-40]
title = "Tiny, 40 labels"
data = "tiny"
recipes = ["digits"]
settings = { "data.labels" = 40 }

[columns.tiny-50]
title = "Tiny, 50 labels"
data = "tiny"
recipes = ["digits"]
settings = { "data.labels" = 50 }

[columns.many]
title = "Tiny, 5,000 labels"
data = "tiny"
recipes = ["digits"]
settings = { "data.labels" = 5000 }

[columns.absent]
title = "CIFAR-100, 400 labels"
data = "cifar100"
recipes = ["cifar100"]

[columns.bare]
title = "EuroSAT"
data = "eurosat"
recipes = ["usb_eurosat"]

[paper]
uda = ["9.00±0.50", "", "", "8.00", "7.00"]
simmatch = ["5.00±0.10", "4.00±0.20", "3.00"]
"simmatch+3" = ["4.50±0.10"]
"""
SHORT = ("--scale", "0.005")  # 3 of 600 steps


def write_data(root: Path) -> None:
    """The digits as tiny.npz, in the place where `epass download` would put it."""
    (root / "tiny").mkdir(parents=True)
    digits = open_dataset("digits")
    assert digits.test is not None
    arrays = {"train": digits.train, "test": digits.test}
    images = {f"{name}_images": part.pixels.numpy() for name, part in arrays.items()}
    np.savez(root / "tiny" / "tiny.npz", **images, **{f"{n}_labels": part.labels.numpy() for n, part in arrays.items()})


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data; for the time of these tests, `classic` is the table above."""
    home = tmp_path_factory.mktemp("benchmarks")
    shutil.copytree(PAPER, home, dirs_exist_ok=True)
    (home / "classic.toml").write_text(TABLE, encoding="utf-8")
    write_data(home / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("epass.reproduce.sheet.PAPER", home)
        yield home


@pytest.fixture(scope="module")
def shown(made_up: Path) -> tuple[Path, Answer]:
    """The table over two seeds; tests must not change it."""
    out = made_up / "out"
    answer = call("reproduce", "classic", *SHORT, "--seeds", "2", "--root", made_up / "data", "--out", out)
    assert answer.code == 0, answer.err
    return out, answer


def rows_of(file: Path) -> dict[tuple[str, str], dict[str, str]]:
    with file.open(newline="") as stream:
        return {(row["method"], row["column"]): row for row in csv.DictReader(stream)}


def test_every_cell_that_can_be_is_trained(shown: tuple[Path, Answer]) -> None:
    out, answer = shown
    names = ["tiny-40-uda", "tiny-40-simmatch", "tiny-40-simmatch+3", "tiny-50-simmatch"]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(
        f"{name}-{seed}" for name in names for seed in (0, 1)
    )
    recipe = load_run(out / "tiny-40-simmatch+3-1").recipe
    assert (recipe["projector"]["size"], recipe["data"]["labels"], recipe["seed"]) == (3, 40, 1)
    assert recipe["plan"]["steps"] == 3
    assert Path(recipe["data"]["name"]).name == "tiny.npz"
    assert load_run(out / "tiny-50-simmatch-0").recipe["data"]["labels"] == 50
    assert "Made up: test error: 10 runs to train, 0 finished, 4 skipped" in answer.out
    assert "Tiny, 40 labels: 6 runs of 3 steps" in answer.out


def test_the_table_holds_the_papers_value_ours_the_difference_and_the_scale(shown: tuple[Path, Answer]) -> None:
    out, answer = shown
    row = rows_of(out / "classic.csv")["simmatch", "tiny-40"]
    results = [load_run(out / f"tiny-40-simmatch-{seed}").results for seed in (0, 1)]
    best = [100 * found["best_on_test"]["error"] for found in results if found]
    last = [100 * found["last"]["error"] for found in results if found]
    assert float(row["ours"]) == pytest.approx(np.mean(best), abs=1e-3)
    assert float(row["std"]) == pytest.approx(np.std(best), abs=1e-3)
    assert float(row["ours_last"]) == pytest.approx(np.mean(last), abs=1e-3)
    assert float(row["difference"]) == pytest.approx(np.mean(best) - 5.0, abs=1e-3)
    assert (row["paper"], row["paper_std"], row["seeds"], row["scale"]) == ("5.0", "0.1", "2", "0.005")
    ours = [f"{np.mean(values):.2f} ± {np.std(values):.2f}" for values in (best, last)]
    cells = ["SimMatch", "Tiny, 40 labels", "5.00 ± 0.10", *ours, f"{np.mean(best) - 5:+.2f}", "0.005"]
    assert re.search(" +".join(map(re.escape, cells)), answer.out)
    assert f"| {' | '.join(cells)} |" in (out / "classic.md").read_text()
    assert " & ".join(cells).replace("±", r"$\pm$") in (out / "classic.tex").read_text()
    assert "Differences are those of runs of 0.005 of the length" in answer.out


def test_what_cannot_be_trained_says_why(shown: tuple[Path, Answer]) -> None:
    out, answer = shown
    rows = rows_of(out / "classic.csv")
    root = out.parent / "data"
    reasons = {
        ("uda", "absent"): f"cifar100 is not here: `epass download cifar100 --to {root}`",
        ("uda", "bare"): "UDA: there is no recipe for it in this protocol",
    }
    for key, reason in reasons.items():
        assert rows[key]["missing"] == reason
        assert f"Not trained, 1 cell: {reason}." in answer.out
    assert "5000 labels ask for 500 of every class" in rows["simmatch", "many"]["missing"]
    assert re.search(r"UDA +CIFAR-100, 400 labels +8\.00 +no data +– +– +0\.005", answer.out)
    assert re.search(r"UDA +EuroSAT +7\.00 +no recipe", answer.out)
    assert re.search(r"SimMatch +Tiny, 5,000 labels +3\.00 +impossible", answer.out)


@pytest.fixture
def published_elsewhere(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that know another mean and deviation of `tiny` than its own."""
    shutil.copytree(made_up, tmp_path / "paper", ignore=shutil.ignore_patterns("data", "out"))
    with (tmp_path / "paper" / "normalization.toml").open("a") as file:
        file.write("[tiny]\nfiles = 'tiny'\nmean = [0.25]\nstd = [0.125]\n")
    monkeypatch.setattr("epass.reproduce.sheet.PAPER", tmp_path / "paper")


@pytest.mark.usefixtures("published_elsewhere")
def test_data_that_is_normalized_by_other_numbers_is_not_trained_on(epass: Epass, made_up: Path) -> None:
    answer = epass("reproduce", "classic", *SHORT, "--root", made_up / "data", "--out", "new", "--columns", "tiny-40")
    assert answer.code == 0, answer.err
    assert re.search(
        r"Not trained, 3 cells: Tiny, 40 labels: normalized by mean 0\.3.. and deviation 0\.3..; the published runs on "
        r"tiny have mean 0\.250 and deviation 0\.125: give the owner's files, or these with --data\.",
        answer.out,
    )
    assert re.search(r"SimMatch +Tiny, 40 labels +5\.00 ± 0\.10 +other normalization", answer.out)
    assert not [path for path in Path("new").iterdir() if path.is_dir()]


@pytest.mark.usefixtures("published_elsewhere")
def test_finished_runs_that_were_normalized_by_other_numbers_have_no_difference(
    shown: tuple[Path, Answer], epass: Epass, tmp_path: Path
) -> None:
    shutil.copytree(shown[0], tmp_path / "copy")
    answer = epass("reproduce", "classic", *SHORT, "--out", tmp_path / "copy", "--columns", "tiny-40")
    assert answer.code == 0, answer.err
    assert "Without a difference, 3 cells: Tiny, 40 labels: normalized by mean 0.3" in answer.out
    row = rows_of(tmp_path / "copy" / "classic.csv")["simmatch", "tiny-40"]
    assert (row["difference"], row["missing"]) == ("", "")
    assert row["ours"]


def test_it_goes_on_where_it_was_even_without_the_data(shown: tuple[Path, Answer], epass: Epass) -> None:
    out, _ = shown
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    answer = epass("reproduce", "classic", *SHORT, "--seeds", "2", "--root", "nowhere", "--out", out, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before
    cells = {(cell["method"], cell["column"]): cell for cell in json.loads(answer.out)}
    assert [cell["seeds"] for cell in cells.values()] == [2, 0, 0, 2, 2, 0, 2]
    assert cells["simmatch", "many"]["missing"].startswith("tiny is not here: put its original files into nowhere/tiny")


def test_finished_runs_are_kept_when_the_data_has_moved(
    shown: tuple[Path, Answer], epass: Epass, tmp_path: Path
) -> None:
    shutil.copytree(shown[0].parent / "data", tmp_path / "moved")
    flags = ("--seeds", "2", "--columns", "tiny-40", "--root", tmp_path / "moved", "--out", shown[0], "--dry-run")
    answer = epass("reproduce", "classic", *SHORT, *flags)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("6 runs: 0 to train, 6 finished, 0 skipped\n")


def test_one_more_seed_trains_only_that(shown: tuple[Path, Answer], epass: Epass, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(shown[0], out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    root = shown[0].parent / "data"
    flags = ("--only", "simmatch", "--columns", "tiny-50", "--root", root, "--out", out)
    answer = epass("reproduce", "classic", *SHORT, "--seeds", "3", *flags)
    assert answer.code == 0, answer.err
    assert "1 run to train, 2 finished, 0 skipped" in answer.out
    changed = {path.parent.name for path in out.glob("*/*") if path.stat().st_mtime_ns != before.get(path)}
    assert changed == {"tiny-50-simmatch-2"}
    assert [row["seeds"] for row in rows_of(out / "classic.csv").values()] == ["3"]


def test_another_scale_needs_another_folder(shown: tuple[Path, Answer], epass: Epass) -> None:
    answer = epass("reproduce", "classic", "--scale", "0.01", "--root", shown[0].parent / "data", "--out", shown[0])
    assert answer.code == 2
    assert "plan.steps: 3 -> 6" in answer.err


def test_a_plan_trains_and_writes_nothing(shown: tuple[Path, Answer], epass: Epass, tmp_path: Path) -> None:
    root = shown[0].parent / "data"
    answer = epass("reproduce", "classic", *SHORT, "--root", root, "--out", tmp_path / "new", "--dry-run")
    assert (answer.code, answer.err) == (0, "")
    assert not (tmp_path / "new").exists()
    assert re.search(
        r"simmatch\+3 +tiny-40 +0 +digits-simmatch +data\.labels=40, projector\.size=3 +3 +to train", answer.out
    )
    assert re.search(r"uda +absent .* cifar100 is not here", answer.out)
    assert answer.out.endswith("7 runs: 5 to train, 0 finished, 2 skipped\n")
    plans = json.loads(
        epass("reproduce", "classic", *SHORT, "--root", root, "--out", shown[0], "--dry-run", "--json").out
    )
    assert [plan["state"] for plan in plans].count("finished") == 4
    assert plans[0]["folder"] == str(shown[0] / "tiny-40-uda-0")


def test_a_run_that_fails_leaves_a_gap(
    made_up: Path, epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from epass.engine.run import run

    def trip(recipe: Any, *arguments: Any, **others: Any) -> Any:
        if recipe.method["name"] == "uda":
            raise RuntimeError("tripped")
        return run(recipe, *arguments, **others)

    monkeypatch.setattr("epass.engine.run.run", trip)
    flags = ("--root", made_up / "data", "--columns", "tiny-40", "--only", "uda,simmatch", "--out", tmp_path / "out")
    answer = epass("reproduce", "classic", "--scale", "0.0001", *flags)
    assert answer.code == 1
    assert "1 of 2 runs failed (tiny-40-uda-0)" in answer.err
    rows = rows_of(tmp_path / "out" / "classic.csv")
    assert rows["uda", "tiny-40"]["missing"] == "tiny-40-uda-0: RuntimeError: tripped"
    assert re.search(r"UDA +Tiny, 40 labels +9\.00 ± 0\.50 +failed", answer.out)
    assert rows["simmatch", "tiny-40"]["seeds"] == "1"


def test_a_stop_keeps_what_there_is(
    made_up: Path, epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from epass.engine.run import run

    def stop(recipe: Any, *arguments: Any, **others: Any) -> Any:
        if recipe.method["name"] == "simmatch":
            raise KeyboardInterrupt
        return run(recipe, *arguments, **others)

    monkeypatch.setattr("epass.engine.run.run", stop)
    flags = ("--root", made_up / "data", "--columns", "tiny-40", "--out", tmp_path / "out")
    answer = epass("reproduce", "classic", "--scale", "0.0001", *flags)
    assert answer.code == 130
    rows = rows_of(tmp_path / "out" / "classic.csv")
    assert [row["seeds"] for row in rows.values()] == ["1", "0", "0"]
    assert rows["simmatch", "tiny-40"]["missing"].startswith("their turn has not come")


def test_damaged_data_is_a_gap_and_not_the_end(made_up: Path, epass: Epass, tmp_path: Path) -> None:
    broken = tmp_path / "data" / "tiny" / "tiny.npz"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"nothing")
    flags = ("--root", tmp_path / "data", "--columns", "tiny-50", "--out", tmp_path / "out", "--json")
    answer = epass("reproduce", "classic", *SHORT, *flags)
    assert (answer.code, answer.err) == (0, "")
    (cell,) = json.loads(answer.out)
    assert cell["missing"].startswith(f"'{broken}' cannot be read")


@pytest.mark.parametrize("content", ['{"last": ', '{"last": {}}'])
def test_a_damaged_run_is_a_gap_and_not_the_end(
    shown: tuple[Path, Answer], epass: Epass, tmp_path: Path, content: str
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(shown[0], out)
    damaged = out / "tiny-40-uda-0" / "results.json"
    damaged.write_text(content)
    flags = ("--columns", "tiny-40", "--root", shown[0].parent / "data", "--out", out)

    answer = epass("reproduce", "classic", *SHORT, *flags)

    assert answer.code == 1
    assert answer.err.startswith(f"Left out: '{damaged}' is damaged: ")
    assert "Error: 1 of 3 runs are left out (tiny-40-uda-0); without their folders they start anew." in answer.err
    rows = rows_of(out / "classic.csv")
    assert rows["uda", "tiny-40"]["missing"].startswith(f"'{damaged}' is damaged: ")
    assert rows["simmatch", "tiny-40"]["seeds"] == "1"
    assert re.search(r"UDA +Tiny, 40 labels +9\.00 ± 0\.50 +damaged", answer.out)
    assert damaged.read_text() == content


def test_settings_go_to_every_run_and_end_the_comparison(made_up: Path, epass: Epass, tmp_path: Path) -> None:
    flags = ("--root", made_up / "data", "--only", "simmatch", "--columns", "tiny-40", "--out", tmp_path / "out")
    answer = epass("reproduce", "classic", *SHORT, *flags, "--set", "plan.labeled_batch=16", "--json")
    assert answer.code == 0, answer.err
    assert load_run(tmp_path / "out" / "tiny-40-simmatch-0").recipe["plan"]["labeled_batch"] == 16
    assert json.loads(answer.out)[0]["difference"] is None
    assert "plan.labeled_batch: that of the recipe -> 16" in (tmp_path / "out" / "classic.md").read_text()


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("--scale", "0"), "--scale is a share of the recipe's steps, above 0 and at most 1, not 0."),
        (("--only", "simmatch,udo"), "Unknown method of this table 'udo': did you mean 'uda'?"),
        (("--columns", "tiny-41"), "Unknown column of this table 'tiny-41': did you mean 'tiny-40'?"),
        (("--set", "seed=3"), "'seed' is not one for all runs: it is decided by --seeds."),
        (("--set", "plan.steps=3"), "it is decided by --scale."),
        (("--set", "plan.labelled_batch=3"), "did you mean 'plan.labeled_batch'?"),
        (("--data", "digit"), "did you mean 'digits'?"),
        (("--device", "gpu"), "'gpu'"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(
    typed: tuple[str, ...], sentence: str, made_up: Path, epass: Epass, tmp_path: Path
) -> None:
    answer = epass("reproduce", "classic", *typed)
    assert answer.code == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


# The paper's own tables


def test_averages_over_classes_come_from_the_predictions(epass: Epass, tmp_path: Path) -> None:
    flags = ("--data", "digits", "--only", "simmatch+3", "--columns", "cifar10-40", "--out", tmp_path / "out")
    answer = epass("reproduce", "prf", *SHORT, *flags)
    assert answer.code == 0, answer.err
    run = load_run(tmp_path / "out" / "cifar10-40-simmatch+3-0")
    assert run.predictions is not None
    logits, labels = run.predictions.logits.astype(float), run.predictions.labels
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    macro: dict[str, Any] = {"average": "macro", "zero_division": 0}
    expected = {
        "precision": metrics.precision_score(labels, logits.argmax(axis=1), **macro),
        "recall": metrics.recall_score(labels, logits.argmax(axis=1), **macro),
        "f1": metrics.f1_score(labels, logits.argmax(axis=1), **macro),
        "auc": metrics.roc_auc_score(labels, scores, multi_class="ovr", average="macro"),
    }
    with (tmp_path / "out" / "prf.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert {name: float(row["ours"]) for name, row in rows.items()} == pytest.approx(expected, abs=1e-3)
    assert [rows[name]["paper"] for name in expected] == ["0.9493", "0.9494", "0.9491", ""]
    assert {row["difference"] for row in rows.values()} == {""}
    assert "digits in place of every data set" in answer.out
    assert "difference" not in answer.out.partition("method ")[2]


def test_a_long_tail_with_abc_can_be_tried_on_other_data(epass: Epass, tmp_path: Path) -> None:
    flags = ("--data", "digits", "--only", "simmatch+3+abc", "--columns", "cifar10lt-50", "--out", tmp_path / "out")
    fewer = ("--set", "data.head_labels=100", "--set", "data.head_unlabeled=40")
    answer = epass("reproduce", "longtail", "--scale", "0.0001", *flags, *fewer)
    assert answer.code == 0, answer.err
    recipe = load_run(tmp_path / "out" / "cifar10lt-50-simmatch+3+abc-0").recipe
    assert (recipe["wrapper"], recipe["projector"]["size"]) == ({"name": "abc"}, 3)
    assert (recipe["data"]["head_labels"], recipe["data"]["imbalance"]) == (100, 50.0)


def test_without_data_a_table_is_the_papers(epass: Epass, tmp_path: Path) -> None:
    answer = epass("reproduce", "usb", "--only", "simmatch+3,uda", "--columns", "eurosat,semi_aves")
    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"SimMatch \+ EPASS +EuroSAT, 20 labels +5\.35 ± 0\.81 +no data", answer.out)
    assert "Not trained, 2 cells: eurosat is not here: `epass download eurosat`." in answer.out
    assert "semi_aves is not here: put its original files into data/semi_aves" in answer.out
    assert "Not trained, 3 cells: UDA: there is no recipe for it in this protocol." in answer.out
    assert "net.weights: set -> not set" in answer.out
    assert (tmp_path / "runs" / "reproduce-usb" / "usb.csv").exists()


def test_tables_of_the_same_runs_share_a_folder(epass: Epass, tmp_path: Path) -> None:
    answer = epass("reproduce", "imagenet-detail", "--only", "simmatch+3", "--json")
    cells = {(cell["column"], cell["metric"]): cell for cell in json.loads(answer.out)}
    assert cells["10percent", "training_parameters"]["difference"] == 8.9329
    assert cells["10percent", "accuracy"]["paper"] == 75.3
    assert (tmp_path / "runs" / "reproduce-imagenet" / "imagenet-detail.csv").exists()


def test_the_tables_are_listed(epass: Epass) -> None:
    answer = epass("reproduce", "--help")
    for table in ("parameters", "projectors", "strategies", "classic", "imagenet-detail", "longtail", "usb", "prf"):
        assert re.search(rf"│ {table} +[A-Z]", answer.out)
    answer = epass("reproduce", "clasic")
    assert answer.code == 2
    assert "classic" in answer.err


def test_pretrained_weights_make_usb_comparable() -> None:
    table, recipe = read_benchmark("usb"), read_recipe("usb_eurosat-simmatch")

    def found(*settings: str, data: str | None = None) -> list[str]:
        given = dict(setting.split("=") for setting in settings)
        return obstacles(table, [recipe.with_settings(given)], instead=data, settings=given)

    assert found() == ["net.weights: set -> not set"]
    assert found("net.weights=file.pth") == []
    assert found("net.weights=file.pth", "net.drop_path=0.2") == ["net.drop_path: that of the recipe -> 0.2"]
    assert found("net.weights=file.pth", data="digits") == ["data: the table's -> digits"]


def test_data_is_found_where_it_may_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_data("cifar10", "cifar10.npz", Path("data")) is None
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    assert find_data("cifar10", "cifar10.npz", Path("data")) is None  # empty
    (tmp_path / "cifar10.npz").write_bytes(b"")
    assert find_data("cifar10", "cifar10.npz", Path("data")) == Path("cifar10.npz")
    (tmp_path / "data" / "cifar10.npz").write_bytes(b"")
    assert find_data("cifar10", "cifar10.npz", Path("data")) == Path("data/cifar10.npz")
    inside = tmp_path / "data" / "cifar10" / "cifar-10-batches-py"
    inside.mkdir()
    for name in ("data_batch_1", "test_batch"):
        (inside / name).write_bytes(b"")
    assert find_data("cifar10", "cifar10.npz", Path("data")) == Path("data/cifar10/cifar-10-batches-py")
    assert absent("cifar10", Path("data")) == "cifar10 is not here: `epass download cifar10`"
    assert absent("cifar10", Path("my data")) == "cifar10 is not here: `epass download cifar10 --to 'my data'`"
