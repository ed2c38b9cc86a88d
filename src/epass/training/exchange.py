"""Averages of gradients over all processes: a few messages, each of which travels while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from ..machine.distributed import alone, world_size

MOST_MESSAGES, LEAST_BYTES = 4, 2**20  # below a megabyte a message is mostly latency


def in_groups(weights: Iterable[Tensor]) -> list[list[Tensor]]:
    """Those that get gradients, in about the order in which these come: a group for each message."""
    coming = [weight for weight in weights if weight.requires_grad][::-1]
    enough = max(sum(weight.nbytes for weight in coming) / MOST_MESSAGES, LEAST_BYTES)
    groups: list[list[Tensor]] = [[]]
    for weight in coming:
        if sum(other.nbytes for other in groups[-1]) >= enough:
            groups.append([])
        groups[-1].append(weight)
    return groups


def differentiate(loss: Tensor, weights: Iterable[Tensor]) -> None:
    """Give the weights their gradients, averaged over all processes, of which each has a loss of its own."""
    if alone():
        loss.backward()  # type: ignore[no-untyped-call]
        return
    sent: list[tuple[list[Tensor], Tensor, Any]] = []
    groups = [(group, set(group)) for group in in_groups(weights)]  # and those whose gradient is not there yet

    def send(group: list[Tensor]) -> None:
        message = join([flat(cast(Tensor, weight.grad), weight) for weight in group])
        sent.append((group, message, dist.all_reduce(message, async_op=True)))

    def arrive(weight: Tensor) -> None:
        group, missing = next(entry for entry in groups if weight in entry[1])
        missing.remove(weight)
        if not missing:
            send(group)

    hooks = [
        weight.register_post_accumulate_grad_hook(arrive)  # type: ignore[no-untyped-call]
        for group, _ in groups
        for weight in group
    ]
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    for group, missing in groups:
        if missing and len(missing) < len(group):  # what the loss does not depend on has no gradient
            send([weight for weight in group if weight not in missing])
    for group, message, work in sent:
        work.wait()
        pieces = torch.split(message.div_(world_size()), [weight.numel() for weight in group])
        for weight, piece in zip(group, pieces, strict=True):
            weight.grad = shaped(piece, weight)


def averaging(module: nn.Module) -> nn.Module:
    """The same for a compiler, with gradients that come averaged: hooks would only see the end of a compiled graph."""
    return module if alone() else _Averaging(module)


def early_messages() -> dict[str, Any]:
    """What to tell torch's compiler, so that it sends them while it goes on."""
    if alone():
        return {}
    from .early import SendEarly

    # To free a message a little earlier, the compiler would wait for it where it was sent.
    return {"post_grad_custom_post_pass": SendEarly(), "reorder_for_peak_memory": False}


class _Averaging(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        names: dict[Tensor, str] = {weight: name for name, weight in self.module.named_parameters()}
        weights: dict[str, Tensor] = {}
        for group in in_groups(names):
            same = _Averaged.apply(*(flat(weight, weight) for weight in group))  # type: ignore[no-untyped-call]
            weights |= {names[weight]: shaped(piece, weight) for piece, weight in zip(same, group, strict=True)}
        return functional_call(self.module, weights, inputs)


class _Averaged(torch.autograd.Function):
    """Of flat tensors: a compiler gives such a function gradients in the usual order, which a flat one has anyway."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        message = join(list(gradients))
        dist.all_reduce(message)
        return torch.split(message / world_size(), [len(gradient) for gradient in gradients])


@torch.library.custom_op("epass::join", mutates_args=())
def join(pieces: Sequence[Tensor]) -> Tensor:
    """`torch.cat` as an operator that a compiler leaves alone: it would copy each piece by a kernel of its own."""
    return torch.cat(list(pieces))


@join.register_fake
def _(pieces: Sequence[Tensor]) -> Tensor:
    return pieces[0].new_empty(sum(len(piece) for piece in pieces))


def flat(values: Tensor, weight: Tensor) -> Tensor:
    """The numbers in the order in which those of `weight` lie in memory, and if they lie so, no copy."""
    return values.permute(order(weight)).reshape(-1)


def shaped(piece: Tensor, weight: Tensor) -> Tensor:
    """The same backwards, always without a copy."""
    dims = order(weight)
    return piece.view([weight.shape[dim] for dim in dims]).permute([dims.index(dim) for dim in range(weight.ndim)])


def order(weight: Tensor) -> list[int]:
    """Its dimensions, from the largest steps in memory to the smallest."""
    return sorted(range(weight.ndim), key=lambda dim: -weight.stride()[dim])
