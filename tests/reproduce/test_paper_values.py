"""The paper's tables of methods by data sets are complete and exact, and what every cell trains can be trained."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

import pytest

from epass.app.cells import recipe_of_trial
from epass.app.reproduce import BENCHMARKS, Asked
from epass.engine.build import check_recipe
from epass.methods import WRAPPERS
from epass.recipe import read_recipe
from epass.reproduce import on_other_data, paper_table, read_benchmark
from epass.reproduce.scores import METRICS

SIZES = {"classic": 159, "imagenet": 17, "imagenet-detail": 13, "longtail": 60, "usb": 102, "prf": 34}
WITHOUT_RECIPE = {"imagenet-detail": 4, "usb": 57}
# (table, row, column): what the paper prints there
PRINTED = {
    ("classic", "uda", "cifar10-40"): ["10.20±5.05"],
    ("classic", "mixmatch", "svhn-40"): ["26.61±13.10"],
    ("classic", "freematch", "cifar100-400"): ["39.52±0.01"],
    ("classic", "softmatch", "stl10-1000"): ["5.79±0.15"],
    ("classic", "comatch", "cifar100-10000"): ["22.11±0.22"],
    ("classic", "comatch+3", "cifar100-10000"): ["22.16±0.12"],
    ("classic", "simmatch+3", "svhn-40"): ["2.31±0.04"],
    ("classic", "comatch+3", "stl10-40"): ["9.15±3.25"],
    ("classic", "fully_supervised", "cifar10-all"): ["4.62±0.05"],
    ("classic", "fully_supervised", "cifar100-all"): ["19.30±0.09"],
    ("classic", "fully_supervised", "svhn-all"): ["2.13±0.02"],
    ("imagenet", "fixmatch", "100k"): ["43.66", "21.80"],
    ("imagenet", "fixmatch", "10percent"): ["28.50", "10.90"],
    ("imagenet", "softmatch", "100k"): ["40.52", ""],
    ("imagenet", "comatch", "10percent"): ["26.30", "8.60"],
    ("imagenet", "simmatch+3", "1percent"): ["31.39", "12.41"],
    ("imagenet-detail", "fixmatch", "10percent"): ["~300", "25.6", "25.6", "71.5", "89.1"],
    ("imagenet-detail", "comatch+moco", "1percent"): ["~1200", "30.0", "25.6", "67.1", "87.1"],
    ("imagenet-detail", "fixmatch_eman+moco_eman", "10percent"): ["~1100", "30.0", "25.6", "74.0", "90.9"],
    ("imagenet-detail", "simmatch+3", "10percent"): ["~400", "30.0", "25.6", "75.3", "92.6"],
    ("longtail", "fixmatch", "cifar10lt-50"): ["18.5±0.48"],
    ("longtail", "comatch+3", "cifar100lt-100"): ["59.8±0.01"],
    ("longtail", "freematch+abc", "cifar10lt-150"): ["22.3±0.26"],
    ("longtail", "simmatch+3+abc", "cifar100lt-20"): ["42.7±0.41"],
    ("usb", "uda", "cifar100-200"): ["30.75±1.03"],
    ("usb", "dash", "cifar100-400"): ["18.90±0.42"],
    ("usb", "mixmatch", "tissuemnist-500"): ["49.08±1.06"],
    ("usb", "simmatch+3", "semi_aves"): ["33.83±0.04"],
    ("usb", "comatch+3", "eurosat-20"): ["3.41±0.24"],
    ("usb", "fully_supervised", "tissuemnist-all"): ["33.91±0.03"],
    ("prf", "uda", "cifar10-40"): ["0.9333", "0.9311", "0.9302", ""],
    ("prf", "simmatch", "cifar100-400"): ["0.5101", "0.5133", "0.5017", ""],
    ("prf", "freematch", "stl10-40"): ["0.8489", "0.8439", "0.8354", ""],
    ("prf", "simmatch+3", "svhn-40"): ["0.9782", "0.9778", "0.9780", ""],
}


def asked(table: str, **others: object) -> Asked:
    return Asked(table, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", BENCHMARKS)
def test_a_table_is_well_formed(table: str) -> None:
    content, found = paper_table(table), read_benchmark(table)
    assert len(found.trials) == SIZES[table]
    assert len({trial.name for trial in found.trials}) == SIZES[table]
    assert set(found.metrics) <= set(METRICS)
    assert all(len(values) <= len(content["columns"]) for values in content["paper"].values())
    assert all(len(trial.paper) == len(found.metrics) for trial in found.trials)
    pattern = re.compile(r"~?\d+(\.\d+)?|\d+\.\d+±\d+\.\d+|")
    assert all(pattern.fullmatch(text) for trial in found.trials for text in trial.paper)
    assert {trial.column.name for trial in found.trials} == set(content["columns"])
    assert found.note
    assert "\n" not in found.note
    assert "(WACV 2024)" in content["source"]


def test_values_are_those_of_the_paper() -> None:
    for table in BENCHMARKS:
        found = {(table, trial.row, trial.column.name): trial.paper for trial in read_benchmark(table).trials}
        for place, values in PRINTED.items():
            if place[0] == table:
                assert found[place] == values, place


@pytest.mark.parametrize("table", BENCHMARKS)
def test_every_cell_has_a_recipe_that_passes_the_check_or_says_why_not(table: str) -> None:
    trials = read_benchmark(table).trials
    lacking = [trial for trial in trials if trial.recipe is None]
    assert len(lacking) == WITHOUT_RECIPE.get(table, 0)
    assert all(trial.lacking for trial in lacking)
    for trial in trials:
        if trial.recipe is not None:
            start = read_recipe(trial.recipe)
            recipe = recipe_of_trial(trial, start, 2, asked(table, scale=0.03))
            check_recipe(recipe)
            settings, expected = recipe.flat(), dict(trial.column.settings)
            assert settings["method.name"] == trial.method
            assert settings.get("projector.size", 1) == (3 if "+3" in trial.row else 1)
            assert settings.get("wrapper.name") == ("abc" if trial.row.endswith("+abc") else None)
            assert {key: settings[key] for key in expected} == expected
            assert (recipe.seed, recipe.plan["steps"]) == (2, round(0.03 * start.plan["steps"]))


@pytest.mark.parametrize("table", BENCHMARKS)
def test_every_cell_can_be_trained_on_digits_but_those_that_need_weights(table: str) -> None:
    trials = [on_other_data(trial, "digits") for trial in read_benchmark(table).trials]
    assert sum(trial.recipe is None for trial in trials) == (4 if table == "imagenet-detail" else 0)
    for trial in trials:
        if trial.recipe is not None:
            assert trial.recipe == f"digits-{trial.method}"
            recipe = recipe_of_trial(trial, read_recipe(trial.recipe), 0, asked(table, data="digits"))
            check_recipe(recipe)
            assert recipe.data["name"] == "digits"
            assert (recipe.wrapper or {}).get("name") == (trial.wrapper if trial.wrapper in WRAPPERS else None)


def test_columns_are_the_papers_protocols() -> None:
    def settings(table: str, name: str) -> dict[str, object]:
        trial = next(trial for trial in read_benchmark(table).trials if trial.column.name == name and trial.recipe)
        assert trial.recipe is not None
        recipe = recipe_of_trial(trial, read_recipe(trial.recipe), 0, asked(table))
        return {key.removeprefix("data."): value for key, value in recipe.flat().items() if key.startswith("data.")}

    assert settings("classic", "stl10-250")["labels"] == 250
    assert settings("classic", "cifar100-2500")["labels"] == 2500
    tail = {"name": "cifar-100-python", "head_labels": 150, "imbalance": 100.0, "head_unlabeled": 300}
    assert settings("longtail", "cifar100lt-100") == tail
    assert settings("longtail", "cifar10lt-150")["imbalance"] == 150.0
    assert settings("imagenet", "100k")["label_share"] == 100_000 / 1_281_167
    assert settings("imagenet", "10percent")["label_share"] == 0.1
    assert settings("usb", "tissuemnist-100")["labels"] == 80  # 100 cannot be shared by 8 classes
    assert settings("usb", "tissuemnist-500")["labels"] == 400
    assert settings("usb", "stl10-20")["labels"] == 20
    assert "labels" not in settings("usb", "semi_aves")


def test_one_percent_has_the_recipe_of_simmatchs_authors() -> None:
    recipes = {(trial.row, trial.column.name): trial.recipe for trial in read_benchmark("imagenet").trials}
    assert recipes["simmatch+3", "1percent"] == recipes["simmatch", "10percent"] == "imagenet_1percent-simmatch"
    assert recipes["simmatch", "100k"] == "imagenet-simmatch"
    assert recipes["comatch", "1percent"] == "imagenet-comatch"


@pytest.mark.parametrize("table", ["prf", "imagenet-detail"])
def test_tables_of_the_same_runs_name_and_make_them_alike(table: str) -> None:
    other = read_benchmark(read_benchmark(table).runs)
    assert other.name != table
    others = {trial.name: (trial.recipe, trial.column.settings) for trial in other.trials}
    for trial in read_benchmark(table).trials:
        if trial.recipe is not None:
            assert others[trial.name] == (trial.recipe, trial.column.settings)


# The whole of it, where the notes on the paper's results lie beside the repository

NOTES = next(
    (
        found
        for folder in Path(__file__).resolve().parents
        if (found := folder / "shared" / "spec" / "paper-results.md").is_file()
    ),
    None,
)
noted = pytest.mark.skipif(NOTES is None, reason="the notes on the paper's results are not here")


def noted_tables(section: int) -> list[list[list[str]]]:
    """The tables of a section as rows of cells, without their heads."""
    assert NOTES is not None
    text = NOTES.read_text(encoding="utf-8").split(f"\n## {section}. ")[1].split("\n## ")[0]
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip().replace("*", "") for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [rows[2:] for rows in found if rows]


def noted_row(name: str, before: str = "none") -> str:
    words = name.replace("+E", "+3").lower().replace("-", "_")
    return words + {"none": "", "MoCo v2": "+moco", "MoCo-EMAN": "+moco_eman"}[before]


def absent(text: str) -> str:
    return "" if text in ("–", "none", "(same)") else text


def ours(table: str) -> dict[str, list[str]]:
    """All values of a row, one after the other."""
    content = paper_table(table)
    size = len(content["columns"])
    return {
        row: [
            text
            for _, value in zip_longest(range(size), values, fillvalue="")
            for text in ([value] if isinstance(value, str) else value or [""] * (len(content["metrics"])))
        ]
        for row, values in content["paper"].items()
    }


@noted
@pytest.mark.parametrize(("table", "section", "all_labels"), [("classic", 1, (0, 3, 6)), ("usb", 5, (0, 4, 6))])
def test_errors_by_number_of_labels_are_as_noted(table: str, section: int, all_labels: tuple[int, ...]) -> None:
    parts = [{noted_row(name): values for name, *values in rows} for rows in noted_tables(section)]
    rows = {name: [absent(value) for part in parts for value in part[name]] for name in parts[0]}
    bound = rows.pop("fully_supervised")
    found = ours(table)
    count = len(bound)
    assert found.pop("fully_supervised") == [""] * count + [bound[place] for place in all_labels]
    assert {row: values[:count] for row, values in found.items()} == rows
    assert not any(text for values in found.values() for text in values[count:])


@noted
def test_the_other_tables_are_as_noted() -> None:
    (tail,) = noted_tables(4)
    assert ours("longtail") == {noted_row(name): values for name, *values in tail}
    (errors,) = noted_tables(2)
    assert ours("imagenet") == {noted_row(name): list(map(absent, values)) for name, *values in errors}
    parts = [{noted_row(name): values for name, *values in rows} for rows in noted_tables(9)]
    averages = {name: [f"0{value}" for part in parts for value in part[name] if value != "–"] for name in parts[0]}
    assert {row: [text for text in values if text] for row, values in ours("prf").items()} == averages


@noted
def test_the_detailed_table_is_as_noted() -> None:
    (rows,) = noted_tables(3)
    for before, name, epochs, parameters, *accuracies in rows:
        facts = [epochs, *(text.removesuffix("M") for text in parameters.split(" ")[0].split("/"))]
        found = ours("imagenet-detail")[noted_row(name, before)]
        for place, values in ((0, accuracies[:2]), (5, accuracies[2:])):
            assert found[place : place + 5] == ([*facts, *values] if values != ["–", "–"] else [""] * 5)
    assert len(rows) == len(ours("imagenet-detail"))
