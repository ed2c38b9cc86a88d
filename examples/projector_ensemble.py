"""EPASS in somebody else's loop: MoCo on digits in plain PyTorch, with nothing of the package but the projectors.

`train` is the whole method, in which `projector` stands where a plain head stood. A view of an image has to find the
other view of it among the views of many images; no label is used. Its losses are those of the package's own MoCo on the
same batches, and a test holds it to that. At the end 4 images of each digit are labeled, and every other image takes
the label of the nearest one.
"""

from collections.abc import Iterable
from copy import deepcopy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from epass import ProjectorEnsemble


def train(backbone: nn.Module, projector: ProjectorEnsemble, batches: Iterable[tuple[Tensor, Tensor]]) -> list[float]:
    """The loss of every step on batches of two views, (N, C, H, W) each."""
    encoder = nn.Sequential(backbone, projector)
    slow = deepcopy(encoder).requires_grad_(False)
    seen = F.normalize(torch.randn(512, projector.out_dim), dim=1)  # views of earlier images
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    trace = []
    for first, second in batches:
        query, key = encoder(first), slow(second)
        likeness = torch.cat([(query * key).sum(1, keepdim=True), query @ seen.T], 1) / 0.2
        loss = F.cross_entropy(likeness, torch.zeros(len(query), dtype=torch.long))  # its own view is the first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = torch.cat([seen, key])[len(key) :]
        for behind, ahead in zip(slow.parameters(), encoder.parameters(), strict=True):
            behind.lerp_(ahead.detach(), 0.01)
        trace.append(loss.item())
    return trace


def main(steps: int = 300, size: int = 3) -> tuple[float, float]:
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.from_numpy(digits.images).float()[:, None] / 16, torch.from_numpy(digits.target)

    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
    projector = ProjectorEnsemble(128, 32, size=size)  # size=1 is the plain head
    chosen = (images[torch.randint(len(images), (128,))] for _ in range(steps))
    trace = train(backbone, projector, ((distort(batch), distort(batch)) for batch in chosen))
    with torch.no_grad():
        cosine = projector.similarity(backbone(images)).item()
        errors = nearest_error(images.flatten(1), labels), nearest_error(backbone(images), labels)
    print(f"Loss at the end {trace[-1]:.3f}, cosine between heads {cosine:.2f}")
    print(f"Error with 4 labels per digit: {errors[0]:.1%} by pixels, {errors[1]:.1%} by learned features")
    return errors


def distort(images: Tensor) -> Tensor:
    """Turn, shear, stretch and shift each image a little, and add noise."""
    transform = torch.eye(2, 3) + 0.15 * torch.randn(len(images), 2, 3)
    grid = F.affine_grid(transform, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False) + 0.1 * torch.randn_like(images)


def nearest_error(features: Tensor, labels: Tensor) -> float:
    """How often the nearest of the first 4 images of each class has another label."""
    known = torch.cat([torch.nonzero(labels == label).flatten()[:4] for label in range(10)])
    features = F.normalize(features, dim=1)
    wrong = labels[known][(features @ features[known].T).argmax(1)] != labels
    return wrong.sum().item() / (len(labels) - len(known))  # the known ones are never wrong


if __name__ == "__main__":
    main()
