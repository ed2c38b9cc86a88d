"""What a network answers: logits and features of images that are not augmented."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..augment import normalize
from ..data import ImageSource
from ..data.dataset import Scale
from ..machine.distributed import alone, gather_rows, own_rows
from ..networks import Prediction


def predict(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device, rows: int = 512) -> Tensor:
    """(N, C) float32 logits on the CPU, of images that are not augmented; `scale` is that of the training images."""
    return infer(net, images, scale, device, rows).logits.cpu()


@torch.no_grad()
def infer(net: nn.Module, images: ImageSource, scale: Scale, device: torch.device, rows: int = 512) -> Prediction:
    """What a network says about images that are not augmented; several processes share the work."""
    mean, std = torch.tensor(scale.mean, device=device), torch.tensor(scale.std, device=device)
    mine = images if alone() else images.select(own_rows(torch.arange(len(images), device=images.labels.device)))
    chunks = [net(normalize(chunk.to(device), mean, std)) for chunk in mine.chunks(rows)]
    return Prediction(*(gather_rows(torch.cat(parts).float())[: len(images)] for parts in zip(*chunks, strict=True)))
