"""What is kept of some test images at the end of a run: how the model sees them, and how they look."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import find_named
from ..errors import InputError
from ..parts.projector import ProjectorEnsemble
from ..runs import Embeddings
from .build import Experiment
from .infer import infer

MOST_IMAGES = 2_000
MOST_BYTES = 9_000_000  # of the file, for features that are wide
MOST_MISTAKES = 24
SIDE, MISTAKE_SIDE = 48, 192  # pixels of the longer side of a thumbnail, at most


def see_test_images(experiment: Experiment, net: nn.Module, logits: Tensor) -> Embeddings:
    """The features, embeddings and thumbnails of test images, of which `logits` (N, C) are all answers."""
    test = experiment.split.test
    index = evenly(len(test), MOST_IMAGES)
    features = infer(net, test.select(index), experiment.dataset, experiment.device).features
    projector = projector_of(experiment)
    with torch.no_grad():
        embedding = None if projector is None else projector(features)
    small = thumbnails(test.look(index), SIDE)
    bytes_each = small[0].numel() + 2 * sum(len(part[0]) for part in (features, embedding) if part is not None)
    kept = evenly(len(index), MOST_BYTES // bytes_each)
    mistakes = most_confident_mistakes(logits, test.labels)
    return Embeddings(
        chosen=index[kept].numpy(),
        features=_half(features.cpu()[kept]),
        embedding=None if embedding is None else _half(embedding.cpu()[kept]),
        thumbnails=small[kept].numpy(),
        mistakes=mistakes.numpy(),
        mistake_thumbnails=photos(experiment, mistakes).numpy(),
    )


def photos(experiment: Experiment, index: Tensor) -> Tensor:
    """Test images as a person wants to see them: out of their files, which are larger than what the network takes."""
    split, dataset = experiment.split, experiment.dataset
    small = thumbnails(split.test.look(index), MISTAKE_SIDE)
    names = dataset.test_names if dataset.test is not None else dataset.train_names
    if not names or not len(index):
        return small
    wanted = [names[place] for place in split.positions.test[index.numpy()].tolist()]
    try:
        (chunk,) = find_named(experiment.recipe.data["name"], wanted).chunks(MISTAKE_SIDE, channels=3)
    except (InputError, OSError):  # the files are no longer there, or their names are those of arrays
        return small
    return torch.from_numpy(chunk.images) if len(chunk.positions) == len(index) else small


def projector_of(experiment: Experiment) -> ProjectorEnsemble | None:
    """The projectors of a method that has an embedding, with the weights of the last step: no average is kept."""
    projector = experiment.method.host.projector
    return projector if isinstance(projector, ProjectorEnsemble) else None


def evenly(count: int, most: int) -> Tensor:
    """At most `most` of `count` positions, as far from each other as possible."""
    return torch.from_numpy(np.linspace(0, count, min(count, max(1, most)), endpoint=False).astype(np.int64))


def most_confident_mistakes(logits: Tensor, labels: Tensor) -> Tensor:
    """Positions of the wrong answers with the highest probability, of equal ones the first."""
    confidence, predicted = logits.double().softmax(1).max(1)
    wrong = (predicted != labels).nonzero()[:, 0]
    return wrong[confidence[wrong].argsort(descending=True, stable=True)][:MOST_MISTAKES]


def thumbnails(pixels: Tensor, side: int) -> Tensor:
    """Uint8 (N, C, H, W), gray or in color, whose longer side has at most `side` pixels; smaller ones as they are."""
    pixels = pixels.cpu()
    if pixels.shape[1] not in (1, 3):
        pixels = pixels.float().mean(1, keepdim=True).round().byte()
    height, width = pixels.shape[2:]
    longer = max(height, width)
    if longer <= side or not len(pixels):
        return pixels
    size = [max(1, round(length * side / longer)) for length in (height, width)]
    chunks = [F.interpolate(chunk.float(), size, mode="bilinear", antialias=True) for chunk in torch.split(pixels, 256)]
    return torch.cat([chunk.round().clamp(0, 255).byte() for chunk in chunks])


def _half(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]]:
    limit = torch.finfo(torch.float16).max
    return values.clamp(-limit, limit).half().numpy()
