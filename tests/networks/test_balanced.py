from __future__ import annotations

import pytest
import torch
from torch import nn

from epass.networks import Classifier, Small
from epass.networks.balanced import Balanced, number_of_classes


@pytest.fixture
def net() -> Classifier:
    torch.manual_seed(0)
    return Classifier(Small(in_channels=3, width=4), num_classes=5)


def test_it_computes_in_the_precision_of_its_classifier(net: Classifier) -> None:
    balanced = Balanced(net, nn.Linear(16, 5))
    assert balanced.precision == torch.float32
    balanced.precision = torch.bfloat16
    assert net.precision == balanced.precision == torch.bfloat16
    prediction = balanced(torch.randn(4, 3, 8, 8))
    assert prediction.logits.dtype == prediction.features.dtype == torch.float32
    net.precision = torch.float32
    assert balanced.precision == torch.float32


def test_it_is_as_wide_as_its_classifier(net: Classifier) -> None:
    assert Balanced(net, nn.Linear(16, 5)).num_features == net.num_features == 16


def test_it_takes_its_mode_from_its_classifier_and_changes_none(net: Classifier) -> None:
    assert Balanced(net, nn.Linear(16, 5)).training
    net.eval()
    head = nn.Linear(16, 5)
    assert not Balanced(net, head).training
    assert head.training


def test_the_number_of_classes_is_found_also_inside(net: Classifier) -> None:
    assert number_of_classes(net) == number_of_classes(nn.Sequential(nn.Identity(), net)) == 5
