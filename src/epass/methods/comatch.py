"""CoMatch: Semi-supervised Learning with Contrastive Graph Regularization (Li, Xiong & Hoi, ICCV 2021).

A memory of embeddings smooths the pseudo-labels; the graph of similar pseudo-labels teaches the embeddings.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import QueueAlignment
from ..parts.graph import agreement, edge_loss
from ..parts.labels import consistency, one_hot
from ..parts.memory import Queue
from ..parts.projector import ProjectorEnsemble
from ..parts.threshold import confident


class CoMatch(Method):
    """Class probabilities and embeddings, co-trained through a graph. With `size=3` projectors it is CoMatch + EPASS.

    Smoothing starts after `warmup_steps` "and" after `queue_batches` steps, as published; with "or" the earlier one
    suffices. `queue_overrun="skip"` repeats the published ring, which drops rows at its end. `graph="paper"` is that of
    the EPASS paper's equations: who resembles the same remembered images, against the first strong views alone.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong", "strong"))
    projector: ProjectorEnsemble

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        projector: ProjectorEnsemble,
        *,
        threshold: float = 0.95,
        edge_threshold: float = 0.8,
        temperature: float = 0.2,
        smoothing: float = 0.9,
        alignment_length: int = 32,
        alignment_steps: int | None = None,
        unlabeled_weight: float = 1.0,
        contrast_weight: float = 1.0,
        queue_batches: int = 5,
        queue_size: int | None = None,
        queue_overrun: Literal["wrap", "skip"] = "wrap",
        warmup_steps: int = 1024,
        smooth_after: Literal["and", "or"] = "and",
        graph: Literal["code", "paper"] = "code",
    ) -> None:
        super().__init__(net)
        one_of("smooth_after", smooth_after, ("and", "or"))
        one_of("graph", graph, ("code", "paper"))
        self.projector, self.graph = projector, graph
        self.threshold, self.edge_threshold = threshold, edge_threshold
        self.temperature, self.smoothing = temperature, smoothing
        self.unlabeled_weight, self.contrast_weight = unlabeled_weight, contrast_weight
        self.queue_batches, self.warmup_steps, self.smooth_after = queue_batches, warmup_steps, smooth_after
        self.num_classes = problem.num_classes
        self.alignment = QueueAlignment(problem.num_classes, alignment_length, alignment_steps)
        rows = queue_size or queue_batches * (problem.labeled_batch + problem.unlabeled_batch)
        self.seen = Queue(rows, overrun=queue_overrun, embedding=(projector.out_dim,), probs=(problem.num_classes,))

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong, other) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_other, on_weak = predict_jointly(self.net, x, strong, other, weak)
        z_strong, z_other = self.projector(on_strong.features), self.projector(on_other.features)

        with torch.no_grad():
            z_x, z_weak = self.projector(on_x.features), self.projector(on_weak.features)
            probs = on_weak.logits.softmax(1)
            mean_probs = mean_over_ranks(probs.mean(0))
            aligned = self.alignment(probs, mean_probs, batch.step)
            near = (z_weak @ self.seen["embedding"].T / self.temperature).softmax(1)
            target = self.smooth(aligned, near, batch.step)
            mask = confident(target, self.threshold)
            edges = agreement(near if self.graph == "paper" else target, self.edge_threshold)  # (U, all U)

        contrast = edge_loss(edges, z_strong, z_other, self.temperature, within=self.graph == "paper")
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
                "contrast": self.contrast_weight * contrast,
            },
            metrics={
                "edges": (edges > 0).float().sum(1).mean(),
                "head_cosine": self.projector.similarity(on_x.features),
            },
            memory={
                "embedding": torch.cat([z_weak, z_x]),
                "probs": torch.cat([aligned, one_hot(batch.labels, self.num_classes)]),
                "mean_probs": mean_probs,
            },
            pseudo=PseudoLabels(target.argmax(1), mask, target),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    def smooth(self, probs: Tensor, near: Tensor, step: Tensor) -> Tensor:
        """Mix `probs` with those of the nearest remembered samples, once the memory is worth asking."""
        mixed = self.smoothing * probs + (1 - self.smoothing) * near @ self.seen["probs"]
        warm, filled = step >= self.warmup_steps, step > self.queue_batches
        return torch.where(warm & filled if self.smooth_after == "and" else warm | filled, mixed, probs)

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.alignment.remember(memory["mean_probs"])
        self.seen.push(embedding=memory["embedding"], probs=memory["probs"])
