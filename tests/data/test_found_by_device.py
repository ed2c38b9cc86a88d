"""Images that a model is asked about, on the way through a device: one chunk after the other, whatever is in them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from device_decoding import CPU, stand_in
from epass.data import Chunk, FoundImages, find_images
from epass.data.stream import disk
from epass.data.stream.device_jpeg import DeviceDecoder
from epass.data.stream.disk import StreamedImages

SIZE, ROWS = 8, 4
DEVICE = stand_in(CPU)


@pytest.fixture(params=["threads", "processes"], autouse=True)
def _workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "THREADS_DO", 0 if request.param == "processes" else 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven files, of which three cannot be read, and a link that leads nowhere."""
    for number in range(11):
        pixels = np.full((SIZE, SIZE, 3), 20 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number:02d}.{'png' if number == 6 else 'jpg'}")
    for name in ("01", "08"):
        (tmp_path / f"{name}.jpg").write_text("nothing")
    odd = os.fsencode(tmp_path) + b"/09\xff.jpg"
    os.rename(tmp_path / "09.jpg", odd)
    with open(odd, "wb") as file:
        file.write(b"nothing")
    (tmp_path / "gone.jpg").symlink_to("nowhere.jpg")
    return tmp_path


def chunks(images: FoundImages, channels: int = 3, only: set[int] | None = None) -> list[Chunk]:
    return list(images.chunks(SIZE, channels, ROWS, only, DEVICE))


def reading() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read")]


def test_chunks_are_those_of_the_cpu_with_pixels_of_the_device(folder: Path) -> None:
    images = find_images(folder)
    for channels in (3, 1):
        expected = list(images.chunks(SIZE, channels, ROWS))
        found = chunks(images, channels)
        assert [chunk.positions for chunk in found] == [chunk.positions for chunk in expected]
        assert [chunk.unreadable for chunk in found] == [chunk.unreadable for chunk in expected]
        assert [len(chunk.unreadable) for chunk in found] == [1, 0, 3]
        for one, other in zip(found, expected, strict=True):
            assert isinstance(one.images, torch.Tensor) == (channels == 3)
            for position, pixels, by_cpu in zip(one.positions, np.asarray(one.images), other.images, strict=True):
                wanted = by_cpu if images.names[position] == "06.png" else 255 - by_cpu.astype(int)
                assert abs(pixels.astype(int) - wanted).max() <= 1
    assert reading() == []


def test_only_some_chunks_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, begun = find_images(folder), []
    begin = StreamedImages.begin
    monkeypatch.setattr(
        StreamedImages, "begin", lambda files, index: (begun.append(index.tolist()), begin(files, index))[1]
    )
    everything = chunks(images)
    for only in ({2}, {0, 2}, {1}, set[int]()):
        begun.clear()
        found = chunks(images, only=only)
        assert [chunk.positions for chunk in found] == [everything[number].positions for number in sorted(only)]
        assert [chunk.unreadable for chunk in found] == [everything[number].unreadable for number in sorted(only)]
        assert begun == [[*range(4 * number, min(4 * number + 4, 11))] for number in sorted(only)]


def test_who_stops_in_the_middle_leaves_nobody_reading(folder: Path) -> None:
    passing = find_images(folder).chunks(SIZE, 3, ROWS, None, DEVICE)
    assert next(passing).positions == [0, 2, 3]
    assert reading() != []
    passing.close()  # type: ignore[attr-defined]
    assert reading() == []


def test_where_nothing_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to("nowhere.jpg")
    (chunk,) = chunks(find_images(tmp_path))
    assert (chunk.positions, [*chunk.unreadable]) == ([], [0])


def test_what_the_device_and_the_cpu_cannot_decode_is_unreadable(tmp_path: Path) -> None:
    def broken(images: list[torch.Tensor]) -> list[torch.Tensor]:
        raise RuntimeError("Failed to decode batch: 3")

    for name in "ab":
        Image.new("RGB", (SIZE, SIZE), "white").save(tmp_path / f"{name}.jpg")
    images = find_images(tmp_path)
    scan = (tmp_path / "b.jpg").read_bytes()
    frame = scan.index(b"\xff\xc0")  # a table that the scan names is missing: nothing that a header tells
    (tmp_path / "b.jpg").write_bytes(scan[: frame + 12] + b"\x03" + scan[frame + 13 :])
    expected = list(images.chunks(SIZE, 3, ROWS))
    assert [*expected[0].unreadable] == [1]
    found = list(images.chunks(SIZE, 3, ROWS, None, DeviceDecoder(CPU, broken)))
    assert found[0].unreadable == expected[0].unreadable
    assert np.array_equal(found[0].images, expected[0].images)
