"""Runs under every protocol of splitting: validation, split files, long tails, known classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from epass.app.plan import plan_facts, result_facts
from epass.app.request import Request, compose
from epass.data import Dataset, concatenate, open_dataset
from epass.engine import run as module
from epass.engine.build import build, check_recipe, split_for
from epass.engine.infer import predict
from epass.engine.models import load_model
from epass.engine.run import run, train_steps
from epass.errors import InputError
from epass.evaluation import open_set_accuracy, score
from epass.recipe import Recipe, parse_recipe
from epass.runs import RunFolder, load_run

CPU = torch.device("cpu")
TINY = Recipe(
    source="made up for tests",
    data={"name": "digits", "labels": 40},
    net={"name": "small", "width": 4},
    method={"name": "fixmatch"},
    plan={
        "steps": 4,
        "labeled_batch": 10,
        "unlabeled_ratio": 2,
        "average_momentum": 0.5,
        "report_every": 1,
        "evaluate_every": 1,
    },
)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_dataset("digits")


def finish(recipe: Recipe, folder: Path, digits: Dataset) -> dict[str, Any]:
    for _ in run(recipe, folder, dataset=digits, device="cpu"):
        pass
    found = load_run(folder).results
    assert found is not None
    return found


# --- Validation -------------------------------------------------------------------------------------------------------


def test_the_validation_error_is_that_of_the_images_kept_back(tmp_path: Path, digits: Dataset) -> None:
    recipe = TINY.with_settings({"data.validation": 0.25})
    results = finish(recipe, tmp_path / "run", digits)
    split = split_for(recipe, digits)
    assert split.validation is not None
    net, _ = load_model(tmp_path / "run")
    logits = predict(net, split.validation, digits, CPU)
    rows = load_run(tmp_path / "run").metrics
    assert rows[-1]["valid_error"] == score(logits, split.validation.labels)["error"]
    assert all("valid_error" in row for row in rows)
    assert (results["labels"], results["images"], results["validation_selected"]["images"]) == (30, 1432, 10)


def test_three_numbers_stand_side_by_side(tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    test_errors, valid_errors = [0.5, 0.2, 0.3, 0.4], [0.6, 0.5, 0.1, 0.1]

    scripted = iter([*(error for pair in zip(test_errors, valid_errors, strict=True) for error in pair), 0.4])
    monkeypatch.setattr(module, "score", lambda *given: {**score(*given), "error": next(scripted)})
    results = finish(TINY.with_settings({"data.validation": 0.25}), tmp_path / "run", digits)
    rows = load_run(tmp_path / "run").metrics
    assert [(row["test_error"], row["valid_error"]) for row in rows] == list(
        zip(test_errors, valid_errors, strict=True)
    )
    assert results["last"]["error"] == 0.4
    assert results["best_on_test"] == {"step": 2, "error": 0.2}
    # two steps are equally right on ten images: the later one has trained longer
    assert results["validation_selected"] == {"step": 4, "error": 0.4, "valid_error": 0.1, "images": 10}

    results["validation_selected"] |= {"step": 1300, "error": 0.3}
    facts = result_facts(replace(load_run(tmp_path / "run"), results=results), tmp_path / "report.html")
    errors = {name: text for name, text in facts.items() if name.startswith("test error")}
    assert list(errors) == ["test error, last step", "test error, validation selected", "test error, best on test"]
    said = "30.00 % at step 1,300, of the lowest error on the 10 images kept for validation"
    assert errors["test error, validation selected"] == said


def test_without_validation_nothing_is_said_about_it(tmp_path: Path, digits: Dataset) -> None:
    results = finish(TINY, tmp_path / "run", digits)
    assert "validation_selected" not in results
    assert not any("valid_error" in row for row in load_run(tmp_path / "run").metrics)
    assert not any("validation" in name for name in result_facts(load_run(tmp_path / "run"), tmp_path))


def test_a_resumed_run_selects_the_same_step(tmp_path: Path, digits: Dataset) -> None:
    recipe = TINY.with_settings({"data.validation": 0.25})
    whole = finish(recipe, tmp_path / "whole", digits)
    reports = run(recipe, tmp_path / "torn", dataset=digits, device="cpu")
    for _ in range(2):
        next(reports)
    reports.close()
    for _ in run(recipe, tmp_path / "torn", resume=True, dataset=digits, device="cpu"):
        pass
    torn = load_run(tmp_path / "torn").results
    assert torn is not None
    assert torn["validation_selected"] == whole["validation_selected"]
    assert (tmp_path / "torn" / "split.json").read_bytes() == (tmp_path / "whole" / "split.json").read_bytes()


# --- Split files ------------------------------------------------------------------------------------------------------


def test_the_split_of_a_run_repeats_it_under_another_seed(tmp_path: Path, digits: Dataset) -> None:
    recipe = TINY.with_settings({"data.head_labels": 8, "data.imbalance": 4.0, "data.head_unlabeled": 50})
    results = finish(recipe, tmp_path / "run", digits)
    path = tmp_path / "run" / "split.json"
    labeled = json.loads(path.read_text())["labeled"]
    assert len(labeled) == results["labels"] == 8 + 6 + 5 + 5 + 4 + 3 + 3 + 2 + 2 + 2
    again = TINY.with_settings({"data.split_file": str(path), "seed": 9})
    assert torch.equal(split_for(again, digits).labeled.pixels, digits.train.pixels[labeled])
    assert finish(again, tmp_path / "again", digits)["images"] == results["images"]
    assert (tmp_path / "again" / "split.json").read_bytes() == path.read_bytes()


def test_a_foreign_split_is_refused_before_anything_is_written(tmp_path: Path, digits: Dataset) -> None:
    finish(TINY, tmp_path / "run", digits)
    recipe = TINY.with_settings({"data.split_file": str(tmp_path / "run" / "split.json"), "data.image_size": 10})
    with pytest.raises(InputError, match=r"belongs to other data.* image size"):
        list(run(recipe, tmp_path / "other", device="cpu"))
    assert not (tmp_path / "other").exists()


def test_a_split_file_on_the_command_line_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("split.json").write_text("{}")
    for name in ("split.json", "./split.json"):
        asked = compose(Request(settings=(f"data.split_file={name}",)), TINY)
        assert asked.data["split_file"] == str(tmp_path / "split.json")
    assert compose(Request(settings=("data.split_file=none.json",)), TINY).data["split_file"] == "none.json"


# --- Known classes ----------------------------------------------------------------------------------------------------

KNOWN = TINY.with_settings({"data.known_classes": [2, "3", 4, 5, 6, 7], "data.labels": 24})


@pytest.mark.parametrize(("method", "wrapper"), [("fixmatch", None), ("iomatch", None), ("iomatch", "mix")])
def test_the_model_knows_the_known_classes(tmp_path: Path, digits: Dataset, method: str, wrapper: str | None) -> None:
    recipe = KNOWN.with_settings({"method.name": method} | ({"wrapper.name": wrapper} if wrapper else {}))
    if method == "iomatch":
        recipe = recipe.with_settings({"method.warmup_steps": 1, "projector.out_dim": 16})
    experiment = build(recipe, CPU, digits)
    assert (experiment.problem.num_classes, experiment.problem.label_counts) == (6, (4,) * 6)
    assert experiment.problem.num_unlabeled == 1442
    for _ in train_steps(experiment, RunFolder(tmp_path / "run")):
        pass
    found = load_run(tmp_path / "run")
    assert found.model is not None
    assert found.model["classes"] == ["2", "3", "4", "5", "6", "7"]
    assert found.predictions is not None
    tested = [label - 2 for label in digits.test.labels.tolist() if 2 <= label <= 7]
    assert found.predictions.labels.tolist() == tested
    assert found.predictions.logits.shape == (len(tested), 6)
    assert parse_recipe((tmp_path / "run" / "recipe.toml").read_text(), "x") == recipe
    facts = plan_facts(experiment, tmp_path)
    assert facts["data"].startswith("digits, 6 known classes of 10, ")
    assert "validation" not in facts
    if method == "iomatch":  # what docs/methods/iomatch.md says about open-set scores
        split = experiment.split
        assert split.outliers is not None
        images = concatenate(split.test, split.outliers)
        with torch.no_grad():
            features = experiment.average((images.pixels.float() / 255 - digits.mean[0]) / digits.std[0]).features
        logits = experiment.method.host.open_logits(features)
        assert logits.shape == (355, 7)
        open_set = found.results["open_set"]
        assert open_set["balanced_accuracy"] == pytest.approx(open_set_accuracy(logits, images.labels))
        assert open_set["outliers"] == 355 - len(tested)
    else:
        assert "open_set" not in found.results


def test_the_plan_shows_every_part_and_every_class(tmp_path: Path, digits: Dataset) -> None:
    settings = {"data.head_labels": 8, "data.imbalance": 4.0, "data.validation": 0.25, "data.known_classes": [8, 9, 0]}
    facts = plan_facts(build(TINY.with_settings(settings), CPU, digits), tmp_path)
    assert facts["labeled"] == "10 images: 0 6, 8 3, 9 1"
    assert facts["validation"] == "4 images, kept back from the labeled ones"
    assert list(facts).index("validation") == list(facts).index("test") - 1


def test_bad_values_are_refused_before_the_data_is_read() -> None:
    wrong: dict[str, tuple[Any, str]] = {
        "data.known_classes": ("cat", "each entry a text or a whole number"),
        "data.include_labeled": ("thrice", "true or false or 'twice'"),
        "data.label_rounding": ("up", "one of 'nearest', 'down'"),
        "data.validation": ("some", "a number"),
        "data.fold": (0, "at least 1"),
    }
    for name, (value, words) in wrong.items():
        with pytest.raises(InputError, match=words):
            check_recipe(TINY.with_settings({name: value}))
    with pytest.raises(InputError, match="each entry"):
        check_recipe(TINY.with_settings({"data.known_classes": ["cat", 0.5]}))
    check_recipe(KNOWN)


def test_all_labels_are_all_of_the_known_classes(digits: Dataset) -> None:
    every = split_for(KNOWN.with_settings({"method.name": "fully_supervised"}), digits)
    known = torch.isin(digits.train.labels, torch.arange(2, 8))
    assert torch.equal(every.labeled.labels, digits.train.labels[known] - 2)
    assert len(every.unlabeled) == 1442
