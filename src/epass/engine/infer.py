"""What a network answers: logits and features of images that are not augmented."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..augment import normalize
from ..data import ImageSource
from ..data.dataset import Scale
from ..machine.distributed import alone, gather_rows, own_rows
from ..networks import Prediction
from .answer import rows_at_a_time
from .models import answer_by_nearest_mean

if TYPE_CHECKING:
    from .build import Experiment


def predict(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device) -> Tensor:
    """(N, C) float32 logits on the CPU, of images that are not augmented; `scale` is that of the training images."""
    return infer(net, images, scale, device).logits.cpu()


@torch.no_grad()
def infer(
    net: nn.Module, images: ImageSource, scale: Scale, device: torch.device, *, shared: bool = True
) -> Prediction:
    """What a network says about images that are not augmented.

    Several processes share the work, unless the images of each are its own: not `shared`.
    """
    gather = gather_rows if shared else lambda rows: rows
    mean, std = torch.tensor(scale.mean, device=device), torch.tensor(scale.std, device=device)
    mine = (
        images
        if alone() or not shared
        else images.select(own_rows(torch.arange(len(images), device=images.labels.device)))
    )
    rows = rows_at_a_time(images.shape)
    chunks = [net(normalize(chunk.to(device), mean, std)) for chunk in mine.chunks(rows)]
    return Prediction(*(gather(torch.cat(parts).float())[: len(images)] for parts in zip(*chunks, strict=True)))


def answering_network(experiment: Experiment) -> nn.Module:
    """What is tested and kept: the averaged network. A copy of one that never saw a label answers by nearest means."""
    net = experiment.network
    if experiment.method.pretraining:
        net, labeled = copy.deepcopy(net), experiment.split.labeled
        answer_by_nearest_mean(net, infer(net, labeled, experiment.dataset, experiment.device).features, labeled.labels)
    return net
