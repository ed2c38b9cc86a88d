from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks import Classifier, NormalizedBackbone, Small, predict_jointly


@pytest.fixture
def net() -> Classifier:
    torch.manual_seed(0)
    return Classifier(Small(in_channels=3, width=4), num_classes=5)


class Flat(nn.Flatten):
    """The smallest thing that is a backbone."""

    num_features = 12


def test_any_module_that_knows_its_number_of_features_is_a_backbone() -> None:
    images = torch.randn(2, 3, 2, 2)
    net = Classifier(Flat(), num_classes=7)
    logits, features = net(images)
    assert logits.shape == (2, 7)
    assert torch.equal(features, images.flatten(1))
    torch.testing.assert_close(logits, features @ net.head.weight.T + net.head.bias)


def test_a_module_that_does_not_is_refused_with_a_sentence() -> None:
    with pytest.raises(InputError, match=r"Flatten cannot be a backbone: it needs an integer `num_features`"):
        Classifier(nn.Flatten(), num_classes=7)


def test_head_is_xavier_normal_without_bias() -> None:
    torch.manual_seed(0)

    class Wide(nn.Flatten):
        num_features = 400

    head = Classifier(Wide(), num_classes=100).head
    assert head.weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert abs(head.weight.mean().item()) < 1e-3
    assert torch.all(head.bias == 0)


def test_a_normalized_backbone_is_a_backbone_whose_features_have_mean_zero_and_variance_one(net: Classifier) -> None:
    images = torch.randn(4, 3, 8, 8)
    plain = net.eval().backbone(images)
    net.backbone = NormalizedBackbone(net.backbone)
    assert net.backbone.num_features == net.num_features
    logits, features = net(images)
    centered = plain - plain.mean(1, keepdim=True)
    wanted = centered / (centered.square().mean(1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(features, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, features @ net.head.weight.T + net.head.bias)


def test_predictions_are_float32_whatever_the_network_computes_in(net: Classifier) -> None:
    images = torch.randn(4, 3, 8, 8)
    computed: list[torch.dtype] = []
    net.backbone.register_forward_hook(lambda module, inputs, features: computed.append(features.dtype))
    exact = net.eval()(images)
    net.precision = torch.bfloat16
    rounded = net(images)
    assert computed == [torch.float32, torch.bfloat16]
    assert rounded.logits.dtype == rounded.features.dtype == torch.float32
    torch.testing.assert_close(rounded.logits, exact.logits, atol=0.05, rtol=0.05)


def test_joint_prediction_is_one_batch_split_by_view(net: Classifier) -> None:
    views = [torch.randn(size, 3, 8, 8) for size in (2, 5, 3)]
    joint = predict_jointly(net, *views)
    whole = net(torch.cat(views))
    assert [len(part.logits) for part in joint] == [2, 5, 3]
    assert torch.equal(torch.cat([part.logits for part in joint]), whole.logits)
    assert torch.equal(torch.cat([part.features for part in joint]), whole.features)


def logits_of(net: nn.Module, views: list[Tensor], *, jointly: bool) -> Tensor:
    predictions = predict_jointly(net, *views) if jointly else [net(view) for view in views]
    return torch.cat([prediction.logits for prediction in predictions])


def test_views_share_batch_statistics_only_when_predicted_jointly(net: Classifier) -> None:
    views = [torch.randn(4, 3, 8, 8), 2 + torch.randn(4, 3, 8, 8)]
    difference = (logits_of(net, views, jointly=True) - logits_of(net, views, jointly=False)).abs().max()
    assert difference > 0.1
    net.eval()
    torch.testing.assert_close(logits_of(net, views, jointly=True), logits_of(net, views, jointly=False))


def test_each_joint_prediction_updates_the_statistics_once(net: Classifier) -> None:
    predict_jointly(net, torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8))
    counters = [buffer for name, buffer in net.named_buffers() if name.endswith("num_batches_tracked")]
    assert counters
    assert all(counter == 1 for counter in counters)
