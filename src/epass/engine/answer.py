"""Whatever answers questions about images: a run, an exported folder, or an ONNX file. Torch is imported if needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluation.novelty import LEAST, Novelty
from ..files import from_home
from ..runs import RunFolder
from ..runs.exported import ONNX, is_exported

if TYPE_CHECKING:
    import torch

    from ..evaluation.arrays import ArrayLike

LARGEST_BATCH, NUMBERS = 512, 2**22  # images that pass a network at a time, and the numbers in them: what caches hold


class Answerer(Protocol):
    """A model with everything that is needed to ask it."""

    model: dict[str, Any]  # what model.json says
    known: Novelty | None  # tells images unlike the test images
    settings: dict[str, Any]  # the [data] table of the recipe
    tested: NDArray[np.float32] | None  # logits (N, C) of the test images, where they are kept
    way: str  # the library and the kind of device that compute: with others, answers are rounded otherwise

    @property
    def place(self) -> torch.device | None:
        """Where torch computes, if it does: what is asked may be there already."""

    def answer(self, images: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits (n, C) and features (n, D) of uint8 images (n, C, H, W), or of vectors."""


def open_answerer(path: str | Path, device: str = "auto") -> Answerer:
    """The model of a run folder, of an exported folder or in an .onnx file."""
    place = from_home(path)
    if place.suffix.lower() == ".onnx":
        return _from_onnx(place, device)
    if place.is_file():
        raise InputError(f"'{path}' is no model: give a run folder, an exported folder, or an .onnx file.")
    if place.is_dir() and is_exported(place):
        # It answers as well, starts sooner and needs no torch.
        if device in ("auto", "cpu") and (place / ONNX).is_file() and find_spec("onnxruntime"):
            return _from_onnx(place / ONNX, device)
    elif place.is_dir() and not RunFolder(place).exists():
        raise InputError(f"'{path}' is not a run folder, and no exported one: it lacks recipe.toml or model.json.")
    from .answer_torch import TorchAnswerer

    return TorchAnswerer(place, device)


def _from_onnx(path: Path, device: str) -> Answerer:
    from .answer_onnx import OnnxAnswerer

    return OnnxAnswerer(path, device)


def rows_at_a_time(shape: tuple[int, ...]) -> int:
    """How many images of a shape pass a network at a time."""
    return max(1, min(LARGEST_BATCH, NUMBERS // max(1, int(np.prod(shape)))))


def enough_known(features: ArrayLike | None, width: int | None) -> Novelty | None:
    """What tells images unlike those with these features, if they are enough and of the model's width."""
    if features is None or len(features) < LEAST or np.shape(features)[1] != width:
        return None
    return Novelty(features)
