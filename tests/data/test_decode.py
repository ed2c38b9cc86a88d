from __future__ import annotations

import struct
import time
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from epass.data import open_dataset
from epass.data.read.decode import DECODER, Packed, decode, decode_all, decode_whole, to_square
from epass.data.read.image_limits import LEFT_TO_SCALE, Room
from epass.errors import InputError


def pixel(path: Path) -> list[int]:
    return decode(path, 8)[:, 4, 4].tolist()


def save_deep_png(path: Path, kind: int, values: tuple[int, ...], transparent: bytes = b"") -> None:
    """A PNG of 16 bits per channel, which Pillow writes only in gray."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + struct.pack(f">{len(values)}H", *values) * 8) * 8
    header = struct.pack(">IIBBBBB", 8, 8, 16, kind, 0, 0, 0)
    extra = chunk(b"tRNS", transparent) if transparent else b""
    chunks = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


@pytest.mark.parametrize(
    ("kind", "values", "transparent", "expected"),
    [
        (0, (0x8080,), b"", [128, 128, 128]),
        (0, (0x8080,), b"\x80\x80", [255, 255, 255]),  # this level means nothing is there
        (0, (0x8080,), b"\x80\x81", [128, 128, 128]),
        (2, (0x8080, 0xFFFF, 0x0000), b"", [128, 255, 0]),
        (4, (0x8080, 0xFFFF), b"", [128, 128, 128]),
        (4, (0x0000, 0x0000), b"", [255, 255, 255]),
        (6, (0x8080, 0xFFFF, 0x0000, 0xFFFF), b"", [128, 255, 0]),
        (6, (0x8080, 0xFFFF, 0x0000, 0x0000), b"", [255, 255, 255]),
    ],
)
def test_16_bits_per_channel(tmp_path: Path, kind: int, values, transparent: bytes, expected: list[int]) -> None:
    save_deep_png(tmp_path / "a.png", kind, values, transparent)
    assert pixel(tmp_path / "a.png") == expected


@pytest.mark.parametrize(
    ("mode", "color", "name", "options", "expected"),
    [
        ("CMYK", (0, 255, 255, 0), "a.jpg", {}, [254, 0, 0]),
        ("CMYK", (0, 0, 0, 255), "a.tif", {}, [0, 0, 0]),
        ("YCbCr", (76, 85, 255), "a.tif", {}, [254, 0, 0]),
        ("LAB", (255, 128, 128), "a.tif", {}, [255, 255, 255]),
        ("L", 7, "a.png", {"transparency": 7}, [255, 255, 255]),
        ("RGB", (7, 8, 9), "a.png", {"transparency": (7, 8, 9)}, [255, 255, 255]),
        ("1", 0, "a.png", {"transparency": 0}, [255, 255, 255]),
        ("1", 0, "a.tif", {}, [0, 0, 0]),
        ("LA", (90, 0), "a.tif", {}, [255, 255, 255]),
        ("PA", (0, 0), "a.tif", {}, [255, 255, 255]),
        ("RGBA", (0, 0, 0, 0), "a.gif", {}, [255, 255, 255]),
        ("I;16B", 0x8080, "a.tif", {}, [128, 128, 128]),
    ],
)
def test_less_usual_modes(tmp_path: Path, mode: str, color, name: str, options, expected: list[int]) -> None:
    Image.new(mode, (8, 8), color).save(tmp_path / name, **options)
    assert np.abs(np.array(pixel(tmp_path / name)) - expected).max() <= 2


@pytest.mark.parametrize(
    ("kind", "words"), [(np.int32, "32-bit or signed"), (np.uint32, "32-bit or signed"), (np.float32, "floating-point")]
)
def test_pixels_without_a_known_range_are_refused(tmp_path: Path, kind: type, words: str) -> None:
    Image.fromarray(np.full((8, 8), 200, kind)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=f"a.tif' cannot be read \\({words} pixels"):
        pixel(tmp_path / "a.tif")


def test_sixteen_bits_of_a_pgm_end_at_its_own_white(tmp_path: Path) -> None:
    pgm = b"P5 8 8 1023\n" + struct.pack(">H", 512) * 64  # Pillow reads it as 32 bits, scaled to 65,535
    (tmp_path / "a.pgm").write_bytes(pgm)
    assert pixel(tmp_path / "a.pgm") == [128, 128, 128]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation(tmp_path: Path, orientation: int) -> None:
    upright = np.zeros((16, 16), np.uint8)
    upright[:4, :8] = 255  # a mark that no turn and no mirror maps to itself
    undo = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: np.transpose,
        6: np.rot90,
        7: lambda a: np.rot90(a, 2).T,
        8: lambda a: np.rot90(a, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(undo[orientation](upright))).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(decode(tmp_path / "a.png", 16)[0], upright)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(40, 61), (61, 40), (300, 200)])
def test_the_square_is_that_of_the_upright_image(orientation: int, size: tuple[int, int]) -> None:
    exif, content = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (*size[::-1], 3), np.uint8)).save(content, "PNG", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(content))
    away = decode(Packed("a", content.getvalue()), 32).astype(int) - to_square(upright, 32)
    assert np.abs(away).max() <= 1  # rows and columns are scaled in another order


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01", b"Exif\0\0rubbish"], ids=["short", "rubbish"])
def test_broken_exif_data_does_not_spoil_a_photo(tmp_path: Path, exif: bytes) -> None:
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "a.png", exif=exif)
    with warnings.catch_warnings(action="error"):
        found, _ = decode_all([(0, tmp_path / "a.png")], 1, 8)
    assert (found == 9).all()


def test_too_many_pixels_are_refused_before_they_are_decoded(
    refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat/a.png", "dog/b.png"):
        (tmp_path / name).parent.mkdir()
        Image.new("L", (60, 60)).save(tmp_path / name)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3600)
    assert len(open_dataset(str(tmp_path), image_size=8).train) == 2
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3599)  # where Pillow only warns
    with refused("a.png' cannot be read (60 x 60 pixels are more than the 3,599"):
        open_dataset(str(tmp_path), image_size=16)


def test_a_large_photo_that_is_decoded_coarsely_is_no_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (512, 512), (50, 100, 150)).save(tmp_path / "a.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200_000)
    assert decode_all([(0, tmp_path / "a.jpg")], 1, 8)[0].shape == (1, 3, 8, 8)


@pytest.mark.parametrize(("content", "most"), [(bytes(2**18 + 1), 8), (b"", 64)])
def test_images_are_asked_for_only_as_threads_get_free(
    content: bytes, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight small ones at a time, or one large one out of an archive."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("epass.data.read.decode.decode", lambda image, size: np.zeros((3, size, size), np.uint8))
    asked: list[int] = []
    ahead: list[int] = []

    def images():
        for position in range(203):
            asked.append(position)
            yield position, Packed("a", content)

    decode_all(images(), 203, 8, lambda done, total: ahead.append(len(asked) - done))
    assert len(ahead) == 203
    assert most // 2 < max(ahead) <= most + most // 8


def test_every_damaged_image_is_reported_and_the_others_are_decoded(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 77).save(tmp_path / "a.png")
    images = [(0, Packed("x", b"none")), (1, tmp_path / "a.png"), (2, Packed("y", b""))]
    pixels, reasons = decode_all(images, 3, 8)
    assert (pixels[1] == 77).all()
    assert reasons == dict.fromkeys((0, 2), "cannot be read (not an image): replace or remove it")


def test_other_pixels_need_another_decoder_number(tmp_path: Path) -> None:
    """Cached pixels are used as long as DECODER is the same: raise it together with these numbers."""
    ramp = np.arange(40 * 50 * 4, dtype=np.uint32).reshape(40, 50, 4) * 2654435761 >> 24 & 255
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "a.png")
    found = decode(tmp_path / "a.png", 16)
    assert (DECODER, LEFT_TO_SCALE, zlib.crc32(found.tobytes())) == (3, 2, 822486829)


@pytest.mark.parametrize("size", [(1600, 1200), (1601, 1067), (1067, 1601), (803, 801), (1000, 750)])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_photo_that_is_decoded_coarsely_looks_like_the_whole_photo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], orientation: int
) -> None:
    """Steep slopes: to move them by a tenth of a pixel changes every level by two."""
    rows, columns = np.mgrid[: size[1], : size[0]] / (min(size) / 32)
    levels = np.stack([128 + 100 * np.sin(rows), 128 + 100 * np.sin(columns), 128 + 100 * np.sin(rows + columns)], 2)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(levels.astype(np.uint8)).save(tmp_path / "a.jpg", quality=95, exif=exif)
    coarse = decode(tmp_path / "a.jpg", 96)
    monkeypatch.setattr("epass.data.read.image_limits.LEFT_TO_SCALE", 10**6)
    whole = decode(tmp_path / "a.jpg", 96)
    away = np.abs(coarse.astype(int) - whole)
    assert 0 < away.mean() < 0.7


@pytest.mark.parametrize(("side", "size"), [(100, (400, 300)), (75, (200, 150)), (76, (400, 300)), (301, (800, 600))])
def test_twice_the_side_is_left_for_the_antialiasing(tmp_path: Path, side: int, size: tuple[int, int]) -> None:
    Image.new("RGB", (800, 600)).save(tmp_path / "a.jpg")
    assert decode_whole(tmp_path / "a.jpg", side).size == size


@pytest.mark.parametrize("cut", range(6))
def test_scans_are_counted_wherever_a_piece_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    Image.effect_noise((64, 64), 60).save(tmp_path / "a.jpg", progressive=True)
    data = (tmp_path / "a.jpg").read_bytes()
    expected = data.count(b"\xff\xda")
    assert expected > 1
    data = data[:2] + b"\xff\xfe\0" + bytes([2 + cut]) + bytes(cut) + data[2:]  # a comment moves all that follows
    for length in (1, 2, 3, 7, 2**20):
        monkeypatch.setattr("epass.data.read.image_limits.PIECE", length)
        monkeypatch.setattr("epass.data.read.image_limits.FEW_SCANS", expected)
        monkeypatch.setattr("epass.data.read.image_limits.MOST_SCANNED", 0)
        decode(Packed("a", data), 8)
        monkeypatch.setattr("epass.data.read.image_limits.FEW_SCANS", expected - 1)
        with pytest.raises(InputError, match=f"{expected} scans are more than the {expected - 1} "):
            decode(Packed("a", data), 8)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I", "I;16", "YCbCr"])
def test_bands_make_no_difference(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    levels = np.random.default_rng(0).integers(0, 255, (37, 29, 4), np.uint8)
    if mode.startswith("I"):
        image = Image.fromarray(levels[..., 0].astype(np.int32 if mode == "I" else np.uint16) * 257)
    else:
        image = Image.fromarray(levels).convert(mode)
    if mode in ("P", "I;16"):
        image.info["transparency"] = 7 if mode == "P" else int(levels[3, 4, 0]) * 257
    whole = to_square(image, 16)
    monkeypatch.setattr("epass.data.read.decode._BAND", 100)
    assert np.array_equal(to_square(image, 16), whole)


def test_sixteen_bits_take_no_more_memory_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.data.read.decode._BAND", 10_000)
    image = Image.fromarray(np.zeros((1000, 1000), np.uint16))
    tracemalloc.start()
    to_square(image, 16)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000  # bytes of arrays, where the image has two million


def test_threads_wait_for_memory() -> None:
    room, order = Room(10), []
    with ThreadPoolExecutor(1) as pool:
        with room.taken(6):
            with room.taken(4):
                order.append("both fit")

            def wait() -> None:
                with room.taken(99):  # more than there is: alone
                    order.append("it waited")

            waiting = pool.submit(wait)
            time.sleep(0.05)
            order.append("the first one is done")
        waiting.result()
    assert order == ["both fit", "the first one is done", "it waited"]
