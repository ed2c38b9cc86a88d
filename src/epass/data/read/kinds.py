"""Which files count as images, by the ends of their names, and which are images that are not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import InputError

JPEG = (".jpg", ".jpeg", ".jfif", ".jpe")  # one and the same; Windows saves some pictures of the web as .jfif
EXTENSIONS = frozenset({*JPEG, ".bmp", ".gif", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
PHOTOS = "avif avifs heic heics heif heifs hif j2k jp2 jpf jpx jxl jxr mpo wdp"
RAW = "3fr arw cr2 cr3 crw dcr dng erf iiq kdc mef mos mrw nef nrw orf pef raf rw2 rwl sr2 srf srw x3f"
OTHERS = "apng dcm dib exr fits hdr jng pbm pcx pnm psb psd svg svgz tga xcf"
NOT_READ = frozenset(f".{ending}" for ending in f"{PHOTOS} {RAW} {OTHERS}".split())


def passed_over(kinds: Mapping[str, int]) -> str:
    """What people should know about image files that are not read, "" without any."""
    count = sum(kinds.values())
    them = f"{count:,} files of kinds that are" if count > 1 else "1 file of a kind that is"
    return f"Passed over {them} not read ({_listed(kinds)}): convert {_it(count)} to JPEG." if count else ""


def only_others(where: str, kinds: Mapping[str, int]) -> InputError:
    """The error for a place with image files, none of which is read."""
    count = sum(kinds.values())
    files = "files of other kinds" if count > 1 else "a file of another kind"
    return InputError(
        f"{where} holds no image that can be read, only {files} ({_listed(kinds)}): convert {_it(count)} to JPEG."
    )


def is_not_read(path: str | Path) -> bool:
    """Whether a file is called like an image of a kind that is not read."""
    return Path(path).suffix.lower() in NOT_READ


def _listed(kinds: Mapping[str, int]) -> str:
    most_first = sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))
    return ", ".join(f"{ending} {count:,}" for ending, count in most_first)


def _it(count: int) -> str:
    return "them" if count > 1 else "it"
