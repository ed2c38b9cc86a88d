"""What a run keeps of some test images, so that figures can show them without the data set."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..files import check_seal
from ..untrusted import LARGEST_JSON, parse_json, read_limited
from .folder import EMBEDDINGS, SPLIT, RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST = 2**25  # bytes: a run writes less than half of it


class Embeddings(NamedTuple):
    """Evenly chosen test images as the trained model sees them, and its most confident mistakes."""

    chosen: NDArray[np.int64]  # (n,) positions among the test images
    features: NDArray[np.float16]  # (n, D) of the backbone
    embedding: NDArray[np.float16] | None  # (n, d) of the projectors, where the method has some
    thumbnails: NDArray[np.uint8]  # (n, C, h, w)
    mistakes: NDArray[np.int64]  # (m,) positions of the mistakes, the most confident first
    mistake_thumbnails: NDArray[np.uint8]  # (m, C, h, w)


def write_embeddings(home: RunFolder, found: Embeddings) -> None:
    """Write the arrays that are there."""
    arrays: dict[str, NDArray[Any]] = {name: value for name, value in found._asdict().items() if value is not None}
    home.write_tensors(EMBEDDINGS, arrays)


def load_embeddings(folder: Path) -> Embeddings | None:
    """What a run kept; None if it has not ended, or was made before this was kept."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / EMBEDDINGS
    if not path.is_file():
        return None
    try:
        content = read_limited(path, LARGEST)
        arrays: dict[str, Any] = {"embedding": None, **load(content)}
        check_seal(BytesIO(content))
        found = Embeddings(**arrays)
    except (SafetensorError, ValueError, TypeError) as problem:
        raise InputError(f"'{path}' is damaged: {problem}.") from problem
    images, mistakes = len(found.chosen), len(found.mistakes)
    rows = {len(part) for part in (found.features, found.embedding, found.thumbnails) if part is not None}
    pictures = (found.thumbnails, found.mistake_thumbnails)
    wrong = (
        rows != {images}
        or len(found.mistake_thumbnails) != mistakes
        or any(part.ndim != 4 or part.shape[1] not in (1, 3) or part.dtype != np.uint8 for part in pictures)
        or any(part.dtype != np.int64 or part.ndim != 1 or (part < 0).any() for part in (found.chosen, found.mistakes))
        or any(part is not None and part.ndim != 2 for part in (found.features, found.embedding))
    )
    if wrong:
        raise InputError(f"'{path}' is damaged: its arrays do not fit together.")
    return found


def names_of_test_images(folder: Path, count: int) -> list[str]:
    """What the `count` test images are called: by their files, or by their numbers where nothing else is known."""
    try:
        content = parse_json(read_limited(folder / SPLIT, LARGEST_JSON))
        listed = content["test"] if isinstance(content, dict) else []
    except (OSError, ValueError, KeyError):
        listed = []
    named = isinstance(listed, list) and len(listed) == count and all(isinstance(name, str) for name in listed)
    return listed if named else [f"test image {number}" for number in range(count)]
