"""Logits and labels as checked numpy arrays, and their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

if TYPE_CHECKING:  # a report only reads arrays from disk and should not wait for torch
    from torch import Tensor

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
ArrayLike: TypeAlias = "NDArray[Any] | Tensor"


def as_arrays(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Integers]:
    """Logits (N, C) in float64 and labels (N,) in int64, or the sentence that says what is wrong with them."""
    scores = np.asarray(_on_host(logits), dtype=np.float64)
    truth = np.asarray(_on_host(labels)).astype(np.int64)
    if scores.ndim != 2 or truth.shape != scores.shape[:1]:
        raise InputError(f"Logits of shape (N, C) need labels of shape (N,), not {scores.shape} and {truth.shape}.")
    if not len(truth):
        raise InputError("There are no images to score: the test set is empty.")
    if truth.min() < 0 or truth.max() >= scores.shape[1]:
        raise InputError(
            f"The test labels run from {truth.min()} to {truth.max()}, "
            f"but the model knows the classes 0 to {scores.shape[1] - 1}."
        )
    lost = int((~np.isfinite(scores)).any(axis=1).sum())
    if lost:  # argmax of NaN is a class like any other: the score would look fine
        raise InputError(f"The logits of {lost} of {len(scores)} images are not finite: the training has diverged.")
    return scores, truth


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities over the last axis, without overflow."""
    shifted: Floats = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def directions(vectors: ArrayLike) -> NDArray[np.float32]:
    """Vectors (N, D) with length one."""
    rows = np.asarray(vectors, dtype=np.float32)
    found: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def _on_host(values: ArrayLike) -> Any:
    """Numpy reads neither bfloat16 nor a tensor that asks for a gradient."""
    if isinstance(values, np.ndarray):
        return values
    return values.detach().double() if values.is_floating_point() else values
