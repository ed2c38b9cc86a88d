"""EPASS in somebody else's loop: contrastive learning on digits, with nothing of the package but the projectors.

Two distorted copies of an image should have similar embeddings, unlike those of all other images (InfoNCE). Training
sees no label. At the end 4 images of each digit are labeled, and every other image takes the label of the nearest one.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from epass import ProjectorEnsemble


def main(steps: int = 300, size: int = 3, temperature: float = 0.2) -> tuple[float, float]:
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.from_numpy(digits.images).float()[:, None] / 16, torch.from_numpy(digits.target)

    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
    projector = ProjectorEnsemble(128, 32, size=size)  # size=1 is the plain head
    optimizer = torch.optim.Adam([*backbone.parameters(), *projector.parameters()], lr=1e-3)

    for step in range(1, steps + 1):
        batch = images[torch.randint(len(images), (256,))]
        first, second = projector(backbone(distort(batch))), projector(backbone(distort(batch)))
        loss = F.cross_entropy(first @ second.T / temperature, torch.arange(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            cosine = projector.similarity(backbone(batch)).item()
            print(f"step {step}  loss {loss.item():.3f}  cosine between heads {cosine:.2f}")

    with torch.no_grad():
        errors = nearest_error(images.flatten(1), labels), nearest_error(backbone(images), labels)
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
