"""Optimizers with the parameter groups of the field: no weight decay on biases and normalization layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .schedule import Plan


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: decayed weights, and the exempt ones (at most one dimension, or a name that ends in "bias")."""
    exempt = {name for name, p in module.named_parameters() if p.ndim <= 1 or name.endswith("bias")}
    return [
        {"params": [p for n, p in module.named_parameters() if n not in exempt], "weight_decay": weight_decay},
        {"params": [p for n, p in module.named_parameters() if n in exempt], "weight_decay": 0.0},
    ]


def make_optimizer(module: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """The plan's optimizer, its learning rate a device tensor so that a captured step follows the schedule."""
    device = next(module.parameters()).device
    groups = parameter_groups(module, plan.weight_decay)
    fused = device.type == "cuda"
    lr = torch.tensor(plan.lr, device=device) if fused else plan.lr
    # State exists from the start, as zeros: a checkpoint has the same tensors at every step and restores them in place.
    if plan.optimizer == "adamw":
        adamw = torch.optim.AdamW(groups, lr=lr, fused=fused, capturable=fused)
        for p in trainable(module):
            count = torch.zeros((), device=device if fused else "cpu")
            adamw.state[p] = {"step": count, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        return adamw
    sgd = torch.optim.SGD(groups, lr=lr, momentum=plan.momentum, nesterov=plan.momentum > 0, fused=fused)
    if plan.momentum > 0:
        for p in trainable(module):
            sgd.state[p] = {"momentum_buffer": torch.zeros_like(p)}
    return sgd


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that get gradients."""
    return [p for p in module.parameters() if p.requires_grad]


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
