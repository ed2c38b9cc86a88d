"""Images of strangers: bombs, loops, programs in disguise, and names that a terminal would obey."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zlib
from pathlib import Path

import pytest
from hostile_files import chunk, photos, pipe, png, tiff, zipped
from hostile_world import World
from PIL import Image

from epass.data.read.decode import FORMATS, Packed, decode
from epass.errors import InputError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(canary) (w) file closefile\nshowpage\n%%EOF\n"
SVG = b'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg><text>&a;</text></svg>'


def encoded(kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(buffer, kind, **options)
    return buffer.getvalue()


def many_scans(count: int) -> bytes:
    """A photo that is sent coarse first, and then its last scan again and again."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((1024, 1024)).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * count + data[-2:]


def sixteen_bits(side: int) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0))
    rows = zlib.compress(bytes((2 * side + 1) * side), 1)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def lossless_webp(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (side, side)).convert("RGBA").save(buffer, "WEBP", lossless=True, quality=0, method=0)
    return buffer.getvalue()


def jpeg_of(width: int, height: int) -> bytes:
    data = encoded("JPEG")
    start = data.index(b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]


HOSTILE = {
    "EPS, for which Pillow would start Ghostscript": EPS,
    "SVG": SVG,
    "PDF": b"%PDF-1.7\n1 0 obj\n<</OpenAction 2 0 R>>\n",
    "a pickle": b"\x80\x04\x8c\x02os\x94.",
    "nothing": b"",
    "half a PNG": png(30, 30)[:60],
    "half a JPEG": encoded("JPEG")[:300],
    "half a GIF": encoded("GIF")[:30],
    "half a WebP": encoded("WEBP")[:40],
    "half a TIFF": encoded("TIFF")[:200],
    "half a BMP": encoded("BMP")[:100],
    "a PNG of 10^18 pixels": png(10**9, 10**9, rows=b"\0"),
    "a PNG of 10^8 white pixels": png(10_000, 10_000, rows=bytes(10_001 * 10_000)),
    "a PNG without size": png(0, 0, rows=b""),
    "a PNG with a wrong checksum": png().replace(b"IDAT", b"IDAX"),
    "a PNG with a text of a gigabyte": png(9, 9, chunk(b"zTXt", b"t\0\0" + zlib.compress(bytes(1 << 27)))),
    "a PNG with many large texts": png(9, 9, *[chunk(b"zTXt", b"t\0\0" + zlib.compress(bytes(1 << 20)))] * 80),
    "a PNG with a chunk of 2 GB": png()[:33] + struct.pack(">I", 2**31 - 1) + b"IDAT" + bytes(40),
    "a JPEG of 65500 x 65500 pixels": jpeg_of(65500, 65500),
    "a JPEG of 3,000 scans": many_scans(3000),
    "a WebP whose decoder takes a gigabyte": lossless_webp(7000),
    "a PPM of three million numbers in words": b"P3 1600 1600 255 " + b"1 " * (3 * 1600 * 1600),
    "a BMP of 2^31 pixels": encoded("BMP")[:18] + struct.pack("<ii", 2**31 - 1, 1) + encoded("BMP")[26:],
    "a BMP of negative size": encoded("BMP")[:18] + struct.pack("<ii", -5, -5) + encoded("BMP")[26:],
    "a PPM of 10^18 pixels": b"P6 999999999 999999999 255\n",
    "a PPM with an endless number": b"P6 " + b"9" * 100_000,
    "a PPM without an end": b"P6 9 9 255\n\0",
    "a TIFF whose directories are a circle": tiff((256, 3, 1, 9), (257, 3, 1, 9), following=8),
    "a TIFF of 10^18 pixels": tiff((256, 4, 1, 10**9), (257, 4, 1, 10**9), (262, 3, 1, 1), (273, 4, 1, 8)),
    "a TIFF of 16 x 16 pixels in a tile of 30,000 x 30,000": tiff(
        *[(256, 3, 1, 16), (257, 3, 1, 16), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)],
        *[(322, 3, 1, 30_000), (323, 3, 1, 30_000), (324, 4, 1, 150), (325, 4, 1, 40)],
    ),
    "a TIFF with 10^9 strips": tiff((256, 3, 1, 9), (257, 3, 1, 9), (262, 3, 1, 1), (273, 4, 10**9, 8)),
    "a WebP of 2^28 pixels": b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f" + b"\xff" * 12,
    "a GIF of 65535 x 65535 pixels": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x08\0;",
    "an icon": encoded("ICO"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_image_is_named_and_left_out(world: World, name: str) -> None:
    photos(world.home / "photos", **{"x.png": HOSTILE[name]})
    tools = world.path / "tools"
    tools.mkdir()
    for program in ("gs", "gswin64c"):  # what Pillow starts for EPS, if anything does
        (tools / program).write_text(f"#!/bin/sh\ntouch {world.canary}\n")
        (tools / program).chmod(0o755)
    answer = world.epass("check", "photos", PATH=f"{tools}:/usr/bin:/bin")
    assert answer.code == 1, answer
    assert "cat/x.png cannot be read (" in answer.out


def test_what_is_large_and_honest_is_decoded_in_little_memory(world: World) -> None:
    """Four of them, which take 400 megabytes each, and 16 bits, of which eight times as much was made on the way."""
    large = sixteen_bits(7000)
    photos(world.home / "photos", **{f"{number}.png": large for number in range(4)})
    few = {f"{number}0.jpg": many_scans(number) for number in (1, 20)}
    for name, data in few.items():
        (world.home / "photos" / "dog" / name).write_bytes(data)
    answer = world.epass("check", "photos")
    assert "cannot be read" not in answer.out, answer


REASONS = {
    "a TIFF of 16 x 16 pixels in a tile of 30,000 x 30,000": "its tiles are far larger than the image",
    "a JPEG of 3,000 scans": "3,006 scans are more than the 512 that are decoded at its size",
    "a WebP whose decoder takes a gigabyte": "decoding it would take 1,029,000,000 bytes, more than 939,524,096",
}


@pytest.mark.parametrize("name", REASONS)
def test_what_would_take_too_much_is_refused_by_its_header(name: str) -> None:
    with pytest.raises(InputError, match=re.escape(REASONS[name])):
        decode(Packed(name, HOSTILE[name]), 32)


def test_only_the_formats_that_folders_may_hold_are_decoded() -> None:
    assert not {"EPS", "PDF", "PSD", "FPX", "MIC", "WMF", "IM"} & set(FORMATS)


def test_a_pipe_among_the_images_is_not_waited_for(world: World) -> None:
    photos(world.home / "photos")
    pipe(world.home / "photos" / "cat" / "x.png")
    answer = world.epass("check", "photos")
    assert answer.code == 1
    assert "cat/x.png cannot be read (no plain file)" in answer.out
    world.refused("train", "photos", words="no plain file")


@pytest.mark.parametrize("target", ["../../../treasure/diary.txt", "..", "/etc/passwd", "x.png", "nowhere"])
def test_a_link_out_of_the_folder_is_not_followed(world: World, finished: Path, target: str) -> None:
    photos(world.home / "photos")
    (world.home / "photos" / "cat" / "x.png").symlink_to(target)
    world.refused("train", "photos", words=r"cat/x.png' leads to .*, and only links to files inside")
    for command in (("check", "photos"), ("predict", finished, "photos")):
        answer = world.epass(*command)
        assert answer.code == 1
        assert f"cat/x.png leads to '{target}', and only links to files inside" in answer.out


def test_a_file_of_two_kinds_is_an_image_and_nothing_else(world: World) -> None:
    zipped(world.home / "inner.zip", {"../../treasure/diary.txt": b"mine", "__main__.py": b"open('../canary', 'w')"})
    photos(world.home / "photos", **{"x.png": png(30, 30) + (world.home / "inner.zip").read_bytes()})
    answer = world.epass("check", "photos")
    assert "cannot be read" not in answer.out


NAMES = [
    "\x1b[2J\x1b]0;owned\x07",
    "line\nbreak",
    "cr\rreturn",
    "\u202egnp",
    "\x9b31m",
    "tab\there",
    "\u2028",
    "\u2066x",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_without_what_a_terminal_obeys(world: World, finished: Path, name: str) -> None:
    photos(world.home / "photos", **{f"{name}.png": b"no image", f"{name}2.png": png(20, 20)})
    (world.home / "photos" / "dog").rename(world.home / "photos" / f"dog{name}")
    assert world.epass("check", "photos").code == 1
    assert world.epass("predict", finished, "photos").code == 1
    answer = world.epass("predict", finished, "photos", "--json")
    assert f"cat/{name}.png" in json.loads(answer.out)["unreadable"]


def test_a_name_that_is_no_text(world: World) -> None:
    photos(world.home / "photos")
    folder = os.fsencode(world.home / "photos" / "cat")
    os.rename(folder + b"/1.png", folder + b"/\xff\xfe.png")
    os.rename(folder, os.fsencode(world.home / "photos" / "c") + b"\xe2t")
    world.epass("check", "photos")
    answer = world.epass("check", "photos", "--json")
    json.loads(answer.out)


def test_lazy_images_of_other_libraries_start_no_program() -> None:
    from epass.data.read.huggingface import _pixels

    with pytest.raises(InputError, match="EPS files are not decoded"):
        _pixels(Image.open(io.BytesIO(EPS)), "train[0]", 32)
    with pytest.raises(InputError, match="not an image"):
        _pixels({"bytes": EPS}, "train[0]", 32)
    assert str(Packed("name", b"")) == "name"


@pytest.mark.parametrize("ending", [".png", ".tif", ".jpg"])
def test_predicting_goes_on_without_hostile_images(world: World, finished: Path, ending: str) -> None:
    hostile = {f"{number:02}{ending}": data for number, data in enumerate(HOSTILE.values())}
    photos(world.home / "photos", **hostile)
    answer = world.epass("predict", finished, "photos")
    assert answer.code == 1
    assert [name for name in hostile if f"cat/{name} cannot be read (" not in answer.out] == []


def test_training_stops_at_a_hostile_image(world: World) -> None:
    photos(world.home / "photos", **{"x.png": EPS})
    world.refused("train", "photos", "--steps", "1", words=r"cat/x.png' cannot be read")
