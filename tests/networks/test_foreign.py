from __future__ import annotations

import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.features import make_extractor
from epass.features.embed import IMAGENET_MEAN
from epass.networks import find_network, input_size, make_network
from epass.recipe import arguments
from epass.training.optimizer import parameter_groups


class Pooled(nn.Module):
    """What timm makes with `num_classes=0`."""

    def __init__(self, in_chans: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 6))
        self.conv = nn.Conv2d(in_chans, 6, 3)
        self.num_features = 6

    def no_weight_decay(self) -> set[str]:
        return {"token", "something_optional"}

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images).mean((2, 3)) + self.token[0]


class Deeper(Pooled):
    """With one more layer before the classifier that was left out."""

    head_hidden_size = 9

    def __init__(self, in_chans: int) -> None:
        super().__init__(in_chans)
        self.conv_head = nn.Linear(6, 9)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv_head(super().forward(images))


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for timm, and what it was asked for."""
    asked: list[dict[str, Any]] = []

    def create_model(name: str, **settings: Any) -> nn.Module:
        asked.append({"name": name, **settings})
        if name not in ("pooled", "deeper"):
            raise RuntimeError(f"Unknown model ({name})\nand more")
        return (Pooled if name == "pooled" else Deeper)(settings["in_chans"])

    module = ModuleType("timm")
    module.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    return asked


def test_a_network_of_timm(timm: list[dict[str, Any]]) -> None:
    net = make_network("timm:pooled", in_channels=2, num_classes=4)
    assert timm == [{"name": "pooled", "pretrained": False, "num_classes": 0, "in_chans": 2}]
    assert net(torch.zeros(3, 2, 5, 5)).logits.shape == (3, 4)
    assert net.num_features == 6
    make_network("timm:pooled", in_channels=3, num_classes=4, weights="published")
    assert timm[1]["pretrained"] is True


def test_a_network_of_timm_says_how_its_images_were_normalized(
    timm: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"mean": (0.5, 0.5, 0.25), "std": (0.5, 0.25, 0.5), "input_size": (3, 224, 224)}
    monkeypatch.setattr(Pooled, "pretrained_cfg", known, raising=False)
    extractor = make_extractor(net="timm:pooled")
    assert (extractor.mean, extractor.std) == (known["mean"], known["std"])
    input_size.cache_clear()
    assert input_size("timm:pooled") == 224
    assert input_size("timm:nope") is None, "whoever trains it says why"
    monkeypatch.setattr(Pooled, "pretrained_cfg", {"mean": (0.5,), "std": (0.5,)})  # of gray images
    assert make_extractor(net="timm:pooled").mean == IMAGENET_MEAN


def test_the_layer_before_the_classifier_of_timm_counts(timm: list[dict[str, Any]]) -> None:
    net = make_network("timm:deeper", in_channels=1, num_classes=4)
    prediction = net(torch.zeros(3, 1, 5, 5))
    assert prediction.features.shape == (3, net.num_features) == (3, 9)


def test_what_timm_does_not_decay_is_not_decayed(timm: list[dict[str, Any]]) -> None:
    net = make_network("timm:pooled", in_channels=1, num_classes=4)
    _, exempt = parameter_groups(net, 0.1)
    assert any(parameter is net.backbone.token for parameter in exempt["params"])


def test_a_network_that_timm_does_not_know(timm: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match=r"^timm could not make the network 'nope': Unknown model \(nope\)\.$"):
        make_network("timm:nope", in_channels=1, num_classes=4)


class Config(SimpleNamespace):
    @staticmethod
    def from_pretrained(name: str, num_channels: int, trust_remote_code: bool) -> Config:
        assert not trust_remote_code
        if name == "nope":
            raise OSError("nope is not a local folder\nand more")
        widths = {"tokens": {"hidden_size": 6}, "maps": {"hidden_sizes": [3, 6]}, "pooler": {"hidden_size": 6}}
        return Config(name=name, num_channels=num_channels, image_size=48, **widths.get(name, {}))


class Model(nn.Module):
    def __init__(self, config: Config, published: bool) -> None:
        super().__init__()
        self.kind, self.published = config.name, published
        self.conv = nn.Conv2d(config.num_channels, 6, 1)

    @staticmethod
    def from_config(config: Config, trust_remote_code: bool) -> Model:
        assert not trust_remote_code
        return Model(config, published=False)

    @staticmethod
    def from_pretrained(name: str, config: Config, trust_remote_code: bool, use_safetensors: bool) -> Model:
        assert (trust_remote_code, use_safetensors) == (False, True)
        assert name == config.name
        return Model(config, published=True)

    def forward(self, *, pixel_values: Tensor) -> SimpleNamespace:
        maps = self.conv(pixel_values)
        if self.kind == "tokens":
            return SimpleNamespace(last_hidden_state=maps.flatten(2).mT)
        pooled = 2 * maps.mean((2, 3), keepdim=True) if self.kind == "pooler" else None
        return SimpleNamespace(last_hidden_state=maps, pooler_output=pooled)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("transformers")
    module.AutoConfig, module.AutoModel = Config, Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)


def test_a_model_of_transformers_says_how_large_its_images_are(transformers: None) -> None:
    input_size.cache_clear()
    assert input_size("hf:tokens") == 48


@pytest.mark.parametrize(("name", "factor"), [("tokens", 1), ("maps", 1), ("pooler", 2)])
@pytest.mark.usefixtures("transformers")
def test_a_network_of_hugging_face(name: str, factor: int) -> None:
    net, images = make_network(f"hf:{name}", in_channels=2, num_classes=4), torch.randn(3, 2, 5, 5)
    assert not net.backbone.model.published
    expected = factor * net.backbone.model.conv(images).mean((2, 3))
    torch.testing.assert_close(net(images).features, expected)
    assert make_network(f"hf:{name}", in_channels=2, num_classes=4, weights="published").backbone.model.published


@pytest.mark.usefixtures("transformers")
def test_a_model_that_hugging_face_cannot_make() -> None:
    with pytest.raises(InputError, match=r"^transformers could not make .* 'nope': nope is not a local folder\.$"):
        make_network("hf:nope", in_channels=1, num_classes=4)
    with pytest.raises(InputError, match="does not say how wide the features of 'text' are"):
        make_network("hf:text", in_channels=1, num_classes=4)


@pytest.mark.parametrize(("name", "package"), [("timm:resnet18", "timm"), ("hf:x/y", "transformers")])
def test_a_library_that_is_not_there_says_how_to_get_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"need the package {package}.*: pip install {package}\.$") as error:
        make_network(name, in_channels=3, num_classes=2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["timm:resnet18", "hf:folder/model"])
def test_a_recipe_may_set_nothing_of_theirs(name: str) -> None:
    assert set(arguments(find_network(name))) == {"in_channels"}
    assert "published" in inspect.signature(find_network(name)).parameters
    with pytest.raises(InputError, match="Unknown argument of the"):
        make_network(name, in_channels=3, num_classes=2, published=True)


@pytest.mark.parametrize("name", ["timm:", "hf", ":", "small:"])
def test_half_a_name_is_unknown(name: str) -> None:
    with pytest.raises(InputError, match=f"Unknown network '{name}'"):
        make_network(name, in_channels=3, num_classes=2)


def test_the_real_timm() -> None:
    pytest.importorskip("timm")
    net = make_network("timm:resnet18", in_channels=1, num_classes=3)
    assert net(torch.zeros(2, 1, 32, 32)).logits.shape == (2, 3)


def test_the_real_transformers(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    config.save_pretrained(tmp_path)
    net = make_network(f"hf:{tmp_path}", in_channels=1, num_classes=3)
    assert net(torch.zeros(2, 1, 32, 32)).logits.shape == (2, 3)
