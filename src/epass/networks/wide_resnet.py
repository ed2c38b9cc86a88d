"""Wide residual networks for small images (Zagoruyko and Komodakis, BMVC 2016), as semi-supervised learning uses them.

Their published form has LeakyReLU, slow BatchNorm statistics and one quirk, which `activate_transitions` undoes: the
first unit of every stage but the first has a leading BatchNorm and activation whose result nothing uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import cast

from torch import Tensor, nn

from ..errors import InputError
from . import narrow, passes

_SLOPE = 0.1


class WideResNet(nn.Module):
    """Images (N, in_channels, H, W) in, features (N, num_features) out; the defaults are the network "28-2".

    Three stages keep the resolution of the first, for images of 32 pixels. A fourth one is for larger images, which the
    first stage then halves: `WideResNet(28, 2, 4)` is the network called "37-2" in the literature.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 2,
        stages: int = 3,
        *,
        in_channels: int = 3,
        activate_transitions: bool = False,
        stem_bias: bool = True,
        last_channels: int | None = None,
    ) -> None:
        super().__init__()
        units, rest = divmod(depth - 4, 6)
        if units < 1 or rest:
            raise InputError(f"A wide ResNet has a depth of 6n + 4, such as 10, 16, 22 or 28; {depth} is not.")
        stem_channels = 16
        channels = [stem_channels, *(16 * width * 2**stage for stage in range(stages))]
        channels[-1] = last_channels or channels[-1]
        strides = [1 if stages <= 3 else 2, *[2] * (stages - 1)]

        self.stem = nn.Conv2d(in_channels, stem_channels, 3, padding=1, bias=stem_bias)
        self.stages = nn.Sequential()
        for stage, stride in enumerate(strides):
            inputs, outputs = channels[stage : stage + 2]
            if stage > 0:
                first: _Unit = _TransitionUnit(inputs, outputs, stride, activated=activate_transitions)
            elif (inputs, stride) == (outputs, 1):
                first = _Unit(outputs, outputs)
            else:
                first = _FirstUnit(inputs, outputs, stride)
            self.stages.append(nn.Sequential(first, *(_Unit(outputs, outputs) for _ in range(units - 1))))
        self.norm = _norm(channels[-1], eps=1e-3)
        self.activation = nn.LeakyReLU(_SLOPE, inplace=True)
        self.num_features = channels[-1]

        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # the stem's bias keeps PyTorch's default
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps = (
            narrow.first_convolution(self.stem, images) if narrow.fits_first(self.stem, images) else self.stem(images)
        )
        sums = None
        for unit in chain.from_iterable(cast(Iterable[Iterable[_Unit]], self.stages)):
            maps, sums = unit.faster(maps, sums) if unit.can_be_faster(maps) else (unit(maps), None)
        if passes.fits(maps, self.norm):
            return passes.activated(self.norm, _SLOPE, maps, sums).mean((2, 3))
        activated: Tensor = self.activation(self.norm(maps))
        return activated.mean((2, 3))

    def divide(self) -> tuple[nn.Module, nn.Module]:
        """What several heads share, and what each has of its own: the last stage."""
        trunk = nn.Sequential(self.stem, *list(self.stages)[:-1])
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return trunk, nn.Sequential(self.stages[-1], self.norm, self.activation, pool)


class _Unit(nn.Module):
    """Pre-activation residual unit: norm, activation, convolution, twice, added to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = _norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = _norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.activation = nn.LeakyReLU(_SLOPE, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.residual(self.activation(self.norm1(x)))

    def residual(self, activated: Tensor) -> Tensor:
        branch: Tensor = self.conv2(self.activation(self.norm2(self.conv1(activated))))
        return branch

    def can_be_faster(self, x: Tensor) -> bool:
        return passes.fits(x, self.norm1, self.norm2)

    def faster(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same as `forward`. It takes the sums over x if these are known, and returns those over the result."""
        if narrow.fits(self.conv1, x, self.norm1, self.norm2):
            branch, sums = narrow.activated_convolution(self.norm1, _SLOPE, self.conv1, x, sums)
            return narrow.activated_convolution(self.norm2, _SLOPE, self.conv2, branch, sums, add=x)
        return self.finish(self.conv1(passes.activated(self.norm1, _SLOPE, x, sums)), x)

    def finish(self, branch: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
        """What is left after the first convolution."""
        return passes.added(self.conv2(passes.activated(self.norm2, _SLOPE, branch, None)), shortcut)


class _FirstUnit(_Unit):
    """The first unit of the network: its shortcut, too, takes the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, stride)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.activation(self.norm1(x))
        shortcut: Tensor = self.shortcut(activated)
        return shortcut + self.residual(activated)

    def faster(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor]:
        activated = passes.activated(self.norm1, _SLOPE, x, sums)
        shortcut: Tensor = self.shortcut(activated)
        if not narrow.fits(self.conv1, activated, self.norm2):
            return self.finish(self.conv1(activated), shortcut)
        branch, sums = narrow.convolution(self.conv1, activated)
        return narrow.activated_convolution(self.norm2, _SLOPE, self.conv2, branch, sums, add=shortcut)


class _TransitionUnit(_Unit):
    """The first unit of a later stage: halves the resolution; the shortcut takes the raw input.

    The original formulation feeds the activated input to the first convolution. The published semi-supervised networks,
    which the paper's tables were made with, feed it the raw input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, *, activated: bool) -> None:
        super().__init__(inputs, outputs, stride)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.activated = activated
        # Where nothing uses it, the norm stays because the published parameter counts contain it, and is frozen because
        # a trainable parameter without a gradient stops distributed training.
        self.norm1.requires_grad_(activated)

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = self.shortcut(x)
        return shortcut + self.residual(self.activation(self.norm1(x)) if self.activated else x)

    def faster(self, x: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.activated:
            return self.finish(self.conv1(passes.activated(self.norm1, _SLOPE, x, sums)), self.shortcut(x))
        if narrow.fits_joining(self.conv1, x):
            return self.finish(*narrow.joint_convolution(self.conv1, self.shortcut, x))
        return self.finish(self.conv1(x), self.shortcut(x))


def _norm(channels: int, eps: float = 1e-5) -> nn.BatchNorm2d:
    # Slow statistics are for the hundreds of thousands of steps these networks are trained for.
    return nn.BatchNorm2d(channels, eps=eps, momentum=0.001)
