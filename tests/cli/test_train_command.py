from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import Epass, Trained
from PIL import Image

TINY = ("train", "--recipe", "tiny.toml")


def recipe_of(folder: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads((folder / "recipe.toml").read_text())


def test_the_plan_comes_first(trained: Trained) -> None:
    plan, _, _ = trained.answer.out.partition("step 1/6")
    lines = [" ".join(line.split()) for line in plan.splitlines()]

    assert lines[0] == "Plan"
    assert "data digits, 10 classes, gray images of 8 x 8 pixels" in lines
    assert "labeled 40 images: 4 per class" in lines
    assert "unlabeled 1,442 images" in lines
    assert "test 355 images" in lines
    assert "method simmatch + EPASS (3 projectors)" in lines
    assert "steps 6, each with 10 labeled + 20 unlabeled images" in lines
    assert "seen each labeled image 1.5 times, each unlabeled image 0.1 times" in lines
    assert f"run folder {trained.folder}" in lines
    assert lines[-1].startswith("About ")  # how long it takes is told by the first steps


def test_without_a_terminal_every_report_is_a_plain_line(trained: Trained) -> None:
    lines = [line for line in trained.answer.out.splitlines() if line.startswith("step ")]

    assert [line.split()[1] for line in lines] == [f"{step}/6" for step in range(1, 7)]
    assert "loss " in lines[0]
    assert "(labeled " in lines[0]
    assert "coverage " in lines[0]
    assert "test error" not in lines[0]
    assert "test error" in lines[2]
    assert "\x1b" not in trained.answer.out
    assert trained.answer.err == ""


def test_results_name_the_optimiztic_number_as_such(trained: Trained) -> None:
    results = trained.answer.out.partition("Results\n")[2]
    last = json.loads((trained.folder / "results.json").read_text())["last"]

    assert f"{100 * last['error']:.2f} %" in results
    assert "best on test" in results
    assert "as papers report it" in results
    assert str(trained.folder / "report.html") in results
    assert str(trained.folder / "model.safetensors") in results
    assert f"accuracy {100 - 100 * last['error']:.2f} %" in results
    assert results.endswith(f"Next: epass predict {trained.folder} PHOTOS\n")
    assert "<html" in (trained.folder / "report.html").read_text()


def test_the_command_is_recorded_as_typed(trained: Trained) -> None:
    command = json.loads((trained.folder / "environment.json").read_text())["command"]

    assert command == f"epass train --recipe {trained.recipe} --projectors 3 --out {trained.folder}"


def test_flags_change_the_recipe_and_set_comes_last(epass: Epass) -> None:
    flags = ["--labels", "20", "--seed", "3", "--steps", "2", "--image-size", "10"]
    answer = epass(*TINY, *flags, "--set", "plan.lr=0.01", "--set", "plan.report_every=2", "--set", "data.labels=30")

    assert answer.code == 0, answer.err
    recipe = recipe_of(Path("runs/digits-simmatch-3"))
    assert recipe["seed"] == 3
    assert recipe["data"] == {"name": "digits", "labels": 30, "image_size": 10}
    # two of six steps: durations and intervals shrink to a third, except the one that was set
    assert recipe["plan"] | {"steps": 2, "evaluate_every": 1, "report_every": 2, "lr": 0.01} == recipe["plan"]
    assert recipe["method"]["warmup_steps"] == 0  # a third of 2: durations are rounded down


def test_pre_trained_weights_are_a_flag(epass: Epass, trained: Trained) -> None:
    shutil.copy(trained.folder / "model.safetensors", "start.safetensors")
    answer = epass(*TINY, "--weights", "start.safetensors", "--steps", "1", "--out", "here")

    assert answer.code == 0, answer.err
    whole = Path("start.safetensors").absolute()  # the run may be resumed from elsewhere
    assert recipe_of(Path("here"))["net"]["weights"] == str(whole)


def test_another_method_starts_from_its_own_defaults(epass: Epass) -> None:
    answer = epass(*TINY, "--method", "fixmatch", "--net", "small", "--steps", "1", "--out", "here")

    assert answer.code == 0, answer.err
    assert recipe_of(Path("here"))["method"] == {"name": "fixmatch"}
    assert "projector" not in recipe_of(Path("here"))


def test_a_method_without_unlabeled_views_says_so(epass: Epass) -> None:
    answer = epass(*TINY, "--method", "fully_supervised", "--steps", "1")

    assert answer.code == 0, answer.err
    assert "does not look at" in answer.out
    assert "1,442 images: 0 " in answer.out  # every label, listed by class
    assert Path("runs/digits-fully_supervised-0").is_dir()


def test_own_data_may_be_anywhere_later(epass: Epass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    labels = np.where(np.arange(60) < 40, np.arange(60) % 2, -1)
    np.savez(tmp_path / "mine.npz", train_images=pixels, train_labels=labels)

    answer = epass(*TINY, "mine.npz", "--labels", "10", "--steps", "1")

    assert answer.code == 0, answer.err
    assert "8 images, held out from the labeled images" in answer.out
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = epass("evaluate", tmp_path / "runs" / "mine-simmatch-0", "--json")
    assert again.code == 0, again.err
    last = json.loads((tmp_path / "runs" / "mine-simmatch-0" / "results.json").read_text())["last"]
    assert json.loads(again.out)["scores"] == last


def test_a_budget_becomes_steps_and_a_resumed_run_keeps_them(epass: Epass) -> None:
    line = [*TINY, "--budget", "0.3s", "--resume", "--out", "here"]  # a folder that is not there yet is started

    assert epass(*line).code == 0
    steps = recipe_of(Path("here"))["plan"]["steps"]
    assert isinstance(steps, int)
    assert steps >= 1
    model = Path("here/model.safetensors").read_bytes()
    again = epass(*line)
    assert again.code == 0, again.err
    assert recipe_of(Path("here"))["plan"]["steps"] == steps
    assert Path("here/model.safetensors").read_bytes() == model


def test_force_starts_over(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run")

    assert epass(*TINY, "--out", "run", "--force", "--seed", "5").code == 0
    assert recipe_of(tmp_path / "run")["seed"] == 5


def test_resume_gives_the_bytes_of_an_undisturbed_run(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    stopped = interrupted_copy(trained.folder, tmp_path / "run")

    answer = epass("train", "--resume", "--out", stopped)  # the recipe is the one in the folder

    assert answer.code == 0, answer.err
    assert [line.split()[1] for line in answer.out.splitlines() if line.startswith("step ")] == ["4/6", "5/6", "6/6"]
    assert (stopped / "model.safetensors").read_bytes() == (trained.folder / "model.safetensors").read_bytes()


@pytest.mark.filterwarnings("default")
def test_a_damaged_checkpoint_is_one_warning(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-10])

    answer = epass("train", "--resume", "--out", "run")

    assert answer.code == 0, answer.err
    assert answer.err.startswith(f"Warning: run/checkpoints/{newest.name} is damaged")
    assert answer.err.count("\n") == 1
    assert Path("run/model.safetensors").read_bytes() == (trained.folder / "model.safetensors").read_bytes()


def test_a_loss_that_is_no_number_ends_with_the_last_checkpoint(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    run = interrupted_copy(trained.folder, tmp_path / "run")
    text = (run / "recipe.toml").read_text().replace("[plan]\n", "[plan]\nlr = 1e30\n")
    (run / "recipe.toml").write_text(text)

    answer = epass("train", "--resume", "--out", run)

    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("Error: The loss '")
    assert "at step " in answer.err
    assert f"'{run}', its last good checkpoint is kept" in answer.err
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000003.safetensors"]


def test_a_loss_that_is_no_number_before_the_first_checkpoint(epass: Epass) -> None:
    answer = epass(*TINY, "--set", "plan.lr=1e30", "--set", "plan.evaluate_every=6", "--out", "run")

    assert answer.code == 1
    assert "no checkpoint yet" in answer.err


def interrupted_copy(finished: Path, target: Path) -> Path:
    """A run as it would be found when it had been stopped in its second half."""
    shutil.copytree(finished, target)
    for name in ("model.safetensors", "model.json", "predictions.npz", "results.json", "report.html"):
        (target / name).unlink()
    max((target / "checkpoints").iterdir()).unlink()
    return target


def test_the_default_recipe_fits_data_and_method(epass: Epass, tmp_path: Path) -> None:
    assert epass("train", "digits", "--labels", "20", "--steps", "1", "--projectors", "2").code == 0
    assert recipe_of(Path("runs/digits-simmatch-epass-0"))["data"]["labels"] == 20

    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", train_images=pixels, train_labels=np.arange(40) % 2)
    answer = epass("train", "own.npz", "--method", "supervised", "--steps", "1", "--labels", "20", "--net", "small")
    assert answer.code == 0, answer.err
    assert recipe_of(Path("runs/own-supervised-0"))["method"]["name"] == "supervised"


def test_a_batch_that_does_not_fit_says_what_to_lower(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("epass.engine.build.Experiment.make_pipeline", full)
    answer = epass("train", "--recipe", "tiny.toml", "--out", "full")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "Error: The batch does not fit into the memory of the device: lower plan.labeled_batch from 10 to 5 "
        "(--set plan.labeled_batch=5).\n"
    )
    assert not Path("full").exists()


def test_a_machine_without_enough_memory_says_what_to_lower(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    full = monkeypatch.setattr
    full("epass.engine.build.Experiment.make_pipeline", lambda *_: torch.empty(2**58, dtype=torch.uint8))
    answer = epass("train", "--recipe", "tiny.toml", "--out", "full")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "Error: The memory of this machine is not enough: lower plan.labeled_batch from 10 to 5 "
        "(--set plan.labeled_batch=5), choose a smaller --image-size, or leave the images on disk with --stream.\n"
    )
    full("epass.checking.examine", lambda *_, **__: np.empty(2**58, np.uint8))
    answer = epass("check", "digits")

    assert answer.code == 1
    assert answer.err == (
        "Error: There is not enough memory for this: end other programs, or ask for smaller or fewer images.\n"
    )


def test_the_columns_of_a_table_are_named_in_the_recipe(epass: Epass, tmp_path: Path) -> None:
    lines = ["where,who"]
    for number in range(20):
        Image.new("L", (8, 8), 100 * (number % 2)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]}")
    (tmp_path / "own.csv").write_text("\n".join(lines))
    words = ["train", "own.csv", "--steps", "2", "--set", "plan.labeled_batch=2", "--out", "own", "--allow-leak"]
    answer = epass(*words)
    assert (answer.code, "'where', 'who'" in answer.err, "data.path_column" in answer.err) == (2, True, True)
    answer = epass(*words, "--set", "data.path_column=where", "--set", "data.label_column=who")
    assert answer.code == 0, answer.err
    assert "2 classes, color images" in answer.out
    answer = epass("evaluate", "own")
    assert answer.code == 0, answer.err
