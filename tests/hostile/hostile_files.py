"""The parts that hostile files are made of."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tiny_recipe import tiny_recipe

RECIPE = tiny_recipe(
    method={"warmup_steps": 0},
    projector={"out_dim": 8},
    plan={"steps": 2, "unlabeled_ratio": 1, "evaluate_every": 1},
)


class _Open:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def bomb(canary: Path, protocol: int = 2) -> bytes:
    """A pickle that makes a file when it is loaded; one that means harm would do something else."""
    return pickle.dumps({"state_dict": _Open(canary)}, protocol)


def object_array(canary: Path) -> bytes:
    """The same as an .npy file."""
    buffer = io.BytesIO()
    array = np.empty(1, object)
    array[0] = _Open(canary)
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    """An .npy file with any header."""
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """A zip archive of any names."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return path


def zip_bomb(path: Path, name: str, size: int) -> Path:
    """A zip archive whose only member says that it unpacks to `size` bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(2**20))
        archive.getinfo(name).file_size = size
    return path


def tarred(path: Path, *members: tuple[str, bytes | tarfile.TarInfo], mode: str = "w") -> Path:
    """A tar archive of any names, or of members that are no files."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def special(name: str, kind: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    """A link or a device for a tar archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header, given as a value or as text, of any claimed length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 9, height: int = 9, *extra: bytes, rows: bytes | None = None) -> bytes:
    """A gray image, or one that only says that it is."""
    pixels = bytes(range(width % 256 + 1))[:width]
    rows = b"".join(b"\0" + pixels for _ in range(height)) if rows is None else rows
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(extra) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(*entries: tuple[int, int, int, int], following: int = 0) -> bytes:
    """A TIFF file with one directory of (tag, kind, count, value), which names the place of the next one."""
    table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + struct.pack("<I", following) + bytes(64)


def photos(folder: Path, **hostile: bytes) -> Path:
    """A folder of two classes with two good images each, and others."""
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in (1, 2):
            (folder / name / f"{number}.png").write_bytes(png(9 + number + len(name), 9 + number))
    (folder / "dog" / "3.png").write_bytes(png(20, 20))
    for name, data in hostile.items():
        (folder / "cat" / name).write_bytes(data)
    return folder


def pipe(path: Path) -> Path:
    """What looks like a file, and whoever opens it waits for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def hollow(path: Path, size: int) -> Path:
    """A file that says it has `size` bytes and takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(size)
    return path
