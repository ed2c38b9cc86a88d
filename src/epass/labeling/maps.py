"""The map of a folder: images that look alike lie near each other."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically

if TYPE_CHECKING:
    from .examples import Examples

MAP = "map.npz"
ARRANGED = 4_000  # images: the others lie where their neighbors are
NEIGHBORS = 3
WIDE = 10_000  # the places are whole numbers from 0 to this
_CHUNK = 2_048


class Map(NamedTuple):
    """Where images lie."""

    ids: NDArray[np.int64]
    places: NDArray[np.int64]  # (M, 2)


def draw_map(examples: Examples, home: Path) -> bool:
    """Arrange the images, and keep the map; False if the same images have one already."""
    from ..evaluation.arrays import directions
    from ..evaluation.maps import tsne_map

    if read_map(home, examples.digest) is not None:
        return False
    vectors: NDArray[Any] = examples.dataset.train.pixels.numpy()
    chosen = np.arange(len(vectors))
    if len(vectors) > ARRANGED:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, ARRANGED, replace=False))
    arranged = tsne_map(vectors[chosen])
    spots = np.empty((len(vectors), 2))
    spots[chosen] = arranged
    others = np.setdiff1d(np.arange(len(vectors)), chosen)
    known = directions(vectors[chosen])
    for start in range(0, len(others), _CHUNK):
        rows = others[start : start + _CHUNK]
        near = np.argpartition(-(directions(vectors[rows]) @ known.T), NEIGHBORS, axis=1)[:, :NEIGHBORS]
        spots[rows] = arranged[near].mean(1)
    low, high = spots.min(0), spots.max(0)
    places = np.rint(WIDE * (spots - low) / np.maximum(high - low, 1e-9)).astype(np.int64)
    content = io.BytesIO()
    np.savez(content, digest=np.array(examples.digest), ids=examples.ids, places=places)
    write_atomically(home / MAP, content.getbuffer())
    return True


def read_map(home: Path, digest: str) -> Map | None:
    """The map of these images, if it is there."""
    try:
        with np.load(io.BytesIO((home / MAP).read_bytes()), allow_pickle=False) as found:
            return Map(found["ids"], found["places"]) if str(found["digest"]) == digest else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
