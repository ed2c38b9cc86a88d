from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from epass.networks import Classifier, MultiHead, Small, WideResNet, count_parameters, make_network
from epass.testing.case import TinyBackbone


def make(backbone: nn.Module | None = None) -> MultiHead:
    torch.manual_seed(0)
    return MultiHead(Classifier(backbone or Small(in_channels=3, width=4), num_classes=5))


BACKBONES = {
    "small": lambda: Small(in_channels=3, width=4),
    "wide": lambda: WideResNet(10, 1, 3),
    "tiny": TinyBackbone,
}


@pytest.mark.parametrize(
    ("name", "num_classes", "arguments", "count"),
    [
        ("wrn-28-2", 10, {}, 3_702_766),
        ("wrn-28-8", 100, {"last_channels": 256}, 19_958_524),
        ("wrn-28-8", 100, {}, 59_172_604),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, num_classes: int, arguments: dict, count: int) -> None:
    with torch.device("meta"):
        net = make_network(name, in_channels=3, num_classes=num_classes, stem_bias=False, **arguments)
        with_bias = make_network(name, in_channels=3, num_classes=num_classes, **arguments)
        assert count_parameters(MultiHead(net)) == count
        assert count_parameters(MultiHead(with_bias)) == count + 16


@pytest.mark.parametrize("name", BACKBONES)
def test_trunk_and_tail_are_the_backbone(name: str) -> None:
    torch.manual_seed(0)
    plain = Classifier(BACKBONES[name](), num_classes=5).eval()
    wanted = plain(images := torch.randn(3, 3, 16, 16))
    alone = MultiHead(plain, num_heads=1).eval()
    torch.testing.assert_close(alone(images), wanted)
    if hasattr(plain.backbone, "divide"):
        trunk, tail = plain.backbone.divide()
        assert count_parameters(trunk) + count_parameters(tail) == count_parameters(plain.backbone)
        assert count_parameters(tail) > 0
        assert trunk(images).ndim == 4


def test_large_images_are_shrunk_in_the_trunk() -> None:
    torch.manual_seed(0)
    plain = Classifier(Small(in_channels=3, width=4), num_classes=5).eval()
    wanted = plain(images := torch.randn(2, 3, 48, 48))
    torch.testing.assert_close(MultiHead(plain, num_heads=1).eval()(images), wanted)


@pytest.mark.parametrize("name", BACKBONES)
def test_heads_share_nothing_and_start_differently(name: str) -> None:
    net = make(BACKBONES[name]())
    places = [parameter.data_ptr() for parameter in net.parameters()]
    assert len(places) == len(set(places))
    first, *others = (dict(head.named_parameters()) for head in net.heads)
    for other in others:
        assert set(other) == set(first)
        weights = [key for key in first if first[key].ndim > 1]
        assert all(not torch.equal(first[key], other[key]) for key in weights)
        assert all(torch.equal(first[key], other[key]) for key in first if key not in weights)
        for key in weights:
            assert other[key].std().item() == pytest.approx(first[key].std().item(), rel=0.5)
    weights = [dict(head.named_parameters())["linear.weight"] for head in net.heads]
    assert not torch.equal(weights[1], weights[2])


def test_other_heads_start_anew_whatever_the_first_has_learned() -> None:
    net = Classifier(Small(in_channels=3, width=4), num_classes=5)
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.fill_(7)
    learned, fresh, _ = MultiHead(net).heads
    assert all((value == 7).all() for value in learned.state_dict().values())
    norm = fresh.tail[1][1]
    assert (norm.weight == 1).all() and (norm.bias == 0).all() and (norm.running_var == 1).all()  # noqa: PT018
    assert (fresh.linear.bias == 0).all()
    assert fresh.linear.weight.unique().numel() == fresh.linear.weight.numel()


def test_the_answer_is_the_sum_of_the_heads() -> None:
    net, images = make().eval(), torch.randn(4, 3, 8, 8)
    found = net(images)
    answers = [head(net.trunk(images)) for head in net.heads]
    torch.testing.assert_close(found.logits, answers[0].logits + answers[1].logits + answers[2].logits)
    torch.testing.assert_close(found.features, answers[0].features)
    assert found.features.shape == (4, net.num_features)


@pytest.mark.parametrize("training", [True, False])
def test_each_head_sees_the_shared_views_and_its_own(training: bool) -> None:
    net = make().train(training)
    x, weak = torch.randn(2, 3, 8, 8), torch.randn(3, 3, 8, 8)
    own = [1 + i + torch.randn(3, 3, 8, 8) for i in range(3)]
    twin = copy.deepcopy(net)
    maps = twin.trunk(torch.cat([x, weak, *own]))
    found = net.predict_apart((x, weak), own)
    for i, (head, by_head) in enumerate(zip(twin.heads, found, strict=True)):
        wanted = head(torch.cat([maps[:5], maps[5 + 3 * i : 8 + 3 * i]]))
        assert [len(prediction.logits) for prediction in by_head] == [2, 3, 3]
        torch.testing.assert_close(torch.cat([prediction.logits for prediction in by_head]), wanted.logits)
        torch.testing.assert_close(torch.cat([prediction.features for prediction in by_head]), wanted.features)
    counters = {value.item() for name, value in net.named_buffers() if name.endswith("num_batches_tracked")}
    assert counters == {int(training)}


@pytest.mark.parametrize("name", BACKBONES)
def test_predictions_are_float32_whatever_the_network_computes_in(name: str) -> None:
    net, images = make(BACKBONES[name]()).eval(), torch.randn(4, 3, 16, 16)
    computed: list[torch.dtype] = []
    net.heads[2].linear.register_forward_hook(lambda module, inputs, logits: computed.append(logits.dtype))
    exact, apart = net(images), net.predict_apart((images,), [images] * 3)
    net.precision = torch.bfloat16
    rounded, rounded_apart = net(images), net.predict_apart((images,), [images] * 3)
    assert computed == [torch.float32] * 2 + [torch.bfloat16] * 2
    for before, after in ((exact, rounded), (apart[1][1], rounded_apart[1][1])):
        assert after.logits.dtype == after.features.dtype == torch.float32
        torch.testing.assert_close(after.logits, before.logits, atol=0.1, rtol=0.1)


def test_the_precision_of_the_classifier_is_taken_over() -> None:
    net = Classifier(Small(in_channels=3, width=4), num_classes=5)
    net.precision = torch.bfloat16
    assert MultiHead(net).precision is torch.bfloat16
