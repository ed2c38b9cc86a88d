"""By which mean and deviation the published runs normalize their images, and whether others do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sheet import paper_table


def is_published(data: str, mean: Any, std: Any) -> bool:
    """Whether these are the published numbers of a data set, by its name or that of its files in recipes."""
    found = _published(data)
    return found is not None and _alike(mean, found[1]["mean"]) and _alike(std, found[1]["std"])


def other_normalization(data: str, mean: Any, std: Any) -> str:
    """These numbers and the published ones, as a text, if they are others; empty, too, where none are published."""
    found = _published(data)
    if found is None or is_published(data, mean, std):
        return ""
    return f"{_told(mean, std)}; the published runs on {found[0]} have {_told(found[1]['mean'], found[1]['std'])}"


def _published(data: str) -> tuple[str, dict[str, Any]] | None:
    table = paper_table("normalization")
    return next(((name, entry) for name, entry in table.items() if data in (name, entry["files"])), None)


def _alike(found: Any, wanted: Sequence[float]) -> bool:
    if not _are_numbers(found) or len(found) != len(wanted):
        return False
    return all(abs(ours - theirs) < 1e-6 for ours, theirs in zip(found, wanted, strict=True))


def _told(mean: Any, std: Any) -> str:
    texts = [", ".join(f"{value:.3f}" for value in part) if _are_numbers(part) else "unknown" for part in (mean, std)]
    return f"mean {texts[0]} and deviation {texts[1]}"


def _are_numbers(values: Any) -> bool:  # what a run folder tells may be anything
    return isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
