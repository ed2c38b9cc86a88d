"""Graphs of images: nodes have embeddings and class probabilities, edges are similarities."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, one_of
from ..machine.distributed import gather_rows, mean_over_ranks, rank, world_size
from .labels import one_hot
from .memory import Queue

NO_EDGE = -1e9  # a similarity that softmax makes 0; finite, so that 0 times its logarithm is 0 as well


def agreement(rows: Tensor, threshold: float) -> Tensor:
    """(N, all N): who should be similar to whom. Dot products of `rows`, weak ones cut; own pair always; sums of 1."""
    edges = rows @ gather_rows(rows).T
    edges = torch.where(own_pairs(edges), 1.0, edges)
    edges = torch.where(edges >= threshold, edges, 0.0)
    return edges / edges.sum(1, keepdim=True)


def edge_loss(edges: Tensor, view: Tensor, other: Tensor, temperature: float, *, within: bool = False) -> Tensor:
    """Cross-entropy between `edges` and the similarities of embeddings: of one view to the `other` one of everybody.

    `within` takes the same view instead, except for an image and itself.
    """
    logits = view @ gather_rows(view if within else other).T
    if within:
        logits = torch.where(own_pairs(logits), (view * other).sum(1, keepdim=True), logits)
    return -(edges * ((logits / temperature).softmax(1) + 1e-7).log()).sum(1).mean()


def own_pairs(edges: Tensor) -> Tensor:
    """Where the columns of this process's rows stand among those of all."""
    everybody = torch.arange(edges.shape[1], device=edges.device)
    return everybody[rank() :: world_size(), None] == everybody


class Propagation(nn.Module):
    """Lets the nearest labeled images, which also talk to each other, have a say in class probabilities.

    With A the row-wise softmax of the similarities among a query and its `neighbors`, nobody being its own neighbor,
    the result is the query's row of (1 - strength) (I - strength A)^-1 [probs; labels]. Instead of a matrix inverse
    per query, the series in A is summed until the rest is below the precision of float32.
    """

    def __init__(self, neighbors: int, temperature: float, strength: float) -> None:
        super().__init__()
        if not 0 <= strength < 1:
            raise InputError(f"The propagation {strength:g} is out of range: use a number from 0 to below 1.")
        self.neighbors, self.temperature, self.strength = neighbors, temperature, strength
        self.terms = math.ceil(-7 / math.log10(strength)) if strength else 0

    def forward(self, probs: Tensor, embedding: Tensor, bank: Tensor, bank_labels: Tensor) -> Tensor:
        """The new (N, C) `probs`. Bank rows labeled -1 are not there yet: they are nobody's neighbors."""
        known = bank_labels >= 0
        near = (embedding @ bank.T).masked_fill(~known, NO_EDGE).topk(self.neighbors, dim=1).indices
        nodes = torch.cat([embedding[:, None], bank[near]], 1)  # (N, 1 + neighbors, d), the query first
        opinions = torch.cat([probs[:, None], one_hot(bank_labels[near], probs.shape[1])], 1)
        weights = self.weights(nodes, F.pad(known[near], (1, 0), value=True))
        return (weights[:, None] @ opinions)[:, 0]

    def weights(self, nodes: Tensor, known: Tensor) -> Tensor:
        """(N, 1 + neighbors): how much the first node of every graph listens to each of its nodes."""
        itself = torch.eye(nodes.shape[1], device=nodes.device)
        cut = itself.bool() | ~known[:, None]
        edges = (nodes @ nodes.mT / self.temperature).masked_fill(cut, NO_EDGE).softmax(2).masked_fill(cut, 0)
        total = walk = itself[:1].expand(len(nodes), 1, -1)
        for _ in range(self.terms):
            walk = self.strength * walk @ edges
            total = total + walk
        # The sum is 1 / (1 - strength), or 1 as long as there are no neighbors.
        return (total / total.sum(2, keepdim=True))[:, 0]


class NodeRing(Queue):
    """The last `size` unlabeled nodes, embeddings with class probabilities, as the other end of edges.

    Rows that were never written are no nodes. `rows="all"` is the published form: they are random embeddings without a
    class. While no node with a class is near, that makes a loss infinite, which then is dropped.
    """

    def __init__(
        self, size: int, width: int, num_classes: int, *, temperature: float, rows: Literal["written", "all"]
    ) -> None:
        one_of("ring_rows", rows, ("written", "all"))
        super().__init__(size, embedding=(width,), probs=(num_classes,))
        self.temperature, self.rows = temperature, rows
        self["embedding"].copy_(F.normalize(torch.randn(size, width), dim=1))

    def edges(self, embedding: Tensor) -> Tensor:
        """(N, d) -> (N, size): the logits of how much weight each embedding gives to each node."""
        logits = embedding @ self["embedding"].T / self.temperature
        if self.rows == "all":
            return logits
        return logits.masked_fill(torch.arange(self.size, device=logits.device) >= self.pushed, NO_EDGE)

    def edge_loss(self, edges: Tensor, taught: Tensor) -> Tensor:
        """Cross-entropy between edges, given as logits, and those they should be."""
        return self.once_started(F.cross_entropy(edges, taught))

    def read_out_loss(self, edges: Tensor, taught: Tensor) -> Tensor:
        """Cross-entropy between the classes to which edges lead and those to which they should lead."""
        reached = edges.softmax(1) @ self["probs"]  # (N, C)
        if self.rows == "written":
            return self.once_started(-(taught * (reached + 1e-8).log()).sum(1).mean())
        finite = mean_over_ranks((reached <= 0).float().sum()) == 0
        reached = torch.where(reached > 0, reached, 1.0)  # or the dropped loss would still have a gradient
        return torch.where(finite, -(taught * reached.log()).sum(1).mean(), 0.0)

    def once_started(self, loss: Tensor) -> Tensor:
        return loss if self.rows == "all" else torch.where(self.pushed > 0, loss, 0.0)
