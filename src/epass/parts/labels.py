"""Label encodings, and losses that compare predictions with pseudo-labels, with each other or with certainty."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(...) -> (..., num_classes) float. Unlike `F.one_hot`, it never reads the labels on the host."""
    return (labels[..., None] == torch.arange(num_classes, device=labels.device)).float()


def sum_by_class(values: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(N, K) values of K examples with these labels -> (N, num_classes)."""
    if values.is_cuda:  # which adds in an order of its own each time, but multiplies in one
        return values @ one_hot(labels, num_classes)
    return values.new_zeros(len(values), num_classes).index_add(1, labels, values)


def consistency(logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Masked cross-entropy with hard (N,) or soft (N, C) targets; rows that are masked out still count in the mean."""
    return (F.cross_entropy(logits, target, reduction="none") * mask).mean()


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Between the probabilities of `logits` and soft targets (N, C), the mean over classes and rows."""
    return (logits.softmax(1) - target).square().mean()


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target || softmax(logits)) of soft targets (N, C), the mean over rows."""
    return F.kl_div(logits.log_softmax(1), target, reduction="batchmean")


def masked_divergence(logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The same with a mask or a weight (N,) for every row; rows that are masked out still count in the mean."""
    return (F.kl_div(logits.log_softmax(1), target, reduction="none").sum(1) * mask).mean()


def entropy(logits: Tensor) -> Tensor:
    """Of the predictions, the mean over rows: 0 where all are certain."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
