from __future__ import annotations

import pytest
import torch
from torch import nn

from epass.networks import Classifier, MultiHead, ResNet, count_parameters, make_network
from epass.parts.projector import ProjectorEnsemble


def empty(name: str, num_classes: int = 1000) -> Classifier:
    with torch.device("meta"):
        return make_network(name, in_channels=3, num_classes=num_classes)


@pytest.mark.parametrize(
    ("name", "features", "count"), [("resnet-18", 512, 11_689_512), ("resnet-50", 2048, 25_557_032)]
)
def test_parameter_counts_are_the_published_ones(name: str, features: int, count: int) -> None:
    net = empty(name)
    assert (net.num_features, count_parameters(net)) == (features, count)
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_parameter_counts_with_projectors() -> None:
    net = empty("resnet-50")
    with torch.device("meta"):
        sizes = [(1, 64), (3, 64), (1, 128), (3, 128)]
        projectors = [ProjectorEnsemble(net.num_features, width, size=size) for size, width in sizes]
    total = [count_parameters(net) + count_parameters(projector) for projector in projectors]
    assert total == [29_884_520, 38_539_496, 30_015_656, 38_932_904]
    assert sum(buffer.numel() for buffer in net.buffers()) == 53_173


@pytest.mark.parametrize(("name", "widening"), [("resnet-18", 1), ("resnet-50", 4)])
def test_shapes_of_the_stages(name: str, widening: int) -> None:
    backbone = empty(name).backbone
    seen: list[tuple[int, ...]] = []
    for stage in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        backbone.get_submodule(stage).register_forward_hook(lambda _, __, maps: seen.append(tuple(maps.shape[1:])))
    backbone(torch.empty(1, 3, 224, 224, device="meta"))
    stages = [(64 * 2**stage * widening, 56 // 2**stage, 56 // 2**stage) for stage in range(4)]
    assert seen == [(64, 56, 56), *stages]


def test_a_bottleneck_strides_in_its_middle_convolution() -> None:
    strided = {
        name for name, part in empty("resnet-50").backbone.named_modules()
        if isinstance(part, nn.Conv2d) and part.stride == (2, 2)
    }  # fmt: skip
    later = {f"layer{stage}.0.{part}" for stage in (2, 3, 4) for part in ("conv2", "downsample.0")}
    assert strided == {"conv1", *later}


def test_units_are_the_equations_written_by_hand() -> None:
    torch.manual_seed(0)
    for bottleneck in (False, True):
        unit = ResNet((1, 1, 1, 1), bottleneck).eval().layer2[0]
        inputs = unit.conv1.in_channels
        for norm in (part for part in unit.modules() if isinstance(part, nn.BatchNorm2d)):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
        x = torch.randn(2, inputs, 6, 6)
        branch = unit.bn1(unit.conv1(x)).relu()
        branch = unit.bn2(unit.conv2(branch))
        if bottleneck:
            branch = unit.bn3(unit.conv3(branch.relu()))
        expected = (branch + unit.downsample[1](unit.downsample[0](x))).relu()
        torch.testing.assert_close(unit(x.clone()), expected)


def test_layers_start_as_published() -> None:
    torch.manual_seed(0)
    net = ResNet((1, 1, 1, 1), True)
    weight = net.layer4[0].conv3.weight  # 512 channels become 2048
    assert weight.std().item() == pytest.approx((2 / 2048) ** 0.5, rel=0.02)
    norms = [part for part in net.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() and norm.momentum == 0.1 and norm.eps == 1e-5 for norm in norms)


def test_gradients_reach_every_parameter() -> None:
    torch.manual_seed(0)
    net = ResNet((1, 1, 1, 1), False, in_channels=1)
    net(torch.randn(4, 1, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def test_several_heads_share_all_but_the_last_stage() -> None:
    torch.manual_seed(0)
    net = Classifier(ResNet((1, 1, 1, 1), False), 3).eval()
    images = torch.randn(2, 3, 32, 32)
    expected = net(images)
    heads = MultiHead(net, 2).eval()
    torch.testing.assert_close(heads(images).features, expected.features)
    extra = count_parameters(heads) - count_parameters(net)
    assert extra == count_parameters(net.backbone.layer4) + count_parameters(net.head)
