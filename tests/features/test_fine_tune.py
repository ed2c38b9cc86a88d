"""After a run on frozen features the whole network learns on, from pixels, in a run of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eyes import Eye, pictured
from test_photos import SHORT, draw

from epass.app import fine_tune as module
from epass.app.evaluate import evaluate
from epass.app.events import Notice, Plan, Result
from epass.app.predict import predict
from epass.app.request import Request, compose, continues
from epass.app.train import line_to_go_on, train
from epass.augment import normalize
from epass.engine.build import Experiment, build
from epass.engine.models import load_model
from epass.engine.run import run
from epass.errors import InputError
from epass.networks import NETWORKS, OnFeatures, make_network
from epass.parts.teacher import Average
from epass.recipe import Recipe, read_recipe
from epass.report import group_runs
from epass.runs import RunFolder, load_run
from epass.training.checkpoint import checkpoints, read_checkpoint
from epass.training.optimizer import lr_scales

CPU = torch.device("cpu")
FEW: dict[str, Any] = {"steps": 4, "labeled_batch": 4, "unlabeled_ratio": 2, "report_every": 1, "evaluate_every": 2}


@pytest.fixture(scope="module", autouse=True)
def _named() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "eye", Eye)
        for key, value in FEW.items():
            patch.setitem(module.PLAN, key, value)
        yield


RUNS: dict[str, dict[str, Any]] = {
    "simmatch": {"projector.size": 2, "method.teacher": "average"},
    "simmatchv2": {},
    "multihead": {},
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on features of images, whose networks differ."""
    home, found = tmp_path_factory.mktemp("runs"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPASS_CACHE", str(tmp_path_factory.mktemp("features")))
        for name, settings in RUNS.items():
            small = {"data.name": "pictured", "data.labels": 6, "net.hidden": 5, "features.net": "eye"}
            plan = {"plan.labeled_batch": 4, "plan.unlabeled_ratio": 2}
            recipe = read_recipe(f"photos-{name}").with_settings({"plan.steps": 20, **small, **plan} | settings)
            for _ in run(recipe, found.setdefault(name, home / name), device="cpu", dataset=pictured()):
                pass
    return found


def going_on(folder: Path) -> tuple[Recipe, Experiment]:
    recipe = module.fine_tuned(read_recipe(str(folder / "recipe.toml")), folder)
    return recipe, build(recipe, CPU, pictured())


def features_of(net: torch.nn.Module) -> OnFeatures:
    return next(part for part in net.modules() if isinstance(part, OnFeatures))


@pytest.mark.parametrize("name", RUNS)
def test_it_starts_as_what_the_frozen_run_left(frozen: dict[str, Path], name: str) -> None:
    recipe, experiment = going_on(frozen[name])
    assert (recipe.features, recipe.net["behind"]) == (None, "eye")
    whole, model = load_model(frozen[name])
    assert experiment.dataset.mean == tuple(model["mean"])
    images = normalize(pictured().test.pixels, torch.tensor(model["mean"]), torch.tensor(model["std"]))
    with torch.no_grad():
        expected, found = whole(images), experiment.network(images)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.features, expected.features)
    if recipe.projector is not None:
        _, state = read_checkpoint(checkpoints(RunFolder(frozen[name]).checkpoints)[0])
        for key, value in experiment.method.get_submodule("projector").state_dict().items():
            assert torch.equal(value, state[f"method.projector.{key}"])


def test_the_whole_network_learns_and_its_statistics_stay(frozen: dict[str, Path]) -> None:
    _, experiment = going_on(frozen["simmatch"])
    step, feed = experiment.pipeline
    tuned = features_of(experiment.method.net)
    weights, statistics = tuned.features.body[0].weight.clone(), tuned.features.body[1].running_mean.clone()
    inner = tuned.body.layers[1].running_mean.clone()
    for number in range(2):
        step(feed(number))
    assert not torch.equal(tuned.features.body[0].weight, weights)
    assert torch.equal(tuned.features.body[1].running_mean, statistics)
    assert not torch.equal(tuned.body.layers[1].running_mean, inner), "the body sees its batches as ever"


def test_a_teacher_by_batch_statistics_leaves_frozen_ones_frozen() -> None:
    net = make_network("mlp", behind="eye", in_channels=3, num_classes=2, hidden=4)
    teacher = features_of(Average(net, batch_statistics=True))
    assert not teacher.features.body[1].training
    assert teacher.body.layers[1].training


def test_the_network_of_the_features_learns_more_slowly(frozen: dict[str, Path]) -> None:
    _, experiment = going_on(frozen["simmatch"])
    groups = [group for group in experiment.optimizer.param_groups if group["lr_scale"] == 0.1]
    slow = {p for group in groups for p in group["params"] if p.requires_grad}  # the others are a teacher's
    assert slow == set(features_of(experiment.method.net).features.parameters())
    vit = make_network("mlp", behind="vit-tiny-patch2-32", in_channels=3, num_classes=2)
    inner = features_of(vit).features
    assert {lr_scales(vit, 0.1)[p] for p in inner.parameters()} == {0.1}, "though it has layers of its own"


def test_only_a_network_of_vectors_stands_behind_another_one() -> None:
    for name, behind in (("small", "eye"), ("mlp", "mlp")):
        with pytest.raises(InputError, match="cannot stand behind"):
            make_network(name, behind=behind, in_channels=3, num_classes=2)


def test_only_a_finished_run_is_a_start_and_code_must_be_trusted(frozen: dict[str, Path], tmp_path: Path) -> None:
    recipe, _ = going_on(frozen["simmatch"])
    folder = tmp_path / "run"
    for _ in run(recipe, folder, device="cpu", dataset=pictured()):
        pass
    with pytest.raises(InputError, match=r"holds no finished run, which fine-tuning starts from\.$"):
        build(replace(recipe, start={"weights": str(tmp_path / "nowhere")}), CPU, pictured())
    tuned = replace(
        recipe, start={"weights": str(folder), "continued": True}
    )  # a tuned run is a start like others: it goes on
    build(tuned, CPU, pictured())
    assert continues(tuned) == folder
    assert continues(recipe) is None
    facts = json.loads((folder / "model.json").read_text())
    facts["net"]["behind"] = "os:system"
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="--trust"):
        load_model(folder)


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    return draw(tmp_path / "photos", 64)


def test_from_photos_to_a_fine_tuned_model(photos: Path) -> None:
    said = {**SHORT, "steps": 4, "settings": [*SHORT["settings"], "augment.horizontal_flip=false"]}
    events = list(train(str(photos), out="run", fine_tune=True, **said))
    first, second = [event.facts for event in events if isinstance(event, Plan)]
    assert (first["steps"].split(",")[0], second["steps"].split(",")[0]) == ("300", "4"), (
        "--steps is of what takes long"
    )
    assert second["network"].startswith("eye and mlp behind it, ")
    assert second["method"].endswith(", fine-tuned")
    assert second["data"].endswith("color images of 16 x 16 pixels")
    assert read_recipe("run-fine-tuned/recipe.toml").augment == {"horizontal_flip": False}, "noise is for features"
    assert any("made for a GPU" in event.sentence for event in events if isinstance(event, Notice))
    (result,) = [event for event in events if isinstance(event, Result)]
    before, after = load_run("run").results, load_run("run-fine-tuned").results
    assert result.values["frozen"]["results"] == before
    assert result.values["results"] == after
    assert next(iter(result.facts)) == "test error, frozen features"
    assert result.facts["test error, frozen features"].endswith("of the run in run")
    assert [group.label for group in group_runs([load_run("run-fine-tuned")])] == ["SimMatch, fine-tuned"]
    assert result.following == "epass predict run-fine-tuned PHOTOS"
    assert evaluate("run-fine-tuned", device="cpu").result().values["scores"]["error"] == after["last"]["error"]
    assert (
        predict("run-fine-tuned", str(photos / "test" / "a"), out="a.csv", device="cpu").result().values["images"] == 4
    )
    with pytest.raises(InputError, match=r"^'run-fine-tuned' already holds a run; use --resume"):
        train(str(photos), out="run", fine_tune=True, **said).result()
    with np.load("run-fine-tuned/predictions.npz") as kept:
        logits = kept["logits"]
    for path in checkpoints(RunFolder("run-fine-tuned").checkpoints)[:1]:
        path.unlink()  # as if it had been killed
    with pytest.warns(UserWarning, match="stopped using its unlabeled images"):
        train(out="run-fine-tuned", resume=True, device="cpu").result()
    with np.load("run-fine-tuned/predictions.npz") as kept:
        np.testing.assert_array_equal(kept["logits"], logits)


def test_gray_images_are_fine_tuned_in_color(photos: Path) -> None:
    random, labels = np.random.default_rng(0), np.arange(48) % 3
    images = (80 * labels[:, None, None] + random.integers(0, 60, (48, 16, 16))).astype(np.uint8)
    parts = {"train_images": images[:36], "train_labels": labels[:36]}
    np.savez("gray.npz", **parts, test_images=images[36:], test_labels=labels[36:])
    said = {**SHORT, "steps": None, "settings": [*SHORT["settings"], "plan.steps=8"]}
    result = train("gray.npz", out="run", fine_tune=True, **said).result()
    tested = evaluate("run-fine-tuned", device="cpu").result().values["scores"]
    assert tested["nll"] == pytest.approx(result.values["results"]["last"]["nll"], rel=1e-5)


def test_what_cannot_be_fine_tuned_is_one_sentence(photos: Path) -> None:
    with pytest.raises(InputError, match=r"^--fine-tune goes on from a run on frozen features, and this one learns"):
        train(str(photos), fine_tune=True, features="none").result()
    with pytest.raises(InputError, match=r"^--fine-tune does not know how to go on with a wrapper"):
        train(str(photos), fine_tune=True, wrap="abc", **SHORT).result()
    assert not Path("runs").exists()


def test_settings_of_pixels_are_refused_on_features_alone(photos: Path) -> None:
    idle = {**SHORT, "settings": [*SHORT["settings"], "augment.horizontal_flip=false"]}
    sentence = r"of its images, on which augment\.horizontal_flip has no say: leave it out, or learn from pixels"
    with pytest.raises(InputError, match=sentence):
        train(str(photos), out="run", **idle).result()
    recipe = read_recipe("photos-simmatch").with_settings({"augment.horizontal_flip": False})
    Path("mine.toml").write_text(recipe.to_toml())
    with pytest.raises(InputError, match=sentence):
        train(str(photos), out="run", recipe="mine.toml", **SHORT).result()
    assert not Path("run").exists()
    noisy = {**SHORT, "settings": [*SHORT["settings"], "augment.noise=0.5", "plan.steps=8"]}
    train(str(photos), out="run", **noisy).result()
    (Path("run") / "recipe.toml").write_text(
        read_recipe("run/recipe.toml").with_settings({"augment.horizontal_flip": False}).to_toml()
    )
    train(earlier="run", out="on", steps=8, device="cpu").result()  # a run of before, which had it in vain
    compose(Request(str(photos), features="none", settings=["augment.cutout=0"]), read_recipe("folder-simmatch"))


def test_who_stops_the_first_run_is_told_the_whole_command() -> None:
    asked = Request("photos", fine_tune=True, command="epass train photos --fine-tune --steps 9")
    assert line_to_go_on(asked, RunFolder("x")) == "epass train photos --fine-tune --steps 9 --resume"


@pytest.mark.gpu
def test_fine_tuning_on_a_gpu_is_captured(photos: Path) -> None:
    said = {**SHORT, "steps": 4, "device": "cuda"}
    result = train(str(photos), out="run", fine_tune=True, **said).result()
    assert np.isfinite(result.values["results"]["last"]["nll"])
