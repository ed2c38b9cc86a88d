"""Runs that learn from features: every recipe for photos, and one network from image to class as what is left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eyes import Eye, pictured
from PIL import Image
from safetensors.torch import load_file

from epass.app.evaluate import evaluate
from epass.app.events import Result
from epass.augment import normalize
from epass.data import Dataset, Images, Vectors
from epass.engine.baseline import baseline_recipe, run_baseline
from epass.engine.build import build
from epass.engine.infer import predict
from epass.engine.models import load_model
from epass.engine.run import run
from epass.errors import InputError
from epass.evaluation.baselines import BASELINES
from epass.extensions import trust
from epass.networks import NETWORKS, FromImages
from epass.recipe import Recipe, read_recipe
from epass.recipes import builtin_recipes
from epass.runs import RunFolder, load_embeddings, load_run

CPU = torch.device("cpu")
PHOTOS = [name for name in builtin_recipes() if name.startswith("photos-")]


@pytest.fixture(scope="module", autouse=True)
def _named() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "eye", Eye)
        yield


def short(name: str, **settings: Any) -> Recipe:
    small = {
        "data.labels": 6,
        "plan.labeled_batch": 4,
        "plan.unlabeled_ratio": 2,
        "net.hidden": 5,
        "features.net": "eye",
    }
    recipe = read_recipe(name).with_settings({"plan.steps": 20, **small} | settings)
    return recipe.with_settings({"data.name": "pictured"})


def stored(views: int = 2, width: int = 7) -> Dataset:
    """A data set of vectors with views, as `embed` leaves it."""
    generator = torch.Generator().manual_seed(0)
    labels, means = torch.arange(30) % 3, torch.randn(3, 1, width, generator=generator)
    vectors = (means[labels] + 0.3 * torch.randn(30, 1 + 2 * views, width, generator=generator)).half()
    drawn = {"weak": "stored-weak", "strong": "stored-strong", "crop": "stored-strong", "views": views}
    train, test = Vectors(vectors[:24], labels[:24]), Vectors(vectors[24:, :1], labels[24:])
    return Dataset("pictured", ("a", "b", "c"), train, test, (0.0,) * width, (1.0,) * width, drawn)


@pytest.mark.parametrize("name", PHOTOS)
def test_every_recipe_for_photos_learns_from_vectors(name: str) -> None:
    dataset, recipe = stored(), short(name)
    if recipe.projector is not None:
        recipe = recipe.with_settings({"projector.size": 3})
    experiment = build(recipe, CPU, dataset)
    assert experiment.dataset is dataset  # vectors are left as they are
    step, feed = experiment.pipeline
    before = {key: value.clone() for key, value in experiment.method.net.state_dict().items()}
    for number in range(2):
        assert step(feed(number)).loss.isfinite()
    moved = [key for key, value in experiment.method.net.state_dict().items() if not torch.equal(value, before[key])]
    assert any("backbone" in key or "trunk" in key for key in moved)


def test_rotations_of_vectors_are_refused() -> None:
    recipe = short("photos-remixmatch", **{"method.rotation_weight": 0.5})
    words = (
        r"^ReMixMatch turns images \(method\.rotation_weight=0 leaves that out\), and these are vectors: choose another"
    )
    with pytest.raises(InputError, match=words):
        build(recipe, CPU, stored())


def test_a_network_for_images_is_refused_for_vectors() -> None:
    with pytest.raises(InputError, match=r"^The network takes images, and these are vectors: use mlp \(--net\)\.$"):
        build(short("photos-fixmatch", **{"net.name": "small", "net.hidden": None}), CPU, stored())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on features of images: a plain one, one with a network of its own, and a wrapped one."""
    home, found = tmp_path_factory.mktemp("runs"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPASS_CACHE", str(tmp_path_factory.mktemp("features")))
        for name, settings in RUNS.items():
            found[name] = home / name
            recipe = short(f"photos-{name.partition('-')[0]}", **settings)
            for _ in run(recipe, found[name], device="cpu", dataset=pictured()):
                pass
    return found


RUNS: dict[str, dict[str, Any]] = {
    "simmatch-epass": {"projector.size": 3},
    "multihead": {},
    "simmatch-wrapped": {"wrapper.name": "abc", "wrapper.feature": "embedding"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_one_network_from_image_to_class(finished: dict[str, Path], name: str) -> None:
    net, model = load_model(finished[name])
    assert isinstance(net, FromImages)
    assert model["features"] == {"net": "eye"}
    assert (model["channels"], model["height"], model["width"]) == (3, 12, 12)
    test = pictured().test
    assert isinstance(test, Images)
    with torch.no_grad():
        logits = net(normalize(test.pixels, torch.tensor(model["mean"]), torch.tensor(model["std"]))).logits
    with np.load(finished[name] / "predictions.npz") as kept:
        np.testing.assert_allclose(logits.numpy(), kept["logits"], atol=1e-2)
        assert kept["logits"].std() > 0.05


def test_pictures_of_a_run_on_features_are_its_images(finished: dict[str, Path]) -> None:
    kept = load_embeddings(finished["simmatch-epass"])
    assert kept is not None
    assert len(kept.chosen) == 9
    assert np.array_equal(kept.thumbnails, pictured().test.pixels[kept.chosen].numpy())


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "numbers"
    for _ in run(short("photos-fixmatch"), folder, device="cpu", dataset=stored()):
        pass
    return folder


def test_a_run_on_vectors_leaves_a_network_for_vectors(numbers: Path) -> None:
    net, model = load_model(numbers)
    assert model["numbers"] == 7
    dataset = stored()
    assert dataset.test is not None
    with np.load(numbers / "predictions.npz") as kept:
        np.testing.assert_allclose(predict(net, dataset.test, dataset, CPU).numpy(), kept["logits"], atol=1e-5)


OWN = """
import torch

class Own(torch.nn.Module):
    num_features = 3

    def __init__(self, published=False, *, in_channels=3):
        super().__init__()
        self.gain = float(torch.ones(1))  # which cannot be had of a tensor without memory

    def forward(self, images):
        return self.gain * images.mean((2, 3))
"""


def test_the_frozen_network_may_be_your_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path / 'own.py'}:Own"
    trust(name)
    for _ in run(
        short("photos-supervised", **{"features.net": name}), tmp_path / "run", device="cpu", dataset=pictured()
    ):
        pass
    net, model = load_model(tmp_path / "run")
    assert isinstance(net, FromImages)
    assert model["features"] == {"net": name}


def test_nobody_measures_the_pixels_of_streamed_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where data changed since, and a network with as few features as colors has mean and deviation of these."""
    (tmp_path / "own.py").write_text(OWN)
    trust(name := f"{tmp_path / 'own.py'}:Own")
    for number, pixels in enumerate(pictured().train.pixels):
        path = tmp_path / "photos" / "abc"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
    monkeypatch.setattr("epass.data.read.pixels._count", None)
    settings = {"features.net": name, "data.name": str(tmp_path / "photos"), "data.streaming": True}
    for _ in run(short("photos-supervised").with_settings(settings), tmp_path / "run", device="cpu"):
        pass
    shutil.copyfile(path, path.with_stem("another"))
    *_, result = evaluate(tmp_path / "run", device="cpu")
    assert isinstance(result, Result)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_a_run_that_can_be_read(tmp_path: Path, name: str) -> None:
    recipe = baseline_recipe(short("photos-fixmatch"), name)
    run_baseline(recipe, RunFolder(tmp_path / "run"), stored(), "epass compare")
    found = load_run(tmp_path / "run")
    assert found.results is not None
    assert found.results["last"]["error"] < 0.5
    assert found.predictions is not None
    assert found.predictions.logits.shape == (6, 3)
    with pytest.raises(InputError, match="is a baseline of a comparison"):
        load_model(tmp_path / "run")


DAMAGES: dict[str, dict[str, Any]] = {
    "features that are no table": {"features": "eye"},
    "features that are a list": {"features": ["eye"]},
    "features without a network": {"features": {}},
    "a network that is a number": {"features": {"net": 5}},
    "an unknown network": {"features": {"net": "eye-of-newt"}},
    "another network": {"features": {"net": "efficientnet-lite0"}},
    "a network that takes vectors": {"features": {"net": "mlp"}},
    "code": {"features": {"net": "os:system"}},
    "no features": {"features": None},
    "numbers beside features": {"numbers": 20},
    "no channels": {"channels": None},
    "a mean of other length": {"mean": [0.5] * 20},
}
VECTOR_DAMAGES: dict[str, dict[str, Any]] = {
    "no numbers": {"numbers": None},
    "not one number": {"numbers": 0},
    "fewer than none": {"numbers": -7},
    "a fraction": {"numbers": 7.0},
    "a text": {"numbers": "7"},
    "true": {"numbers": True},
    "another count": {"numbers": 8},
    "more than any memory": {"numbers": 10**15, "mean": [0.0], "std": [1.0]},
    "a mean of other length": {"mean": [0.5] * 3},
    "features of no image": {"features": {"net": "eye"}},
}


def damaged(run: Path, folder: Path, change: dict[str, Any]) -> Path:
    shutil.copytree(run, folder)
    facts = json.loads((run / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | change))
    return folder


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_of_features_is_one_sentence(finished: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as refused:
        load_model(damaged(finished["simmatch-epass"], tmp_path / "run", DAMAGES[name]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", VECTOR_DAMAGES)
def test_a_damaged_model_of_vectors_is_one_sentence(numbers: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as refused:
        load_model(damaged(numbers, tmp_path / "run", VECTOR_DAMAGES[name]))
    assert "\n" not in str(refused.value)


def test_the_weights_of_the_frozen_network_are_in_the_file(finished: dict[str, Path]) -> None:
    weights = load_file(finished["simmatch-epass"] / "model.safetensors")
    assert torch.equal(weights["backbone.body.0.weight"], Eye().body[0].weight)
    assert tuple(weights["mean"].shape) == tuple(weights["std"].shape) == (20,)
