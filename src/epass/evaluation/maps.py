"""A map of vectors: alike ones lie near each other."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..errors import InputError
from .arrays import ArrayLike, Floats

LEAST = 10  # vectors: of fewer there is nothing to arrange
WIDTH = 50  # principal components that t-SNE starts from: more change little and take longer
FEW = 5_000
SEED = 0


def tsne_map(vectors: ArrayLike) -> Floats:
    """Positions (N, 2) of vectors (N, D) by t-SNE, the same for the same vectors and library.

    By openTSNE where it is installed (the extra `maps`), else by scikit-learn.
    """
    values = np.ascontiguousarray(vectors, dtype=np.float32)
    if len(values) < LEAST:
        raise InputError(f"A map needs at least {LEAST} images, and there are {len(values)}.")
    if not np.isfinite(values).all():
        raise InputError("The vectors to draw a map of are not all finite: the training has diverged.")
    if len(np.unique(values, axis=0)) < LEAST:
        raise InputError(f"Fewer than {LEAST} of the vectors differ, so there is no map of them.")
    return _arrange(values.tobytes(), values.shape[1])


@lru_cache(maxsize=32)  # a page and the figures beside it show the same maps
def _arrange(data: bytes, width: int) -> Floats:
    values = np.frombuffer(data, dtype=np.float32).reshape(-1, width)
    if width > WIDTH and len(values) > WIDTH:
        from sklearn.decomposition import PCA

        values = PCA(WIDTH, svd_solver="full").fit_transform(values)
    perplexity = min(30.0, (len(values) - 1) / 4)
    try:
        from openTSNE import TSNE
    except ImportError:
        from sklearn.manifold import TSNE

        places = TSNE(perplexity=perplexity, init="pca", random_state=SEED).fit_transform(values)
    else:
        # The grid of "fft" takes its time however few points there are, and threads wait for each other by spinning.
        method, threads = ("bh", 1) if len(values) < FEW else ("fft", -1)
        places = TSNE(perplexity=perplexity, random_state=SEED, n_jobs=threads, negative_gradient_method=method).fit(
            values
        )
    return np.asarray(places, dtype=np.float64)
