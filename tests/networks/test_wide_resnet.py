from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks import Classifier, WideResNet, count_parameters, make_network
from epass.parts.projector import ProjectorEnsemble
from epass.training.optimizer import parameter_groups

# Name, classes, width of the features, then parameters: without projector, (heads, embedding width) -> with it.
PUBLISHED_COUNTS = [
    ("wrn-28-2", 10, 128, 1_467_626, (1_492_394, 1_541_930, 1_500_650, 1_566_698)),
    ("wrn-28-2", 100, 128, 1_479_236, (1_504_004, 1_553_540, 1_512_260, 1_578_308)),
    ("wrn-28-8", 100, 512, 23_401_028, (23_696_516, 24_287_492, 23_729_348, 24_385_988)),
    ("wrn-28-8", 10, 512, 23_354_858, (23_650_346, 24_241_322, 23_683_178, 24_339_818)),
    ("wrn-37-2", 10, 256, 5_929_450, (6_011_690, 6_176_170, 6_028_138, 6_225_514)),
]
PROJECTORS = [(1, 64), (3, 64), (1, 128), (3, 128)]


def empty(name: str, num_classes: int) -> Classifier:
    """A network without memory behind its weights: counting them needs none."""
    with torch.device("meta"):
        return make_network(name, in_channels=3, num_classes=num_classes)


@pytest.mark.parametrize(("name", "num_classes", "num_features", "alone", "with_projector"), PUBLISHED_COUNTS)
def test_parameter_counts_are_the_published_ones(
    name: str, num_classes: int, num_features: int, alone: int, with_projector: tuple[int, ...]
) -> None:
    net = empty(name, num_classes)
    assert net.num_features == num_features
    assert count_parameters(net) == alone
    with torch.device("meta"):
        projectors = [ProjectorEnsemble(net.num_features, width, size=size) for size, width in PROJECTORS]
    assert tuple(alone + count_parameters(projector) for projector in projectors) == with_projector


@pytest.mark.parametrize(
    ("name", "num_classes", "stages", "tail", "head", "buffers"),
    [
        ("wrn-28-2", 10, [70_112, 279_488, 1_116_032], 256, 1_290, 3_641),
        ("wrn-28-8", 100, [1_054_496, 4_460_288, 17_833_472], 1_024, 51_300, 14_393),
        ("wrn-37-2", 10, [70_112, 279_488, 1_116_032, 4_460_288], 512, 2_570, 7_745),
    ],
)
def test_parameters_and_buffers_of_each_stage(
    name: str, num_classes: int, stages: list[int], tail: int, head: int, buffers: int
) -> None:
    net = empty(name, num_classes)
    backbone = net.backbone
    assert isinstance(backbone, WideResNet)
    assert count_parameters(backbone.stem) == 448
    assert [count_parameters(stage) for stage in backbone.stages] == stages
    assert count_parameters(backbone.norm) == tail
    assert count_parameters(net.head) == head
    assert sum(buffer.numel() for buffer in net.buffers()) == buffers


def shapes(net: WideResNet, size: int) -> list[tuple[int, ...]]:
    """Of one image after the stem and after every stage."""
    maps = net.stem(torch.empty(1, 3, size, size, device="meta"))
    found = [tuple(maps.shape[1:])]
    for stage in net.stages:
        maps = stage(maps)
        found.append(tuple(maps.shape[1:]))
    return found


def test_row_20_shapes_of_28_2() -> None:
    with torch.device("meta"):
        net = WideResNet()
    assert shapes(net, 32) == [(16, 32, 32), (32, 32, 32), (64, 16, 16), (128, 8, 8)]


def test_row_21_shapes_of_37_2() -> None:
    with torch.device("meta"):
        net = WideResNet(28, 2, 4)
    assert shapes(net, 96) == [(16, 96, 96), (32, 48, 48), (64, 24, 24), (128, 12, 12), (256, 6, 6)]


@pytest.mark.parametrize(
    ("name", "num_classes", "exempt"), [("wrn-28-2", 10, 3_642), ("wrn-28-8", 100, 14_484), ("wrn-37-2", 10, 7_738)]
)
def test_row_22_parameters_exempt_from_decay(name: str, num_classes: int, exempt: int) -> None:
    net = empty(name, num_classes)
    decayed, others = parameter_groups(net, 5e-4)
    assert (decayed["weight_decay"], others["weight_decay"]) == (5e-4, 0)
    assert sum(parameter.numel() for parameter in others["params"]) == exempt
    assert sum(parameter.numel() for parameter in decayed["params"]) == count_parameters(net) - exempt


def small_net(*, activate_transitions: bool) -> WideResNet:
    torch.manual_seed(0)
    return WideResNet(10, 2, activate_transitions=activate_transitions)


def transition_norms(net: WideResNet) -> list[nn.BatchNorm2d]:
    return [stage[0].norm1 for stage in list(net.stages)[1:]]


@pytest.mark.parametrize("activate_transitions", [False, True])
def test_gradients_reach_every_trainable_parameter(activate_transitions: bool) -> None:
    net = small_net(activate_transitions=activate_transitions)
    net(torch.randn(4, 3, 16, 16)).square().sum().backward()
    trainable = [parameter for parameter in net.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trainable)
    frozen = [name for name, parameter in net.named_parameters() if not parameter.requires_grad]
    expected = [f"stages.{stage}.0.norm1.{kind}" for stage in (1, 2) for kind in ("weight", "bias")]
    assert frozen == ([] if activate_transitions else expected)


@pytest.mark.parametrize("activate_transitions", [False, True])
def test_transitions_use_their_norm_only_when_asked_to(activate_transitions: bool) -> None:
    net = small_net(activate_transitions=activate_transitions).eval()
    images = torch.randn(2, 3, 16, 16)
    before = net(images)
    for norm in transition_norms(net):
        with torch.no_grad():
            norm.running_mean.add_(1)
            norm.running_var.mul_(3)
            norm.weight.mul_(2)
            norm.bias.add_(1)
    assert torch.equal(net(images), before) is not activate_transitions


@pytest.mark.parametrize("activated", [False, True])
def test_a_transition_activates_the_branch_and_never_the_shortcut(activated: bool) -> None:
    unit = small_net(activate_transitions=activated).stages[1][0].eval()
    torch.nn.init.zeros_(unit.conv2.weight)
    x = torch.randn(2, 32, 8, 8)
    torch.testing.assert_close(unit(x), unit.shortcut(x))
    seen: list[Tensor] = []
    unit.conv1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    unit(x)
    torch.testing.assert_close(seen[0], nn.functional.leaky_relu(unit.norm1(x), 0.1) if activated else x)


def test_the_first_unit_activates_branch_and_shortcut() -> None:
    unit = small_net(activate_transitions=False).stages[0][0].eval()
    x = torch.randn(2, 16, 8, 8)
    activated = nn.functional.leaky_relu(unit.norm1(x), 0.1)
    torch.testing.assert_close(unit(x), unit.shortcut(activated) + unit.residual(activated.clone()))


def test_a_shortcut_is_a_convolution_only_where_the_width_changes() -> None:
    with torch.device("meta"):
        net = WideResNet(28, 2)
        narrow = WideResNet(10, 1)
    found = [[hasattr(unit, "shortcut") for unit in stage] for stage in net.stages]
    assert found == [[True, False, False, False]] * 3
    assert [hasattr(stage[0], "shortcut") for stage in narrow.stages] == [False, True, True]


def test_norms_are_slow_and_the_last_one_has_a_larger_epsilon() -> None:
    with torch.device("meta"):
        net = WideResNet()
    norms = {name: module for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
    assert len(norms) == 25
    assert {norm.momentum for norm in norms.values()} == {0.001}
    assert {name: norm.eps for name, norm in norms.items() if norm.eps != 1e-5} == {"norm": 1e-3}


def test_initialization() -> None:
    torch.manual_seed(0)
    net = WideResNet(16, 4)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            expected = (2 / fan_out) ** 0.5
            spread = 4 * expected / (2 * module.weight.numel()) ** 0.5  # four standard errors
            assert module.weight.std().item() == pytest.approx(expected, abs=spread)
            assert abs(module.weight.mean().item()) < 4 * expected / module.weight.numel() ** 0.5
        elif isinstance(module, nn.BatchNorm2d):
            assert torch.all(module.weight == 1)
            assert torch.all(module.bias == 0)
    assert net.stem.bias is not None
    assert 0 < net.stem.bias.abs().max() <= 27**-0.5
    assert all(module.bias is None for module in net.stages.modules() if isinstance(module, nn.Conv2d))


def test_features_are_the_mean_of_the_last_maps() -> None:
    net = small_net(activate_transitions=False).eval()
    images = torch.randn(2, 3, 20, 12)
    maps = nn.functional.leaky_relu(net.norm(net.stages(net.stem(images))), 0.1)
    torch.testing.assert_close(net(images), maps.flatten(2).mean(2))


@pytest.mark.parametrize("depth", [4, 27, 30])
def test_a_depth_that_does_not_exist_is_refused(depth: int) -> None:
    with pytest.raises(InputError, match=f"6n \\+ 4.*{depth} is not"):
        WideResNet(depth)
