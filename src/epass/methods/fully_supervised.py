"""Supervised training on every label of the training set: the upper bound."""

from __future__ import annotations

from .supervised import Supervised


class FullySupervised(Supervised):
    """Every label of the training set: what semi-supervised training hopes to reach."""

    display_name = "all labels"
    all_labels = True
