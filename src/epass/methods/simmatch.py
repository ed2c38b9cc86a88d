"""SimMatch: Semi-supervised Learning with Similarity Matching (Zheng et al., CVPR 2022).

On the weak view a sample's class and its similarity to the labeled images correct each other; both teach the strong.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import mean_over_ranks
from ..method import Batch, Features, Method, Outcome, Problem, PseudoLabels, Views
from ..networks.classifier import predict_jointly
from ..parts.alignment import QueueAlignment
from ..parts.labels import consistency, sum_by_class
from ..parts.memory import Table
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average
from ..parts.threshold import confident


class SimMatch(Method):
    """Class and instance similarity, matched across views. With `size=3` projectors it is SimMatch + EPASS.

    `bank_normalization="batch"` repeats a slip of the published code, which normalizes the bank over the batch instead
    of every embedding. `teacher="average"` lets a moving average look at weak views and fill the bank, as the authors'
    own ImageNet code does; the code behind the CIFAR tables asks the student.
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
        smoothing: float = 0.9,
        bank_momentum: float = 0.7,
        bank_normalization: Literal["embedding", "batch"] = "embedding",
        alignment_length: int = 32,
        alignment_steps: int | None = None,
        unlabeled_weight: float = 1.0,
        instance_weight: float = 1.0,
        warmup_steps: int = 1024,
        teacher: Literal["student", "average"] = "student",
        teacher_momentum: float = 0.999,
    ) -> None:
        super().__init__(net)
        one_of("bank_normalization", bank_normalization, ("embedding", "batch"))
        one_of("teacher", teacher, ("student", "average"))
        self.projector = projector
        self.threshold, self.temperature, self.smoothing = threshold, temperature, smoothing
        self.bank_momentum, self.bank_normalization, self.warmup_steps = bank_momentum, bank_normalization, warmup_steps
        self.unlabeled_weight, self.instance_weight = unlabeled_weight, instance_weight
        self.num_classes, self.labeled_batch = problem.num_classes, problem.labeled_batch
        self.alignment = QueueAlignment(problem.num_classes, alignment_length, alignment_steps)
        self.bank = Table(problem.num_labeled, embedding=(projector.out_dim,), label=())
        self.bank["embedding"].copy_(F.normalize(torch.randn_like(self.bank["embedding"]), dim=1))
        self.teacher: Average | None = None
        if teacher == "average":
            self.teacher = Average(nn.ModuleList([net, projector]), teacher_momentum, batch_statistics=True)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        if self.teacher is None:
            on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)
            bank_x, project = on_x, cast(nn.Module, self.projector)
        else:
            on_x, on_strong = predict_jointly(self.net, x, strong)
            teacher_net, project = cast(nn.ModuleList, self.teacher.module)
            with torch.no_grad():
                bank_x, on_weak = predict_jointly(teacher_net, x, weak)
        z_strong = self.projector(on_strong.features)
        warm = batch.step >= self.warmup_steps  # in the first pass the bank is still random
        bank, bank_labels = self.bank["embedding"], self.bank["label"].long()  # (K, d), (K,)

        with torch.no_grad():
            z_x, z_weak = project(bank_x.features), project(on_weak.features)
            probs = on_weak.logits.softmax(1)
            mean_probs = mean_over_ranks(probs.mean(0))
            probs = self.alignment(probs, mean_probs, batch.step)

            neighbors = (z_weak @ bank.T / self.temperature).softmax(1)  # (U, K)
            unfolded = F.normalize(neighbors * probs[:, bank_labels], p=1, dim=1)
            aggregated = sum_by_class(neighbors, bank_labels, self.num_classes)  # (U, C), before unfolding
            target = torch.where(warm, self.smoothing * probs + (1 - self.smoothing) * aggregated, probs)
            mask = confident(target, self.threshold)

        instance = F.cross_entropy(z_strong @ bank.T / self.temperature, unfolded)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": self.unlabeled_weight * consistency(on_strong.logits, target, mask),
                "instance": self.instance_weight * torch.where(warm, instance, 0.0),
            },
            metrics={"head_cosine": self.projector.similarity(on_x.features)},
            memory={"index": batch.labeled_index, "embedding": z_x, "label": batch.labels, "mean_probs": mean_probs},
            pseudo=PseudoLabels(target.argmax(1), mask, target),
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        mixed = torch.lerp(memory["embedding"], self.bank["embedding"][memory["index"]], self.bank_momentum)
        if self.bank_normalization == "embedding":
            mixed = F.normalize(mixed, dim=1)
        else:
            mixed = mixed / (self.labeled_batch * mean_over_ranks(mixed.square().mean(0))).sqrt()
        self.bank.write(memory["index"], embedding=mixed, label=memory["label"])
        self.alignment.remember(memory["mean_probs"])
        if self.teacher is not None:
            self.teacher.follow(nn.ModuleList([self.net, self.projector]))
