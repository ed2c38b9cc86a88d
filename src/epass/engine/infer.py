"""What a network answers: logits and features of images that are not augmented."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..augment import normalize
from ..data import ImageSource, decide
from ..data.dataset import Scale
from ..machine.distributed import alone, gather_rows, own_rows
from ..networks import FromImages, OnFeatures, Prediction
from ..networks.prepared import prepared
from .answer import rows_at_a_time
from .models import answer_by_nearest_mean

if TYPE_CHECKING:
    from .build import Experiment


def ready(net: nn.Module, device: torch.device) -> nn.Module:
    """A network that will only answer, on its device: what makes features of photos is prepared as if to embed them."""
    for part in list(net.modules()):
        if isinstance(part, FromImages):
            part.backbone = prepared(part.backbone, device, torch.float32)
        elif isinstance(part, OnFeatures):
            part.features = prepared(part.features, device, torch.float32)
    return net.to(device)


@torch.no_grad()
def predict(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device) -> Tensor:
    """(N, C) float32 logits on the CPU, of images that are not augmented; `scale` is that of the training images."""
    # features are often a hundred times as large: those of all images are not held
    decide(images, device)
    logits = torch.cat([said.logits for said in _answers(net, _share(images), scale, device)])
    return gather_rows(logits.float())[: len(images)].cpu()


@torch.no_grad()
def infer(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device) -> Prediction:
    """What a network says about images that are not augmented; several processes share the work."""
    decide(images, device)
    found = infer_here(net, _share(images), scale, device)
    return Prediction(*(gather_rows(part)[: len(images)] for part in found))


@torch.no_grad()
def infer_here(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device) -> Prediction:
    """The same about images that are this process's own, whatever others do."""
    return Prediction(*(torch.cat(parts).float() for parts in zip(*_answers(net, images, scale, device), strict=True)))


def _share(images: ImageSource) -> ImageSource:
    return images if alone() else images.select(own_rows(torch.arange(len(images), device=images.labels.device)))


def _answers(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device) -> Iterator[Prediction]:
    """Batch by batch."""
    mean, std = torch.tensor(scale.mean, device=device), torch.tensor(scale.std, device=device)
    return (net(normalize(chunk.to(device), mean, std)) for chunk in images.chunks(rows_at_a_time(images.shape)))


def answering_network(experiment: Experiment) -> nn.Module:
    """What is tested and kept: the averaged network. A copy of one that never saw a label answers by nearest means."""
    net = experiment.network
    if experiment.method.pretraining:
        net, labeled = copy.deepcopy(net), experiment.split.labeled
        answer_by_nearest_mean(net, infer(net, labeled, experiment.dataset, experiment.device).features, labeled.labels)
    return net
