"""What a folder must hold to be a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError


def check_layout(name: str, folder: Path, missing: Sequence[str]) -> None:
    """Refuse a folder that lacks something."""
    if missing:
        raise InputError(f"'{folder}' is no complete {name} data set: it lacks {', '.join(missing)}.")
