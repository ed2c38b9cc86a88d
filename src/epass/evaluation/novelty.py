"""Are these images of the kind that a model was tested on? A simple score, by the features of its backbone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import ArrayLike, directions

NEIGHBOR = 10  # whose distance counts: the nearest ones may be there by chance
LIMIT = 0.95  # of the test images are nearer to the others than what is called unlike
ROUNDING = 1e-6  # of a cosine
LEAST = 20  # test images, below which there is nothing to compare with
SHARE, DEVIATIONS = 0.15, 4  # of unlike images that are worth a sentence, and how far above what chance makes of them


class Novelty:
    """Tells features unlike those of the test images: by the angle to the tenth nearest of these.

    Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, 2022. Confidence says less: a network is
    often sure of what it has never seen.
    """

    def __init__(self, tested: ArrayLike) -> None:
        self.tested = directions(tested)
        self.neighbor = min(NEIGHBOR, max(1, len(self.tested) // 10))
        near = self.tested @ self.tested.T
        np.fill_diagonal(near, -math.inf)  # nobody is a neighbor of itself
        self.limit = float(np.quantile(self._nearness(near), 1 - LIMIT))

    def score(self, features: ArrayLike) -> NDArray[np.float64]:
        """(N,) how far features (N, D) are from the test images: above 1, farther than nearly all of these.

        One less the cosine to the tenth nearest, as a share of what 95 % of the test images have at most.
        """
        distance = 1 - self._nearness(directions(features) @ self.tested.T).astype(np.float64)
        return np.maximum(distance, 0) / max(1 - self.limit, ROUNDING)

    def unlike(self, features: ArrayLike) -> NDArray[np.bool_]:
        """(N,) which of the features (N, D) are unlike nearly all of the test images."""
        found: NDArray[np.bool_] = self.score(features) > 1
        return found

    def _nearness(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.partition(cosines, -self.neighbor, axis=1)[:, -self.neighbor]


def are_unlike(unlike: int, images: int) -> bool:
    """Whether so many unlike images are more than the share that test images have, and more than chance."""
    expected = (1 - LIMIT) * images
    noise = DEVIATIONS * math.sqrt(LIMIT * expected)
    return unlike > 1 and unlike >= SHARE * images and unlike > expected + noise
