"""EPASS: projection heads as an ensemble. Features in, unit-length embeddings out."""

from __future__ import annotations

import functools
from typing import Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import InputError, one_of

MOST_HEADS = 1024  # far more than any experiment, and few enough to be made
Combine = Literal["mean", "sum", "concat"]
Normalize = Literal["after", "before", "both"]


def projection_head(in_dim: int, out_dim: int) -> nn.Sequential:
    """One two-layer head with PyTorch's own initialization."""
    return nn.Sequential(nn.Linear(in_dim, in_dim), nn.ReLU(), nn.Linear(in_dim, out_dim))


def add_up(tensors: list[Tensor]) -> Tensor:
    """The sum of equally shaped tensors; `stack().sum(0)` would hand them gradients that share their memory."""
    return functools.reduce(torch.add, tensors)


def is_plain(head: nn.Module) -> bool:
    """Whether a head is two layers as `projection_head` makes them, and calling it does nothing else."""
    if type(head) is not nn.Sequential or [type(layer) for layer in head] != [nn.Linear, nn.ReLU, nn.Linear]:
        return False
    first, _, second = (cast(nn.Linear, layer) for layer in head)
    whole = first.out_features == first.in_features and first.bias is not None and second.bias is not None
    return whole and not any(map(is_changed, (head, *head)))


def is_changed(module: nn.Module) -> bool:
    """Whether calling a module may do more than its class says, or its weights are more than their numbers."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    packed = any(hasattr(weight, "__tensor_flatten__") for weight in module._parameters.values())  # as torchao does
    return bool(hooks) or "forward" in module.__dict__ or packed


class ProjectorEnsemble(nn.Module):
    """`size` independently initialized heads on the same features, combined, then normalized once.

    EPASS is `size=3`; `size=1` is the plain head of SimMatch, CoMatch and MoCo. `normalize="after"` is the published
    placement, under which "sum" and "mean" are the same embedding; "before" and "both" make them differ.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int = 128,
        *,
        size: int = 1,
        combine: Combine = "mean",
        normalize: Normalize = "after",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"A projector ensemble needs at least one head, not {size}.")
        if size > MOST_HEADS:
            raise InputError(f"A projector ensemble has at most {MOST_HEADS:,} heads, not {size:,}.")
        one_of("way to combine heads", combine, get_args(Combine))
        one_of("place of the normalization", normalize, get_args(Normalize))
        self.combine, self.normalize, self.eps = combine, normalize, eps
        self.out_dim = out_dim * size if combine == "concat" else out_dim  # width of the embedding and of every memory
        self.heads = nn.ModuleList(projection_head(in_dim, out_dim) for _ in range(size))

    def forward(self, features: Tensor) -> Tensor:
        """(..., in_dim) -> (..., self.out_dim), float32 and of unit length unless normalized only before combining."""
        embedding = self.combined(features)
        return embedding if self.normalize == "before" else F.normalize(embedding.float(), dim=-1, eps=self.eps)

    def combined(self, features: Tensor) -> Tensor:
        """The same before the last normalization, for methods that use it as features and not as a direction."""
        if self.combine == "concat" or self.normalize != "after" or not self.is_one_mlp():
            return self.combine_heads(self.outputs(features))
        return self.as_one_mlp(features)

    def outputs(self, features: Tensor) -> list[Tensor]:
        """What each head says, before anything is combined."""
        return [cast(Tensor, head(features)) for head in self.heads]

    def combine_heads(self, outputs: list[Tensor]) -> Tensor:
        """The loop over heads, as the paper writes it."""
        if self.normalize != "after":
            outputs = [F.normalize(output.float(), dim=-1, eps=self.eps) for output in outputs]
        if self.combine == "concat":
            return torch.cat(outputs, -1)
        total = add_up(outputs)
        return total / len(outputs) if self.combine == "mean" else total

    def is_one_mlp(self) -> bool:
        """Whether every head is still the one that was made here, of whose computation nothing is left out or added."""
        return all(is_plain(head) for head in self.heads)

    def as_one_mlp(self, features: Tensor) -> Tensor:
        """The same mean or sum as one MLP of hidden width size * in_dim: two matrix products whatever the size."""
        layers = self.layers()
        hidden = F.linear(
            features, torch.cat([first.weight for first, _ in layers]), torch.cat([first.bias for first, _ in layers])
        )
        total = F.linear(
            hidden.relu(),
            torch.cat([second.weight for _, second in layers], 1),
            add_up([second.bias for _, second in layers]),
        )
        return total / len(layers) if self.combine == "mean" else total

    def layers(self) -> list[tuple[nn.Linear, nn.Linear]]:
        """The two layers of every head."""
        return [(cast(nn.Linear, head[0]), cast(nn.Linear, head[2])) for head in cast(list[nn.Sequential], self.heads)]

    @torch.no_grad()
    def similarity(self, features: Tensor) -> Tensor:
        """Mean pairwise cosine between the heads' outputs: at 1 the ensemble is one head, at 0 it is diverse."""
        size = len(self.heads)
        if size == 1:
            return features.new_ones((), dtype=torch.float32)
        outputs = self.outputs_at_once(features) if self.is_one_mlp() else self.outputs_unnoticed(features)
        # The pairs from the length of the sum: a diagnostic must not cost by the head.
        total = F.normalize(outputs.float(), dim=2).sum(0)
        return (total.square().sum(1).mean() - size) / (size * (size - 1))

    def outputs_at_once(self, features: Tensor) -> Tensor:
        """(size, N, out_dim) what each head says, by two products for all heads."""
        size, layers = len(self.heads), self.layers()
        first = torch.stack([one.weight for one, _ in layers]), torch.stack([one.bias for one, _ in layers])
        second = torch.stack([two.weight for _, two in layers]), torch.stack([two.bias for _, two in layers])
        features = features.reshape(-1, features.shape[-1])
        hidden = F.linear(features, first[0].flatten(0, 1), first[1].flatten()).relu()
        hidden = hidden.view(len(features), size, -1).transpose(0, 1)  # (size, N, in_dim)
        return torch.baddbmm(second[1][:, None], hidden, second[0].mT)

    def outputs_unnoticed(self, features: Tensor) -> Tensor:
        """The same of heads of any kind, whose statistics do not count these features a second time."""
        outputs = []
        for head in self.heads:
            statistics = {name: buffer.clone() for name, buffer in head.named_buffers()}
            outputs.append(cast(Tensor, functional_call(head, statistics, features)))
        return torch.stack([output.reshape(-1, output.shape[-1]) for output in outputs])
