"""Photos of one's own, from the command to the model: learned from features unless somebody says otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eyes import Eye
from PIL import Image
from safetensors.torch import load_file, save_file

from epass import evaluation
from epass.app.compare import compare
from epass.app.embed import embed
from epass.app.evaluate import evaluate
from epass.app.events import Event, Notice, Plan, Progress, Result, Section
from epass.app.predict import predict
from epass.app.request import Request, compose, starting_recipe
from epass.app.train import train
from epass.data import from_arrays, side_of_photos
from epass.engine.run import run
from epass.errors import InputError
from epass.machine.signals import Stopped
from epass.networks import NETWORKS, input_size
from epass.recipe import Recipe, read_recipe

SHORT: dict[str, Any] = {
    "features": "eye",
    "labels": 6,
    "steps": 20,
    "device": "cpu",
    "settings": ["plan.labeled_batch=6", "plan.unlabeled_ratio=2", "net.hidden=8", "data.image_size=16"],
}


def draw(folder: Path, side: int, seed: int = 0) -> Path:
    """Dark, gray and light noise, a folder for each kind and part."""
    random = np.random.default_rng(seed)
    for number in range(48):
        kind = number % 3
        part = "unlabeled" if number < 24 else f"{'labeled' if number < 36 else 'test'}/{'abc'[kind]}"
        place = folder / part
        place.mkdir(parents=True, exist_ok=True)
        pixels = (80 * kind + random.integers(0, 60, (side, side + 10, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(NETWORKS, "eye", Eye)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    return


def test_leaks_among_photos_are_told_as_images_and_found_by_check(tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", 64)
    shutil.copy(photos / "labeled" / "a" / "24.png", photos / "test" / "a" / "copy.png")
    sentence = r"^1 of 13 test images are among the labeled ones: remove them \(see epass check \S+/photos --seed"
    with pytest.raises(InputError, match=sentence):
        train(str(photos), out="run", **{**SHORT, "labels": None}).result()


def chosen(data: Path | str, **said: Any) -> Recipe:
    request = Request(str(data), **said)
    return compose(request, starting_recipe(request))


def sentences(events: list[Event]) -> str:
    return " ".join(event.sentence for event in events if isinstance(event, Notice))


def test_photos_are_learned_from_features_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    large, small = draw(tmp_path / "large", 64), draw(tmp_path / "small", 63)
    assert (side_of_photos(str(large)), side_of_photos(str(small)), side_of_photos("digits")) == (64, 63, None)
    recipe = chosen(large)
    assert (recipe.features, recipe.net["name"], recipe.data["image_size"]) == (
        {"net": "efficientnet-lite0"},
        "mlp",
        224,
    )
    assert chosen(large, features="efficientnet-lite2").features == {"net": "efficientnet-lite2"}
    for pixels in (
        chosen(small),
        chosen(large, features="none"),
        chosen(large, net="resnet-18"),
        chosen(large, weights="published", net="timm:resnet18"),
        chosen("digits"),
    ):
        assert pixels.features is None
    assert chosen(small, features="eye").features == {"net": "eye"}
    assert (chosen("digits", features="eye").features, chosen("digits", features="eye").net) == (
        {"net": "eye"},
        {"name": "mlp"},
    )
    with pytest.raises(InputError, match=r"^The recipe learns from features, and --features none has none"):
        chosen(large, recipe="photos-simmatch", features="none")


def test_one_broken_photo_does_not_decide_how_the_others_are_read(tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", 70)
    (folder / "unlabeled" / "0.png").write_bytes(b"no image")
    assert side_of_photos(str(folder)) == 70


def test_from_photos_to_a_model_that_names_them(tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", 64)
    events = list(train(str(folder), out="run", **SHORT))
    (plan,) = [event for event in events if isinstance(event, Plan)]
    assert plan.facts["data"].endswith("the features of color images of 16 x 16 pixels")
    assert plan.facts["features"].startswith("eye, frozen; noise on each makes its views; --features none trains")
    assert [event.what for event in events if isinstance(event, Progress)].count("step") > 0
    result = events[-1]
    assert isinstance(result, Result)
    error = result.values["results"]["last"]["error"]
    assert error < 0.5
    assert evaluate("run", device="cpu").result().values["scores"]["error"] == error
    named = predict("run", str(folder / "test" / "a"), out="a.csv", device="cpu").result().values
    assert named["images"] == 4

    assert "Features" not in sentences(events)
    again = Eye.seen
    list(train(str(folder), out="other", seed=1, **SHORT))
    assert Eye.seen == again, "an image was embedded twice"


def test_a_first_answer_comes_as_soon_as_there_are_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.features.PATIENCE", -1.0)
    monkeypatch.setattr("epass.app.features.BEAT", -1.0)
    folder = draw(tmp_path / "photos", 64)
    events = list(train(str(folder), out="run", **SHORT))
    views = [event for event in events if isinstance(event, Progress) and event.what == "view"]
    assert (views[-1].step, views[-1].steps) == (48, 48)
    said = sentences(events)
    assert "First answer, by logistic regression on the 6 images with a label: " in said
    order = [type(event) for event in events]
    assert order.index(Notice) < order.index(Plan)


def test_features_are_those_of_images_as_large_as_their_network_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Eye, "image_size", 20, raising=False)
    monkeypatch.setattr("epass.networks.input_size", input_size.__wrapped__)
    folder = draw(tmp_path / "photos", 64)
    assert chosen(folder, features="eye").data["image_size"] == 20
    done = embed(str(folder), net="eye", device="cpu").result()
    assert done.following == f"epass train {folder} --features eye"
    before = Eye.seen
    settings = [text for text in SHORT["settings"] if "image_size" not in text]
    train(str(folder), out="run", **SHORT | {"settings": settings}).result()
    assert Eye.seen == before


def test_embedding_ahead_of_time_is_all_that_training_needs(tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", 64)
    done = embed(str(folder), net="eye", image_size=16, device="cpu").result()
    assert (done.values["images"], done.values["views"]) == (48, 1)
    assert done.following == f"epass train {folder} --features eye --set data.image_size=16"
    before = Eye.seen
    train(str(folder), out="run", **SHORT).result()
    assert Eye.seen == before
    with_views = embed(str(folder), net="eye", image_size=16, views=1, device="cpu").result()
    assert with_views.values["views"] == 3
    settings = [*SHORT["settings"], "features.views=1"]
    before = Eye.seen
    plan = next(
        event for event in train(str(folder), out="stored", **SHORT | {"settings": settings}) if isinstance(event, Plan)
    )
    assert "1 weak and 1 strong views of each photo" in plan.facts["features"]
    assert Eye.seen == before


def test_a_comparison_has_the_baselines_on_the_same_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = draw(tmp_path / "photos", 64)
    asked: dict[str, Any] = {**SHORT, "methods": "fixmatch", "seeds": 2, "out": "out"}
    events = list(compare(str(folder), **asked))
    result = events[-1]
    assert isinstance(result, Result)
    methods = {entry["method"] for entry in result.values["runs"]}
    baselines = {"logistic_regression", "nearest_neighbors", "label_spreading"}
    assert methods == {"supervised", "fixmatch"} | baselines
    against = {entry["against"] for entry in result.values["differences"]}
    names = ("labels only", "logistic regression", "nearest neighbors")
    errors = {
        entry["label"]: entry["error_last"]["mean"] for entry in result.values["methods"] if entry["label"] in names
    }
    assert len(errors) == 3
    assert against == {min(errors, key=lambda name: errors[name])}, "the best that labels alone can do"
    (verdict,) = [event.title for event in events if isinstance(event, Section)]
    assert next(iter(against)) in verdict
    with pytest.raises(InputError, match=r"^'out/label_spreading-0' is a baseline of a comparison, which leaves no"):
        predict("out/label_spreading-0", str(folder)).result()
    kept = {path: path.stat().st_mtime_ns for path in Path("out").glob("*_*/results.json")}
    assert len(kept) == 6
    assert "Label spreading" not in "".join(event.sentence for event in events if isinstance(event, Notice))
    monkeypatch.setattr(evaluation.baselines, "MOST_SPREAD", 4)
    told = [event.sentence for event in compare(str(folder), **asked) if isinstance(event, Notice)]
    assert any("learns from 4 of the unlabeled examples, drawn by chance" in sentence for sentence in told)
    assert {path: path.stat().st_mtime_ns for path in Path("out").glob("*_*/results.json")} == kept


def test_an_evaluation_takes_the_features_of_training_if_they_are_those_of_the_model(tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", 64)
    trained = train(str(folder), out="run", **SHORT).result().values["results"]["last"]
    seen = Eye.seen
    assert evaluate("run", device="cpu").result().values["scores"] == trained
    assert Eye.seen == seen
    weights = load_file("run/model.safetensors")
    save_file(weights | {"backbone.body.1.bias": weights["backbone.body.1.bias"] + 0.5}, "run/model.safetensors")
    with pytest.warns(UserWarning, match="hardly better than guessing"):
        assert evaluate("run", device="cpu").result().values["scores"] != trained
    assert Eye.seen == seen + 12


def test_embedding_that_is_stopped_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = draw(tmp_path / "photos", 64)

    def stop() -> None:
        raise KeyboardInterrupt

    Eye.seen = 0
    with pytest.raises(Stopped, match=r"^the same command goes on\.$"):
        embed(str(folder), net="eye", image_size=16, device="cpu", stop=stop).result()
    before, Eye.seen = Eye.seen, 0
    assert embed(str(folder), net="eye", image_size=16, device="cpu").result().values["images"] == 48
    assert 0 < Eye.seen == 48 - before
    monkeypatch.setenv("EPASS_CACHE", "off")
    with pytest.raises(Stopped, match=r"^nothing is kept: EPASS_CACHE is off\.$"):
        embed(str(folder), net="eye", image_size=16, device="cpu", stop=stop).result()


def test_gray_arrays_are_embedded_in_color_and_tested_as_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(48) % 3
    images = (80 * labels[:, None, None] + random.integers(0, 60, (48, 16, 16))).astype(np.uint8)
    np.savez(
        "gray.npz", train_images=images[:36], train_labels=labels[:36], test_images=images[36:], test_labels=labels[36:]
    )
    result = train("gray.npz", out="run", **SHORT).result()
    error = result.values["results"]["last"]["error"]
    assert evaluate("run", device="cpu").result().values["scores"]["error"] == error
    dataset = from_arrays(images[:36], labels[:36], images[36:], labels[36:])
    recipe = read_recipe("run/recipe.toml")
    *_, last = run(recipe, "python", dataset=dataset, device=torch.device("cpu"))
    assert last.values["test_error"] == error
