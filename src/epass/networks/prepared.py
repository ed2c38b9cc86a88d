"""A network that only answers: it computes the same in fewer passes over its maps."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

# What oneDNN calls what follows a convolution, and the numbers that it takes.
_ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}

# What a convolution has whose padding depends on the maps: weights and padding that compute the same for these.
_OWN_PADDING = "alike_on_all_sides"
_Padding = Callable[[Tensor], tuple[Tensor, tuple[int, ...]]]


def prepared(net: nn.Module, device: torch.device, precision: torch.dtype) -> nn.Module:
    """A copy that computes the same and is quicker.

    BatchNorm is part of the convolution before it and, on a CPU that can, so are the activation behind both and the
    padding before them.
    """
    net = deepcopy(net).eval()
    can_fuse = device.type == "cpu" and _can_fuse(precision)
    for layers in [module for module in net.modules() if isinstance(module, nn.Sequential)]:
        for place, layer in enumerate(layers):
            if not _is_plain(layer):
                continue
            convolution, behind = cast(nn.Conv2d, layer), place + 1
            norm = layers[behind] if behind < len(layers) else None
            if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None:
                convolution = layers[place] = fuse_conv_bn_eval(convolution, norm)
                layers[behind] = nn.Identity()
                behind += 1
            if can_fuse and convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str):
                kind = type(layers[behind]) if behind < len(layers) else nn.Identity
                layers[place] = _Fused(convolution, *_ACTIVATIONS.get(kind, ("none", [])))
                if kind in _ACTIVATIONS:
                    layers[behind] = nn.Identity()
    net = net.to(device, precision)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _is_plain(layer: nn.Module) -> bool:
    """Whether it is a convolution that does nothing else: no class of somebody's own, no weights made by a hook."""
    known = type(layer) is nn.Conv2d or hasattr(layer, _OWN_PADDING)
    return known and not layer._forward_hooks and not layer._forward_pre_hooks


class _Fused(nn.Module):
    """A convolution and its activation in one call, which does not pad the maps."""

    def __init__(self, convolution: nn.Conv2d, activation: str, numbers: list[float]) -> None:
        super().__init__()
        self.convolution, self.activation, self.numbers = convolution, activation, numbers

    def forward(self, maps: Tensor) -> Tensor:
        layer = self.convolution
        own = cast(_Padding | None, getattr(layer, _OWN_PADDING, None))
        weight, padding = (layer.weight, layer.padding) if own is None else own(maps)
        shape = (padding, layer.stride, layer.dilation, layer.groups)
        return _convolved(maps, weight, layer.bias, *shape, self.activation, self.numbers)


def _convolved(maps: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """By oneDNN, in the way that torch's compiler calls it."""
    return cast(Tensor, torch.ops.mkldnn._convolution_pointwise(maps, weight, bias, *how, ""))


@cache
def _can_fuse(precision: torch.dtype) -> bool:
    """Whether that call is there and right: torch promises it to nobody, so it is tried."""
    maps, weight = (torch.linspace(-1, 1, 200, dtype=precision).view(shape) for shape in ((1, 8, 5, 5), (25, 8, 1, 1)))
    with torch.inference_mode():
        try:
            found = _convolved(maps, weight, None, [0, 0], [1, 1], [1, 1], 1, *_ACTIVATIONS[nn.ReLU6])
        except (AttributeError, RuntimeError):  # no such call, or none for this processor and precision
            return False
        return torch.allclose(found, nn.functional.conv2d(maps, weight).clamp(0, 6), rtol=0.01, atol=0.01)
