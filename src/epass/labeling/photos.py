"""The photos of a folder that is being labeled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..data.read.folder import Problems, list_layout, walk
from ..data.read.kinds import only_others, passed_over
from ..data.read.listing import nothing_at
from ..errors import InputError, shortened
from ..files import as_text


def list_photos(folder: Path, notice: Callable[[str], None]) -> tuple[list[str], list[str], dict[int, Path]]:
    """The names of the photos, the class folder of each, and the paths of those whose names are no text."""
    if not folder.exists():
        raise nothing_at(folder)
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder: give the folder that the photos lie in.")
    try:
        listing = list_layout(folder, as_text(folder.resolve().name), folder, labels_needed=False)
        found, others = bool(listing.train), listing.passed_over
    except InputError:
        problems = Problems()
        if any(walk(folder, folder, problems)):
            raise
        found, others = False, problems.passed
    if not found:
        nothing = f"'{folder}' holds no photos: give a folder with .jpg, .png or other image files."
        raise only_others(f"'{folder}'", others) if others else InputError(nothing)
    if listing.problems:
        name, reason = listing.problems[0]
        more = f" (and {len(listing.problems) - 1:,} more like it)" if len(listing.problems) > 1 else ""
        notice(f"'{shortened(name)}' {reason}{more}.")
    if others:
        notice(passed_over(others))
    for part, use in listing.parts.items():
        if use.startswith(("test", "validation")):
            notice(f"The images in '{part}' are kept for tests and not shown here.")
    names = [as_text(str(file).removeprefix(f"{folder}/")) for file in listing.train]
    odd = {
        id: file
        for id, (name, file) in enumerate(zip(names, listing.train, strict=True))
        if isinstance(file, Path) and "\\" in name and folder / name != file
    }
    return names, [listing.classes[label] if label >= 0 else "" for label in listing.labels], odd
