from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from epass.app.listing import networks
from epass.networks import NETWORKS, EfficientNetLite, ViT, count_parameters, make_network

PAGE = (Path(__file__).parents[2] / "docs/networks.md").read_text("utf-8")
ROWS = {
    found[1]: [cell.strip() for cell in found[2].split("|")]
    for found in re.finditer(r"^\| `([^`]+)` \| ([\d,]+ \|.*)\|$", PAGE, re.M)
}


def test_the_page_lists_every_network() -> None:
    assert list(ROWS) == list(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_page_has_the_facts_of_a_network(name: str) -> None:
    parameters, features, image, *_ = ROWS[name]
    vectors = getattr(NETWORKS[name], "takes_vectors", False)
    with torch.device("meta"):
        net = make_network(name, in_channels=1280 if vectors else 3, num_classes=10)
    assert image.startswith("none: vectors, here of 1,280") == vectors
    assert parameters == f"{count_parameters(net):,}"
    assert features == str(net.num_features)
    if isinstance(net.backbone, ViT):
        patch, size = net.backbone.patch_size, net.backbone.image_size
        assert image == f"{size} pixels, or another multiple of {patch}"
    if isinstance(net.backbone, EfficientNetLite):
        assert image == f"about {net.backbone.image_size} pixels"


def test_the_command_lists_the_same() -> None:
    *_, result = networks()
    listed = {name: [f"{facts['parameters']:,}", str(facts["features"])] for name, facts in result.values.items()}
    assert listed == {name: cells[:2] for name, cells in ROWS.items()}
