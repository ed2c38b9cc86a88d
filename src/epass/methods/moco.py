"""MoCo v2: Improved Baselines with Momentum Contrastive Learning (Chen et al., arXiv 2020).

Pre-training without labels: of many images, a view must find the other view of its own image.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, one_of
from ..method import Batch, Method, Outcome, Problem, Views
from ..parts.memory import Queue
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average


class MoCo(Method):
    """Instance discrimination against a queue of past keys. With `size=3` projectors it is MoCo + EPASS.

    Keys come from a slow copy of backbone and projector. `key="average"` normalizes them by their own batch;
    `key="eman"` averages BatchNorm's running statistics too and normalizes by these, which is MoCo-EMAN. Only the
    backbone and the heads learn: the classifier's linear layer is frozen. `parts.pretrained` hands them over.
    """

    views = Views(labeled=(), unlabeled=("crop", "crop"))
    display_name = "MoCo"
    pretraining = True
    projector: ProjectorEnsemble

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        projector: ProjectorEnsemble,
        *,
        temperature: float = 0.2,
        queue_size: int = 65_536,
        momentum: float = 0.999,
        key: Literal["average", "eman"] = "average",
    ) -> None:
        super().__init__(net)
        one_of("key", key, ("average", "eman"))
        if queue_size < 1 or temperature <= 0:
            raise InputError(f"MoCo needs a queue and a temperature above 0, not {queue_size} and {temperature}.")
        cast(nn.Module, net.head).requires_grad_(False)  # no loss looks at logits
        self.projector = projector
        self.temperature = temperature
        encoder, eman = nn.ModuleList([net, projector]), key == "eman"
        self.key_encoder = Average(encoder, momentum, batch_statistics=not eman, average_buffers=eman)
        self.seen = Queue(queue_size, key=(projector.out_dim,))
        self.seen["key"].copy_(F.normalize(torch.randn_like(self.seen["key"]), dim=1))

    def forward(self, batch: Batch) -> Outcome:
        query_view, key_view = batch.unlabeled
        features = self.net(query_view).features
        query = self.projector(features)
        with torch.no_grad():
            key_net, key_projector = cast(nn.ModuleList, self.key_encoder.module)
            key = key_projector(key_net(key_view).features)

        own = (query * key).sum(1, keepdim=True)
        others = query @ self.seen["key"].T  # (U, K)
        answer = torch.zeros(len(query), dtype=torch.long, device=query.device)  # the own key is the first
        return Outcome(
            losses={"contrast": F.cross_entropy(torch.cat([own, others], 1) / self.temperature, answer)},
            metrics={
                "own_found": (own.detach()[:, 0] > others.detach().amax(1)).float().mean(),
                "head_cosine": self.projector.similarity(features.detach()),
            },
            memory={"key": key},
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.seen.push(key=memory["key"])
        # Before the next keys are computed, as published: there is no training in between.
        self.key_encoder.follow(nn.ModuleList([self.net, self.projector]))
