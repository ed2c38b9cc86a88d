"""Optimizers with the parameter groups of the field: what is decayed, and how fast each layer learns."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, cast

import torch
from torch import nn

from ..errors import InputError
from .schedule import Plan


def uncompiled(optimizer: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer without the wrappers that keep it out of a compiled graph, where ours never is.

    To do nothing, they import the whole compiler of torch, which takes longer than a short run trains for.
    """
    plain: dict[str, Any] = {name: unwrap(getattr(optimizer, name)) for name in ("add_param_group", "zero_grad")}
    return type(optimizer.__name__, (optimizer,), plain | {"step": torch.no_grad()(unwrap(optimizer.step))})


SGD = uncompiled(torch.optim.SGD)
# Decay as part of the gradient, or beside it.
ADAMS = {"adam": uncompiled(torch.optim.Adam), "adamw": uncompiled(torch.optim.AdamW)}


def parameter_groups(
    module: nn.Module, weight_decay: float, layer_decay: float = 1.0, *, decay_everything: bool = False
) -> list[dict[str, Any]]:
    """Groups of decayed weights and of exempt ones: two, or with a `layer_decay` below 1 two for every layer.

    Exempt are parameters with at most one dimension, those whose name ends in "bias", and those that a part of the
    module names in its attribute `undecayed`; none with `decay_everything`. A group's learning rate is the plan's
    times its `lr_scale`.
    """
    exempt = set() if decay_everything else exempt_from_decay(module)
    scales = lr_scales(module, layer_decay)
    groups = []
    for scale in sorted(set(scales.values())):
        members = [p for p in module.parameters() if scales[p] == scale]
        decayed, others = [p for p in members if p not in exempt], [p for p in members if p in exempt]
        groups.append({"params": decayed, "weight_decay": weight_decay, "lr_scale": scale})
        groups.append({"params": others, "weight_decay": 0.0, "lr_scale": scale})
    return groups


def exempt_from_decay(module: nn.Module) -> set[nn.Parameter]:
    """The parameters that weight decay customarily leaves alone."""
    exempt = {p for name, p in module.named_parameters() if p.ndim <= 1 or name.endswith("bias")}
    for part in module.modules():  # wherever it stands: wrapped or not, a network's word is heard
        exempt |= {part.get_parameter(name) for name in getattr(part, "undecayed", ())}
    return exempt


def lr_scales(module: nn.Module, layer_decay: float) -> dict[nn.Parameter, float]:
    """What the learning rate of each parameter is multiplied with.

    A part of the module that knows the layer of its parameters, `layer_of(name)` from 0 to below `num_layers`, gets
    `layer_decay ** (num_layers - layer)`. All else, such as heads and projectors, stands behind it and gets 1.
    """
    scales = dict.fromkeys(module.parameters(), 1.0)
    if layer_decay == 1:
        return scales
    layered = [part for part in module.modules() if hasattr(part, "layer_of")]
    if not layered:
        raise InputError(
            f"plan.layer_decay is {layer_decay}, but this network does not know its layers: set it to 1.0, or choose "
            "one that does, such as vit-small-patch2-32."
        )
    for part in reversed(layered):  # of parts inside of one another, the outer one has the last word
        layer_of, num_layers = cast(Callable[[str], int], part.layer_of), cast(int, part.num_layers)
        scales |= {p: layer_decay ** (num_layers - layer_of(name)) for name, p in part.named_parameters()}
    return scales


def make_optimizer(module: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """The plan's optimizer, its learning rates device tensors so that a captured step follows the schedule."""
    device = next(module.parameters()).device
    decay_everything = plan.decayed == "everything"
    groups = parameter_groups(module, plan.weight_decay, plan.layer_decay, decay_everything=decay_everything)
    fused = device.type == "cuda"
    for group in groups:
        lr = plan.lr * group["lr_scale"]
        group["lr"] = torch.tensor(lr, device=device) if fused else lr
    # State exists from the start, as zeros: a checkpoint has the same tensors at every step and restores them in place.
    if plan.optimizer != "sgd":
        adam = ADAMS[plan.optimizer](groups, lr=plan.lr, fused=fused, capturable=fused)
        for p in trainable(module):
            count = torch.zeros((), device=device if fused else "cpu")
            adam.state[p] = {"step": count, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        return adam
    nesterov = plan.nesterov and plan.momentum > 0
    sgd = SGD(groups, lr=plan.lr, momentum=plan.momentum, nesterov=nesterov, fused=fused)
    if plan.momentum > 0:
        for p in trainable(module):
            sgd.state[p] = {"momentum_buffer": torch.zeros_like(p)}
    return sgd


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that get gradients."""
    return [p for p in module.parameters() if p.requires_grad]


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, times its own scale and in place where it is a tensor."""
    for group in optimizer.param_groups:
        scaled = lr * group.get("lr_scale", 1.0)  # an optimizer that others made has none
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled
