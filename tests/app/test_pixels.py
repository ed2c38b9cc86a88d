"""Photos that are learned from pixels: their size and the network, where nobody says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from epass.app.events import Plan
from epass.app.pixels import fitted
from epass.app.request import PretrainRequest, Request, compose, size_words, starting_recipe
from epass.app.train import train
from epass.errors import InputError
from epass.recipe import Recipe, read_recipe


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for side in (40, 70, 150):
        for number in range(4):
            folder = tmp_path / f"photos{side}" / "ab"[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((side, side + 9, 3), 40 * number, np.uint8)).save(folder / f"{number}.png")
    return tmp_path


def chosen(data: str, **said: Any) -> Recipe:
    request = Request(data, **{"features": "none", "device": "cpu", **said})
    return compose(request, starting_recipe(request))


def test_the_size_follows_from_the_photos_and_the_time() -> None:
    sizes = {data: chosen(data).data["image_size"] for data in ("photos40", "photos70", "photos150")}
    assert sizes == {"photos40": 32, "photos70": 64, "photos150": 64}
    assert chosen("photos150", budget="9m").data["image_size"] == 32
    assert chosen("photos150", budget="10m").data["image_size"] == 64
    assert chosen("photos150", image_size=48).data["image_size"] == 48
    assert chosen("photos150", settings=["data.image_size=48"]).data["image_size"] == 48
    assert chosen("photos150", recipe="folder-simmatch", features=None).data["image_size"] == 32, "a recipe decides"
    assert "image_size" not in chosen("digits").data
    assert chosen("photos150").net == chosen("photos40").net == read_recipe("folder-simmatch").net


def test_a_gpu_has_larger_images_and_a_network_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.machine.device.choose_device", lambda _: torch.device("cuda"))
    recipe = chosen("photos150")
    assert (recipe.data["image_size"], recipe.net) == (128, {"name": "resnet-18"})
    assert chosen("photos150", budget="4m").data["image_size"] == 96
    few = chosen("photos70")
    assert (few.data["image_size"], few.net["name"]) == (64, "small")
    for said in ({"net": "wrn-28-2"}, {"settings": ["net.width=8"]}, {"weights": "w.pth"}):
        assert chosen("photos150", **said).net["name"] == said.get("net", "small")
    assert starting_recipe(PretrainRequest("photos150")).data["image_size"] == 128


def test_a_network_that_was_made_for_a_size_gets_it() -> None:
    sizes = {net: chosen("photos150", net=net).data["image_size"] for net in ("vit-base-patch16-96", "resnet-18")}
    assert sizes == {"vit-base-patch16-96": 96, "resnet-18": 64}
    assert chosen("photos150", features="efficientnet-lite1").data["image_size"] == 240
    assert chosen("photos150", features="efficientnet-lite1", image_size=100).data["image_size"] == 100


def test_who_starts_from_a_run_has_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = SimpleNamespace(recipe={"data": {"image_size": 80}})
    monkeypatch.setattr("epass.app.pixels.load_run", lambda _: earlier)
    request = Request("photos150", start="runs/pre", device="cpu")
    assert fitted(request, read_recipe("folder-simmatch"), 150).data["image_size"] == 80
    assert size_words(request) == "80, as in runs/pre: --image-size changes it"


def test_the_plan_says_why() -> None:
    said: dict[str, Any] = {"features": "none", "steps": 1, "device": "cpu", "settings": ["plan.labeled_batch=2"]}
    events = train("photos150", method="supervised", out="run", **said)
    plan = next(event for event in events if isinstance(event, Plan))
    assert plan.facts["image size"] == (
        "64, chosen from the photos, most of which have a shorter side of 150, and the time that it takes on a CPU: "
        "--image-size changes it"
    )
    assert size_words(Request("photos150", features="none", budget="2m", device="cpu")).startswith(
        "32, chosen from the photos, most of which have a shorter side of 150, and 2 min on a CPU: "
    )
    for other in (Request("photos150"), Request("photos40"), Request("digits"), Request("x", recipe="folder-moco")):
        assert size_words(other) == ""


def test_a_pre_training_has_no_features() -> None:
    assert "features" not in {field.name for field in fields(PretrainRequest) if field.init}
    assert starting_recipe(PretrainRequest("photos150")).features is None


def test_settings_of_features_are_known_by_their_last_word() -> None:
    with pytest.raises(InputError, match=r"^Unknown setting 'views': did you mean 'features\.views'\?$"):
        chosen("photos150", features=None, settings=["views=2"])
    assert chosen("photos150", settings=["seed=3"]).seed == 3
