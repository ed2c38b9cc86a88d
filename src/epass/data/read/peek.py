"""A look at some images of a data set before it is read: how large they are decides how they are read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from statistics import median

from .decode import FORMATS
from .listing import Listing

_LOOKED_AT = 24  # images, evenly chosen


def typical_side(listing: Listing) -> int | None:
    """The shorter side, in pixels, of most images of a listing; None if none of those looked at can be opened."""
    from PIL import Image

    files = listing.files
    chosen = files[:: max(1, len(files) // _LOOKED_AT)][:_LOOKED_AT]
    sides = []
    for _, source in islice(listing.read(chosen), _LOOKED_AT):
        try:
            if isinstance(source, Path) and not source.is_file():
                continue
            with source.open("rb") as stream, Image.open(stream, formats=FORMATS) as image:
                sides.append(min(image.size))
        except Exception:  # whoever reads the images says what is wrong with them
            continue
    return round(median(sides)) if sides else None
