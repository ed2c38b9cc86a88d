"""Small pictures of photos, made once and kept on disk; the photos themselves are never sent."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from threading import BoundedSemaphore, Lock, get_ident
from typing import TYPE_CHECKING, Literal

from ..data.read.decode import decode_whole
from ..machine.cpu import count_cores
from .project import Project

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_PICTURE = 1600  # pixels of the longer side
SMALL = 256  # pixels of a side up to which a picture is sent without loss
_WIDE = 2  # times the shorter side that a thumbnail keeps of the longer one
_CORES = BoundedSemaphore(count_cores())  # more at a time would only take memory
_TURNS = [Lock() for _ in range(64)]  # by file, so that nobody makes what another one is making


def thumbnail(project: Project, id: int, side: Literal[160, 320]) -> bytes:
    """A JPEG whose shorter side has `side` pixels, or fewer if the photo has, or is very long."""
    path = project.path(id)
    facts = path.stat()
    key = f"{project.names[id]}\0{facts.st_mtime_ns}\0{facts.st_size}\0{side}"
    name = sha256(key.encode()).hexdigest()
    kept = project.home / "thumbs" / name[:2] / f"{name[2:40]}.jpg"
    if (known := _read(kept)) is not None:
        return known
    with _TURNS[int(name[:2], 16) % len(_TURNS)]:
        if (known := _read(kept)) is not None:
            return known
        with _CORES:
            image = decode_whole(path, side * _WIDE)
            scale = min(1.0, side / min(image.size), side * _WIDE / max(image.size))
            content = _encode(image, scale, "JPEG", quality=80)
        with suppress(OSError):  # a full disk takes the time of making it again, no more
            _write(kept, content)
    return content


def picture(project: Project, id: int) -> tuple[bytes, str]:
    """A photo as large as a screen, and its media type."""
    path = project.path(id)
    with _CORES:
        image = decode_whole(path, LARGEST_PICTURE)
        if max(image.size) <= SMALL:
            return _encode(image, 1.0, "PNG"), "image/png"
        return _encode(image, min(1.0, LARGEST_PICTURE / max(image.size)), "JPEG", quality=90), "image/jpeg"


def _encode(image: Image, scale: float, kind: str, **options: int) -> bytes:
    """The pixels and nothing else: where a photo was taken is nobody's business."""
    from PIL import Image as Pillow

    if scale < 1:
        width, height = (max(1, round(scale * length)) for length in image.size)
        image = image.resize((width, height), Pillow.Resampling.BILINEAR, reducing_gap=2.0)
    image.info.clear()
    content = BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def _read(path: Path) -> bytes | None:
    """A thumbnail that is there to its end: it was written without waiting for the disk."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(number, "rb") as file:
        content = file.read()
    return content if content.startswith(b"\xff\xd8") and content.endswith(b"\xff\xd9") else None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}-{get_ident()}")
    partial.write_bytes(content)
    partial.replace(path)
