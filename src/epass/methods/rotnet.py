"""RotNet: Unsupervised Representation Learning by Predicting Image Rotations (Gidaris et al., ICLR 2018).

Pre-training without labels: to tell how far an image is turned, a network must know what stands upright in it.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from ..method import Batch, Method, Outcome, Problem, Views
from ..parts.rotation import TURNS, turn_all_ways


class RotNet(Method):
    """Pre-training without labels: by how many quarter turns is an image rotated?

    For images with an upright that all of their kind share, such as digits or street scenes, and not for those without,
    such as cells under a microscope. Only the backbone learns; a method with projectors starts with fresh ones.
    """

    views = Views(labeled=(), unlabeled=("weak",))
    display_name = "RotNet"
    pretraining = True
    needs_pixels = "turns images"

    def __init__(self, net: nn.Module, problem: Problem) -> None:
        super().__init__(net)
        cast(nn.Module, net.head).requires_grad_(False)  # no loss looks at logits
        self.rotation_head = nn.Linear(net.num_features, TURNS)  # type: ignore[arg-type]

    def forward(self, batch: Batch) -> Outcome:
        (images,) = batch.unlabeled
        # All four of every image at once, as published: what is told apart is then the turn, not the image.
        turned = turn_all_ways(images).flatten(0, 1)
        turns = torch.arange(TURNS, device=images.device).repeat_interleave(len(images))
        logits = self.rotation_head(self.net(turned).features)
        return Outcome(
            losses={"rotation": F.cross_entropy(logits, turns)},
            metrics={"turns_found": (logits.detach().argmax(1) == turns).float().mean()},
        )
