"""Residual networks for photos (He et al., CVPR 2016), with the stride of a bottleneck in its 3 x 3 convolution.

Layers have the names of torchvision and timm, so that their weights fit as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class ResNet(nn.Module):
    """Images (N, in_channels, H, W) in, features (N, num_features) out; the defaults are ResNet-50.

    Args:
        units: How many residual units each of the four stages has.
        bottleneck: Units of three convolutions, the middle one narrow, instead of two.
        in_channels: Of the images.
    """

    def __init__(self, units: Sequence[int] = (3, 4, 6, 3), bottleneck: bool = True, *, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        widening = 4 if bottleneck else 1
        unit: type[_Basic] | type[_Bottleneck] = _Bottleneck if bottleneck else _Basic
        inputs = 64
        stages = []
        for stage, count in enumerate(units):
            channels = 64 * 2**stage
            layers = []
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                layers.append(unit(inputs, channels, channels * widening, stride))
                inputs = channels * widening
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.num_features = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
        return maps.mean((2, 3))

    def divide(self) -> tuple[nn.Module, nn.Module]:
        """What several heads share, and what each has of its own: the last stage."""
        stem = (self.conv1, self.bn1, self.relu, self.maxpool)
        trunk = nn.Sequential(*stem, self.layer1, self.layer2, self.layer3)
        return trunk, nn.Sequential(self.layer4, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Unit(nn.Module):
    """What two kinds of units have in common: a branch, added to the input or to its projection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if (inputs, stride) != (outputs, 1):
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.relu(self.branch(x) + self.downsample(x))
        return added

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class _Basic(_Unit):
    def __init__(self, inputs: int, channels: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def branch(self, x: Tensor) -> Tensor:
        maps: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return maps


class _Bottleneck(_Unit):
    def __init__(self, inputs: int, channels: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)

    def branch(self, x: Tensor) -> Tensor:
        maps = self.relu(self.bn1(self.conv1(x)))
        maps = self.relu(self.bn2(self.conv2(maps)))
        widened: Tensor = self.bn3(self.conv3(maps))
        return widened
