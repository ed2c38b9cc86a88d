"""SimMatchV2: Semi-Supervised Learning with Graph Consistency (Zheng et al., ICCV 2023).

Images are nodes of a graph and similarities its edges; the nodes and the edges of a teacher teach those of the student.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import NormalizedBackbone, predict_jointly
from ..parts.alignment import LaggedAlignment
from ..parts.graph import NodeRing, Propagation
from ..parts.labels import consistency
from ..parts.memory import Table
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average
from ..parts.threshold import confident


class SimMatchV2(Method):
    """Label propagation over labeled neighbors, and edges to a ring of unlabeled images. `size=3` makes it EPASS.

    `ring_rows="all"` repeats the published code, in which rows that were never written take part, and the loss that
    this makes infinite is dropped. `align_with="present"` counts a batch before its probabilities are aligned.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    projector: ProjectorEnsemble

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        projector: ProjectorEnsemble,
        *,
        threshold: float = 0.95,
        temperature: float = 0.1,
        propagation: float = 0.1,
        neighbors: int = 128,
        unlabeled_weight: float = 1.0,
        edge_weight: float = 1.0,
        node_edge_weight: float = 1.0,
        ring_batches: int = 32,
        ring_rows: Literal["written", "all"] = "written",
        alignment_momentum: float = 0.9,
        align_with: Literal["past", "present"] = "past",
        teacher_momentum: float = 0.999,
    ) -> None:
        super().__init__(net)
        one_of("align_with", align_with, ("past", "present"))
        self.projector = projector
        self.threshold = threshold
        self.unlabeled_weight, self.edge_weight, self.node_edge_weight = unlabeled_weight, edge_weight, node_edge_weight
        self.propagate = Propagation(min(neighbors, problem.num_labeled), temperature, propagation)
        num_classes, width, rows = problem.num_classes, projector.out_dim, ring_batches * problem.unlabeled_batch
        self.alignment = LaggedAlignment(num_classes, momentum=alignment_momentum, count_batch=align_with == "present")
        self.bank = Table(problem.num_labeled, embedding=(width,), label=())
        self.bank["label"].fill_(-1)  # not seen yet
        self.ring = NodeRing(rows, width, num_classes, temperature=temperature, rows=ring_rows)
        self.teacher = Average(nn.ModuleList([net, projector]), teacher_momentum, batch_statistics=True)

    @classmethod
    def adapt(cls, net: nn.Module) -> nn.Module:
        """Classifier and projector both read features that passed a LayerNorm."""
        net.backbone = NormalizedBackbone(cast(nn.Module, net.backbone))
        return net

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong = predict_jointly(self.net, x, strong)
        with torch.no_grad():
            teacher_net, project = cast(nn.ModuleList, self.teacher.module)
            bank_x, on_weak = predict_jointly(teacher_net, x, weak)
            z_x, z_weak = project(bank_x.features), project(on_weak.features)
            probs = on_weak.logits.softmax(1)
            mean_probs = mean_over_ranks(probs.mean(0))
            probs = self.alignment(probs, mean_probs)
            mask = confident(probs, self.threshold)  # before neighbors are asked
            target = self.propagate(probs, z_weak, self.bank["embedding"], self.bank["label"])
            taught_edges = self.ring.edges(z_weak).softmax(1)  # (U, K)

        edges = self.ring.edges(self.projector(on_strong.features))
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
                "edge": self.edge_weight * self.ring.edge_loss(edges, taught_edges),
                "node_edge": self.node_edge_weight * self.ring.read_out_loss(edges, probs),
            },
            metrics={"head_cosine": self.projector.similarity(on_x.features)},
            memory={
                "index": batch.labeled_index,
                "label": batch.labels,
                "z_x": z_x,
                "z_weak": z_weak,
                "probs": probs,
                "mean_probs": mean_probs,
            },
            pseudo=PseudoLabels(target.argmax(1), mask, probs),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.bank.write(memory["index"], embedding=memory["z_x"], label=memory["label"])
        self.ring.push(embedding=memory["z_weak"], probs=memory["probs"])
        self.alignment.remember(memory["mean_probs"])
        self.teacher.follow(nn.ModuleList([self.net, self.projector]))
