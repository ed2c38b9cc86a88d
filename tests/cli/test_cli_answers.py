"""Help, listings and evaluation."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained

from epass.methods import METHODS, PRETRAINING, WRAPPERS


def test_help_teaches(epass: Epass) -> None:
    answer = epass("--help")

    assert answer.code == 0
    for command in ("train", "compare", "evaluate", "predict", "methods", "networks", "datasets", "recipes"):
        assert f"│ {command} " in answer.out
    for line in ("epass train digits --labels 40", "epass train photos/ --projectors 3", "epass evaluate runs/"):
        assert line in answer.out


def test_version(epass: Epass) -> None:
    answer = epass("--version")

    assert answer.code == 0
    assert answer.out.startswith("epass ")


def test_evaluate_repeats_the_results_of_the_run(epass: Epass, trained: Trained) -> None:
    answer = epass("evaluate", trained.folder, "--json")

    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["scores"] == json.loads((trained.folder / "results.json").read_text())["last"]
    assert found["images"] == 355


def test_evaluate_in_words(epass: Epass, trained: Trained) -> None:
    answer = epass("evaluate", trained.folder)

    assert answer.code == 0, answer.err
    for name in ("error", "top-5 error", "balanced accuracy", "F1", "AUC", "log-likelihood", "Brier", "ECE", "MCE"):
        assert name in answer.out


@pytest.mark.parametrize("with_test", [False, True])
def test_evaluate_on_other_images_of_the_same_classes(
    epass: Epass, trained: Trained, tmp_path: Path, with_test: bool
) -> None:
    from epass.data import open_dataset

    digits = open_dataset("digits")
    assert digits.test is not None
    pixels, labels = digits.test.pixels[:, 0].numpy(), digits.test.labels.numpy()
    # as the training part, half of it not labeled, or as the test part beside images that say nothing
    labeled = np.where(np.arange(len(labels)) % 2, labels, -1)
    arrays = {"train_images": pixels, "train_labels": labeled}
    if with_test:
        arrays = {
            "train_images": np.zeros((10, 8, 8), dtype=np.uint8),
            "train_labels": np.arange(10),
            "test_images": pixels[1::2],
            "test_labels": labels[1::2],
        }
    np.savez(tmp_path / "other.npz", **arrays)

    answer = epass("evaluate", trained.folder, "--data", "other.npz", "--json")

    assert answer.code == 0, answer.err
    logits = np.load(trained.folder / "predictions.npz")["logits"][1::2]
    found = json.loads(answer.out)
    assert found["images"] == len(logits)
    assert found["scores"]["error"] == pytest.approx((logits.argmax(1) != labels[1::2]).mean())


def test_evaluate_makes_color_images_gray_for_a_gray_model(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    from epass.data import open_dataset

    test = open_dataset("digits").test
    assert test is not None
    color = np.repeat(test.pixels.numpy(), 3, axis=1)
    np.savez(tmp_path / "color.npz", train_images=color, train_labels=test.labels.numpy())

    answer = epass("evaluate", trained.folder, "--data", "color.npz", "--json")

    assert answer.code == 0, answer.err
    own = json.loads((trained.folder / "results.json").read_text())["last"]
    assert json.loads(answer.out)["scores"] == pytest.approx(own)


def test_a_run_without_a_model_cannot_be_evaluated(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("recipe.toml", "environment.json"):
        (tmp_path / "run" / name).write_bytes((trained.folder / name).read_bytes())

    answer = epass("evaluate", "run")

    assert answer.code == 2
    assert "no finished model yet" in answer.err


def test_methods(epass: Epass) -> None:
    answer, found = epass("methods"), json.loads(epass("methods", "--json").out)

    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == "method paper year labeled unlabeled memory per image EPASS"
    assert "simmatch SimMatch 2022 weak weak, strong 516 bytes, labeled yes" in lines
    assert "flexmatch FlexMatch 2021 weak weak, strong 8 bytes, unlabeled no" in lines
    assert "multihead Multi-Head Co-Training 2022 weak weak, 3 strong no" in lines
    assert "supervised Labels only weak no" in lines
    assert found["simmatch"]["projector"] is True
    assert found["simmatch"]["paper"] == {
        "name": "SimMatch",
        "title": "Semi-supervised Learning with Similarity Matching",
        "authors": "Zheng et al.",
        "venue": "CVPR",
        "year": 2022,
    }
    assert found["simmatch"]["memory"] == {"labeled": 4 * (128 + 1), "unlabeled": 0}
    assert found["supervised"]["paper"] is None
    assert found["fixmatch"]["projector"] is False
    assert found["comatch"]["views"] == {"labeled": ["weak"], "unlabeled": ["weak", "strong", "strong"]}
    assert found["supervised"]["title"] != found["fully_supervised"]["title"]
    years = [facts["paper"]["year"] if facts["paper"] else 0 for facts in found.values()]
    assert years == sorted(years)


def test_what_goes_around_and_before_a_method_is_listed_below(epass: Epass) -> None:
    answer, found = epass("methods").out, json.loads(epass("methods", "--json").out)

    assert {name: facts["kind"] for name, facts in found.items()} == {
        **dict.fromkeys(METHODS, "method"),
        **dict.fromkeys(WRAPPERS, "wrapper"),
        **dict.fromkeys(PRETRAINING, "pretraining"),
    }
    around, before = answer.index("around a method"), answer.index("before a method")
    assert answer.index("softmatch") < around < answer.index("\nabc ") < answer.index("\nshrink ") < before
    assert before < answer.index("\nmoco ")
    assert found["abc"]["summary"] in answer
    assert found["abc"]["views"] is None
    assert found["moco"]["views"] == {"labeled": [], "unlabeled": ["crop", "crop"]}


def test_one_that_is_no_method(epass: Epass) -> None:
    wrapper, pretraining = epass("methods", "shrink").out, epass("methods", "moco").out

    assert "ShrinkMatch: Shrinking Class Space" in wrapper
    assert "Change one: epass train digits --wrap shrink --set wrapper.share_momentum=0.999" in wrapper
    assert "share_momentum" in wrapper
    assert "method." not in wrapper  # their table is [wrapper]
    assert "Change one: epass pretrain digits --method moco --set method.temperature=0.2" in pretraining
    assert "EPASS             yes: --projectors 3" in pretraining
    assert json.loads(epass("methods", "abc", "--json").out)["abc"]["settings"]["threshold"]["default"] == 0.95


def test_one_method(epass: Epass) -> None:
    answer, found = epass("methods", "fixmatch"), json.loads(epass("methods", "fixmatch", "--json").out)

    assert "FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence (Sohn" in answer.out
    assert "method.threshold" in answer.out
    assert "0.95" in answer.out
    assert list(found) == ["fixmatch"]
    assert found["fixmatch"]["settings"]["threshold"] == {"type": "a number", "default": 0.95}
    assert "no settings of its own" in epass("methods", "supervised").out


def test_networks(epass: Epass) -> None:
    found = json.loads(epass("networks", "--json").out)

    assert found["small"]["parameters"] > 0
    told = epass("networks").out
    assert f"{found['small']['parameters']:,}" in told
    for way in ("--weights FILE", "timm:NAME", "hf:NAME", "--weights published"):
        assert way in told


@pytest.mark.parametrize("command", ["train", "compare", "check", "bench", "evaluate", "predict"])
def test_help_names_what_is_read(epass: Epass, command: str) -> None:
    words = " ".join(epass(command, "--help").out.replace("│", " ").split())
    assert re.search(r"\barchive\b.*\btable\b", words)
    if command in ("train", "compare"):
        assert "pre-trained weights" in words
        assert "timm:NAME and hf:NAME" in words


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("train digits --method sim", ["simmatch", "simmatchv2"]),
        ("recipes digits-simmatchv", ["digits-simmatchv2"]),
        ("train --weigh", ["--weights"]),
        ("comp", ["compare"]),
    ],
)
def test_the_tab_key_completes(epass: Epass, monkeypatch: pytest.MonkeyPatch, typed: str, completed: list[str]) -> None:
    monkeypatch.setenv("_EPASS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"epass {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    assert epass().out.split() == completed


def test_datasets(epass: Epass) -> None:
    answer, found = epass("datasets"), json.loads(epass("datasets", "--json").out)

    assert "digits" in found["built_in"]
    for words in ("1,797 handwritten digits", "labeled/<class>", "unlabeled/", "train_images", ".npz"):
        assert words in answer.out


def test_datasets_lists_the_original_files(epass: Epass) -> None:
    answer, found = epass("datasets"), json.loads(epass("datasets", "--json").out)

    assert {
        "name": "cifar100",
        "layout": "train, test, meta (in cifar-100-python), or cifar-100-python.tar.gz",
    } in found["original_files"]
    for words in ("cifar-10-batches-py", "fashion-mnist", "emnist-letters", "tissuemnist", "not readable"):
        assert words in answer.out


def test_datasets_says_what_a_folder_looks_like(epass: Epass, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name in ("train", "meta"):
        (tmp_path / "files" / name).touch()

    answer = epass("datasets", "files")

    assert answer.code == 0, answer.err
    assert "looks like  cifar100\n" in answer.out
    assert "missing     test\n" in answer.out
    assert json.loads(epass("datasets", "files", "--json").out) == {"format": "cifar100", "missing": ["test"]}
    (tmp_path / "files/test").touch()
    assert "missing     nothing" in epass("datasets", "files").out
    assert json.loads(epass("datasets", ".", "--json").out) == {"format": None, "missing": []}
    assert "no data set whose original files are known" in epass("datasets", ".").out
    assert "There is no file or folder 'nowhere'" in epass("datasets", "nowhere").err


def test_training_takes_original_files(epass: Epass, tmp_path: Path) -> None:
    images = np.arange(40, dtype=np.uint8).repeat(64)
    for part in ("train", "t10k"):
        (tmp_path / f"runes/{part}-images-idx3-ubyte").parent.mkdir(exist_ok=True)
        head = bytes([0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 8, 0, 0, 0, 8])
        (tmp_path / f"runes/{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        labels = bytes([0, 0, 8, 1, 0, 0, 0, 40]) + bytes(number // 20 for number in range(40))
        (tmp_path / f"runes/{part}-labels-idx1-ubyte").write_bytes(labels)

    answer = epass("train", "runes", "--labels", "8", "--steps", "20", "--set", "plan.labeled_batch=4", "--allow-leak")

    assert answer.code == 0, answer.err
    assert "runes, 2 classes" in answer.out


def test_color_in_the_environment_does_not_reach_a_pipe(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    assert "\x1b" not in epass("datasets").out


def test_recipes(epass: Epass) -> None:
    answer, found = epass("recipes"), json.loads(epass("recipes", "--json").out)

    assert found["digits-simmatch"]["method.name"] == "simmatch"
    assert all(recipe["source"] for recipe in found.values())
    methods = {recipe["method.name"] for recipe in found.values()}
    rows = {line.split()[0]: line for line in answer.out.splitlines() if line}
    for family in {name.partition("-")[0] for name in found}:
        here = [recipe["method.name"] for name, recipe in found.items() if name.partition("-")[0] == family]
        listed = "all of epass methods" if set(here) == methods else ", ".join(here)
        assert rows[family].rstrip().endswith(f"   {listed}")
    assert rows["digits"].split()[1:3] == ["digits", "small"]
    assert rows["folder"].split()[1:3] == ["your", "own"]
    assert rows["cifar100"].split()[1:3] == ["cifar-100-python", "wrn-28-8"]  # IOMatch has another network
    assert "all of epass methods" in rows["digits"]
    assert len(answer.out.splitlines()) < 30
    assert answer.out.splitlines()[-2:] == [
        "List a family: epass recipes FAMILY",
        "Print one: epass recipes FAMILY-METHOD, digits-simmatch for one",
    ]


def test_the_recipes_of_a_family(epass: Epass) -> None:
    answer, found = epass("recipes", "cifar10lt"), json.loads(epass("recipes", "cifar10lt", "--json").out)

    assert {name.partition("-")[0] for name in found} == {"cifar10lt"}  # and not cifar10lt_abc
    rows = answer.out.splitlines()[1:]
    for row, (name, recipe) in zip(rows, found.items(), strict=False):
        assert row.split() == [name, *recipe["source"].split()]
    assert rows[len(found)] == ""
    assert "did you mean 'cifar10lt'?" in epass("recipes", "cifar10tl").err


def test_one_recipe_is_a_file_that_can_be_used(epass: Epass, tmp_path: Path) -> None:
    answer = epass("recipes", "digits-simmatch")

    assert tomllib.loads(answer.out)["method"]["name"] == "simmatch"
    assert "threshold = 0.9  # digits.toml [methods.simmatch]\n" in answer.out
    (tmp_path / "mine.toml").write_text(answer.out)
    assert "Unknown device" in epass("train", "--recipe", "mine.toml", "--device", "gpu").err  # the recipe is accepted
