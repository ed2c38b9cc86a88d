"""JPEG files on the way to a device. Where there is none, Pillow stands in for its decoder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from epass.augment import make_policies
from epass.data import Lookahead, StreamedImages, decide, decoder_of, open_dataset
from epass.data.read import decode_processes, jpeg_header
from epass.data.read.decode import decode
from epass.data.read.decode_processes import DecodingProcess
from epass.data.read.jpeg_header import Frame, read_encoded, read_frame
from epass.data.stream import decoder, device_jpeg
from epass.data.stream.device_jpeg import DeviceDecoder, Span, filter_weights, find_decoder, scale
from epass.data.stream.disk import Files, Workers
from epass.errors import InputError
from epass.features.store import key_of
from epass.machine.device import QUEUES
from epass.method import Views

CPU, CUDA, SIZE = torch.device("cpu"), torch.device("cuda"), 16


class StandIn:
    """Decodes on the CPU; images with some color in their corner are those that it cannot decode."""

    def __init__(self, refused: int | None = None, message: str = "Failed to decode batch: 3") -> None:
        self.refused, self.message = refused, message
        self.batches: list[int] = []  # how many images were given at a time

    def __call__(self, images: list[Tensor]) -> list[Tensor]:
        self.batches.append(len(images))
        found = []
        for data in images:
            pixels = np.array(Image.open(BytesIO(data.numpy().tobytes())).convert("RGB"))
            if self.refused is not None and abs(int(pixels[0, 0, 0]) - self.refused) < 8:
                raise RuntimeError(f"Error while decoding JPEG images: {self.message}\nException raised from ...")
            found.append(torch.from_numpy(pixels.transpose(2, 0, 1).copy()))
        return found


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    """Something smooth, whose sides all differ."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, "JPEG", **{"quality": 95, **options})
    return file.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def on_device(paths: list[Path], decode: StandIn | None = None, workers: Workers | None = None) -> StreamedImages:
    rows = Files(paths, SIZE)
    rows.device = DeviceDecoder(CPU, decode or StandIn())
    return StreamedImages(rows, torch.arange(len(paths)), torch.zeros(len(paths), dtype=torch.int64), workers or two())


def two() -> Workers:
    return Workers(2)


def by_pillow(paths: list[Path]) -> Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.stack([torch.from_numpy(decode(path, SIZE)) for path in paths])


@pytest.fixture
def mixed(tmp_path: Path) -> list[Path]:
    """Files of many kinds: for the device those with even numbers."""
    kinds: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("jpg", photo(40, 30, 0), {}),
        ("png", photo(40, 30, 1), {}),
        ("jpg", photo(33, 47, 2), {"subsampling": 0}),
        ("jpg", photo(40, 30, 3), {"progressive": True}),
        ("jpg", photo(30, 30, 4).convert("L"), {}),
        ("jpg", photo(40, 30, 5).convert("CMYK"), {}),
        ("jpg", photo(17, 90, 6), {"exif": turned(6), "subsampling": 1}),
    ]
    paths = []
    for number, (ending, image, options) in enumerate(kinds):
        paths.append(tmp_path / f"{number}.{ending}")
        image.save(paths[-1], **options)
    return paths


# Which files are for the device


@pytest.mark.parametrize("options", [{"subsampling": kind} for kind in range(3)] + [{"optimize": True}])
def test_plain_files_are_for_the_device(options: dict[str, Any]) -> None:
    assert read_frame(memoryview(encoded(photo(37, 21), **options))) == Frame(37, 21, False)
    assert read_frame(memoryview(encoded(photo(37, 21), **options, exif=turned(1)))) == Frame(37, 21, True)
    assert read_frame(memoryview(encoded(photo(37, 21).convert("L"), comment=b"hello"))) == Frame(37, 21, False)


def test_a_thumbnail_is_no_second_scan() -> None:
    data = encoded(photo(37, 21))
    small = b"Exif\0\0" + encoded(photo(8, 8))
    segment = b"\xff\xe1" + (2 + len(small)).to_bytes(2, "big") + small
    assert read_frame(memoryview(data[:2] + segment + data[2:])) == Frame(37, 21, True)


def with_adobe(transform: int) -> bytes:
    """A file that says what its colors are, as Adobe's programs do."""
    data = encoded(photo(40, 30))
    return data[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform]) + data[2:]


def test_the_usual_colors_may_be_said() -> None:
    assert read_frame(memoryview(with_adobe(1))) == Frame(40, 30, False)


def patched(marker: bytes, place: int, value: bytes) -> bytes:
    """A file with other bytes behind its marker."""
    data = bytearray(encoded(photo(40, 30)))
    start = data.index(marker) + place
    data[start : start + len(value)] = value
    return bytes(data)


FRAME = b"\xff\xc0"
OTHERS = {
    "progressive": encoded(photo(40, 30), progressive=True),
    "ink": encoded(photo(40, 30).convert("CMYK")),
    "no brightness": encoded(photo(40, 30), keep_rgb=True),
    "said to be red, green and blue": with_adobe(0),
    "cut off": encoded(photo(40, 30))[:-30],
    "longer": encoded(photo(40, 30)) + 5000 * b"\0",
    "several scans": encoded(photo(40, 30))[:-2] + b"\xff\xda" + encoded(photo(40, 30))[-40:],
    "another picture": encoded(photo(40, 30)) + encoded(photo(40, 30)),
    "12 bits": patched(FRAME, 4, b"\x0c"),
    "no rows": patched(FRAME, 5, b"\0\0"),
    "too many pixels": patched(FRAME, 5, b"\x80\0\x80\0"),
    "odd names": patched(FRAME, 10, b"R"),
    "odd sampling": patched(FRAME, 11, b"\x14"),
    "odd colors": patched(FRAME, 14, b"\x21"),
    "arithmetic": patched(FRAME, 0, b"\xff\xc9"),
    "a long header": encoded(photo(40, 30))[:2] + 64 * b"\xff\xfe\0\2" + encoded(photo(40, 30))[2:],
    "several pictures": encoded(photo(40, 30))[:2] + b"\xff\xe2\0\6MPF\0" + encoded(photo(40, 30))[2:],
    "a bad length": patched(b"\xff\xdb", 2, b"\0\0"),
    "no frame": encoded(photo(40, 30)).replace(FRAME, b"\xff\xfe"),
    "nothing": b"\xff\xd8\xff\xd9",
    "text": 100 * b"no photo ",
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_others_are_for_pillow(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jpg").write_bytes(OTHERS[name])
    assert read_frame(memoryview(OTHERS[name])) is None
    stand_in = StandIn()
    images = on_device([tmp_path / "a.jpg"], stand_in)
    try:
        expected: Tensor | str = by_pillow([tmp_path / "a.jpg"])
    except InputError as problem:
        expected = str(problem)
    try:
        found: Tensor | str = images.take(torch.tensor([0]))
    except InputError as problem:
        found = str(problem)
    assert type(found) is type(expected)
    assert torch.equal(found, expected) if isinstance(found, Tensor) else found == expected
    assert stand_in.batches == []
    images.workers.close()


def test_every_cut_of_a_header_is_refused() -> None:
    data = encoded(photo(40, 30), exif=turned(3))
    start = data.rindex(b"\xff\xda")
    for end in range(start):
        assert read_frame(memoryview(data[:end] + b"\xff\xd9")) is None


def test_large_files_are_for_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jpg"
    photo(40, 30).save(path)
    assert read_encoded(path) is not None
    monkeypatch.setattr(jpeg_header, "LARGEST_PIXELS", 40 * 30 - 1)
    assert read_encoded(path) is None
    monkeypatch.setattr(jpeg_header, "LARGEST_PIXELS", 40 * 30)
    assert read_encoded(path) is not None
    monkeypatch.setattr(jpeg_header, "LARGEST_BYTES", path.stat().st_size - 1)
    assert read_encoded(path) is None


# Pixels


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shape", [(40, 30), (31, 44), (16, 16), (9, 13), (301, 200), (17, 250)])
def test_squares_are_those_of_pillow_but_for_rounding(tmp_path: Path, shape: tuple[int, int], orientation: int) -> None:
    path = tmp_path / "a.jpg"
    # Pillow's coarse decoding of large photos is another matter: quality and sampling that lose little.
    path.write_bytes(encoded(photo(*shape), exif=turned(orientation), quality=100, subsampling=0))
    found = read_encoded(path)
    assert found is not None
    numbers, squares = DeviceDecoder(CPU, StandIn()).squares([found], SIZE)
    assert numbers == [0]
    assert squares.is_contiguous()
    away = (squares[0].int() - torch.from_numpy(decode(path, SIZE)).int()).abs()
    assert away.max() <= (1 if min(shape) < 4 * SIZE else 4)
    assert away.float().mean() < (0.12 if min(shape) < 4 * SIZE else 1)


def test_images_of_a_batch_are_turned_each_in_its_way(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(18)]
    for number, path in enumerate(paths):
        photo(30, 30 + number % 2, number).save(path, exif=turned(number % 9))
    images = on_device(paths)
    alone = torch.cat([images.take(torch.tensor([number])) for number in range(18)])
    assert torch.equal(images.pixels, alone)
    assert (alone.int() - by_pillow(paths).int()).abs().max() <= 1
    images.workers.close()


@pytest.mark.parametrize("start", [0, 1, 2, 50])
def test_scaling_is_that_of_pillow(start: int) -> None:
    """Also where there is something beside the square: Pillow looks at it."""
    random = np.random.default_rng(0)
    for side in (7, 8, 15, 17, 32, 33, 64, 99):
        pixels = random.integers(0, 256, (side, side + 2 * start, 3), dtype=np.uint8)
        box = (start, 0, start + side, side)
        expected = np.array(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box))
        rows, columns = (Span.around(*place, SIZE) for place in ((0, side, side), (start, side, side + 2 * start)))
        seen = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None, :, :, start - columns.start :]
        found = scale(seen[..., : columns.length], *(filter_weights(span, SIZE, CPU) for span in (rows, columns)))[0]
        away = (found.int() - torch.from_numpy(expected.transpose(2, 0, 1).copy()).int()).abs()
        assert away.max() <= 1
        assert away.float().mean() < (0.12 if side == 17 else 0.01)  # 17 to 16 is full of halves


@pytest.mark.parametrize("processes", [False, True])
def test_order_and_repetition(mixed: list[Path], processes: bool) -> None:
    stand_in, index = StandIn(), torch.tensor([6, 1, 0, 1, 3, 6, 6, 5, 4, 2, 0])
    images = on_device(mixed, stand_in, Workers(1, processes=processes))  # of processes, one has all of them in a job
    expected, found = by_pillow(mixed), images.take(index)
    assert found.shape == (len(index), 3, SIZE, SIZE)
    assert (found.int() - expected[index].int()).abs().max() <= 1
    for row, position in enumerate(index.tolist()):
        if position % 2:
            assert torch.equal(found[row], expected[position])
    assert stand_in.batches == [4]  # each once, and all at a time
    assert torch.equal(torch.cat(list(images.chunks(3))), images.take(torch.arange(len(mixed))))
    assert images.take(torch.tensor([], dtype=torch.int64)).shape == (0, 3, SIZE, SIZE)
    images.workers.close()


@pytest.mark.parametrize("processes", [False, True])
def test_neither_workers_nor_batches_change_a_pixel(mixed: list[Path], processes: bool) -> None:
    one, other = on_device(mixed), on_device(mixed, workers=Workers(3, processes=processes))
    assert torch.equal(one.pixels, torch.cat([other.take(torch.tensor([row])) for row in range(len(mixed))]))
    for images in (one, other):
        images.workers.close()


def test_few_pixels_are_decoded_at_a_time(mixed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = on_device(mixed)
    expected = whole.pixels
    monkeypatch.setattr(device_jpeg, "TOGETHER", 40 * 30 + 33 * 47)
    stand_in = StandIn()
    images = on_device(mixed, stand_in)
    assert torch.equal(images.pixels, expected)
    assert stand_in.batches == [2, 2]
    for source in (images, whole):
        source.workers.close()


# What goes wrong


@pytest.fixture
def colors(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{level}.jpg" for level in (20, 60, 100, 140)]
    for path in paths:
        Image.new("RGB", (40, 30), (int(path.stem), 128, 128)).save(path)
    return paths


def test_what_the_device_cannot_decode_goes_to_pillow_alone(
    colors: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    monkeypatch.setattr("epass.data.stream.disk.decode", lambda path, size: (seen.append(path), decode(path, size))[1])
    stand_in = StandIn(refused=60)
    images = on_device(colors, stand_in)
    found = images.take(torch.tensor([3, 1, 0, 1]))
    assert (found.int() - by_pillow([colors[row] for row in (3, 1, 0, 1)]).int()).abs().max() <= 1
    assert stand_in.batches == [3, 1, 1, 1]
    assert seen == [colors[1]]
    images.workers.close()


def test_other_shapes_than_the_header_says_are_not_believed(colors: list[Path]) -> None:
    images = on_device(colors, lambda images: [torch.zeros(3, 30, 41, dtype=torch.uint8) for _ in images])  # type: ignore[arg-type]
    assert torch.equal(images.pixels, by_pillow(colors))
    images.workers.close()


@pytest.mark.parametrize("kind", ["nvJPEG", "torch"])
def test_too_little_memory_is_no_reason_for_other_pixels(colors: list[Path], kind: str) -> None:
    class Full(StandIn):
        def __call__(self, images: list[Tensor]) -> list[Tensor]:
            raise torch.OutOfMemoryError("full")

    images = on_device(colors, Full() if kind == "torch" else StandIn(60, "Failed to decode batch: 5"))
    with pytest.raises(torch.OutOfMemoryError):
        images.take(torch.arange(4))
    images.workers.close()


@pytest.mark.parametrize("processes", [False, True])
def test_errors_name_the_file(mixed: list[Path], tmp_path: Path, processes: bool) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(encoded(photo(40, 30))[:200])
    for path in (bad, tmp_path / "missing.jpg", tmp_path):
        with pytest.raises(InputError) as told:
            decode(path, SIZE)
        images = on_device([mixed[0], path, mixed[1], mixed[3]], workers=Workers(1, processes=processes))
        with pytest.raises(InputError) as found:
            images.take(torch.arange(4))
        assert str(found.value) == str(told.value)
        assert str(path) in str(found.value)
        assert torch.equal(images.take(torch.tensor([3, 2])), by_pillow([mixed[3], mixed[1]]))  # others can be had
        images.workers.close()


@pytest.fixture
def noise(tmp_path: Path) -> list[Path]:
    """Files that are larger than what a process can write before it is read; those with odd numbers are for Pillow."""
    paths = [tmp_path / f"{number}.{'png' if number % 2 else 'jpg'}" for number in range(5)]
    for number, path in enumerate(paths):
        random = np.random.default_rng(number)
        Image.fromarray(random.integers(0, 256, (900, 800 + number, 3), dtype=np.uint8)).save(path)
    return paths


def lone_process(images: StreamedImages) -> subprocess.Popen[bytes]:
    (own,) = images.workers._started
    assert own._process is not None
    return own._process


@pytest.mark.parametrize("place", range(3))
def test_a_process_that_is_killed_loses_no_file(noise: list[Path], monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """In the middle of the bytes of files, or of the pixels of the first or second of the others."""
    images = on_device(noise, workers=Workers(1, processes=True))
    expected, fill, seen = images.pixels, decode_processes._fill, 0
    first = lone_process(images)

    def killing(answers: socket.socket, memory: memoryview) -> None:
        nonlocal seen
        if len(memory) >= 3 * SIZE * SIZE:
            if seen == place:
                fill(answers, memory[:9])
                first.kill()
                first.wait()
                answers.shutdown(socket.SHUT_RD)  # small pixels are there already
                seen += 1
                memory = memoryview(bytearray(2**26))
            seen += 1
        fill(answers, memory)

    monkeypatch.setattr(decode_processes, "_fill", killing)
    assert torch.equal(images.pixels, expected)
    assert seen == 5  # what had arrived is not asked again
    assert lone_process(images).pid != first.pid
    images.workers.close()


def test_a_job_that_always_ends_the_process_is_named(mixed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    images = on_device(mixed, workers=Workers(1, processes=True))
    monkeypatch.setattr(DecodingProcess, "_ask", lambda self, *_: self._process.kill())
    with pytest.raises(InputError) as found:
        images.take(torch.tensor([0, 2, 1]))
    names = ", ".join(f"'{mixed[number]}'" for number in (0, 2, 1))
    assert str(found.value) == f"Decoding {names} ended a process twice: free memory or remove it."
    monkeypatch.undo()
    assert len(images.take(torch.tensor([0, 2, 1]))) == 3
    images.workers.close()


def test_a_signal_in_the_middle_of_an_answer_loses_nothing() -> None:
    class Interrupted:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def recv_into(self, memory: memoryview, size: int, _flags: int) -> int:
            part, self.data = self.data[: min(3, size)], self.data[min(3, size) :]
            memory[: len(part)] = part
            return len(part)

    memory = bytearray(10)
    decode_processes._fill(Interrupted(bytes(range(12))), memoryview(memory))  # type: ignore[arg-type]
    assert memory == bytes(range(10))
    with pytest.raises(EOFError):
        decode_processes._fill(Interrupted(bytes(7)), memoryview(memory))  # type: ignore[arg-type]


@pytest.mark.parametrize("processes", [False, True])
def test_no_memory_for_pixels_where_the_device_decodes_all(colors: list[Path], processes: bool) -> None:
    images = on_device(colors, workers=Workers(1, processes=processes))
    pending = images.begin(torch.arange(4))
    assert len(pending.result()) == 4
    assert pending._held is None
    images.workers.close()


@pytest.mark.parametrize(("count", "jobs"), [(256, 16 * [16]), (128, 8 * [16]), (40, 8 * [5]), (5, 5 * [1])])
def test_files_for_a_device_are_read_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, count: int, jobs: list[int]
) -> None:
    workers, seen = Workers(16, processes=True), []
    monkeypatch.setattr(workers, "submit", lambda _rows, job, _memory: seen.append(len(job)) or Future())
    on_device([Path(f"{number}.jpg") for number in range(count)], workers=workers).begin(torch.arange(count)).cancel()
    assert seen == jobs
    workers.close()


def test_closing_ends_all_threads(mixed: list[Path]) -> None:
    images = on_device(mixed)
    before = images.take(torch.arange(3))
    pending = [images.begin(torch.arange(7)) for _ in range(5)]
    pending[-1].cancel()
    images.workers.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read")]
    assert torch.equal(images.take(torch.arange(3)), before)
    images.workers.close()


def test_closing_waits_for_the_device(mixed: list[Path]) -> None:
    begun, ended = threading.Event(), threading.Event()

    class Slow(StandIn):
        def __call__(self, images: list[Tensor]) -> list[Tensor]:
            begun.set()
            time.sleep(0.2)
            ended.set()
            return super().__call__(images)

    images = on_device(mixed, Slow())
    images.begin(torch.arange(7))
    assert begun.wait(60)
    images.workers.close()
    assert ended.is_set()


def test_a_feed_gives_the_same_batches_again(mixed: list[Path]) -> None:
    policies, views = make_policies(padding=1, horizontal_flip=True), Views(labeled=("weak",), unlabeled=("strong",))

    def batches() -> Iterator[Tensor]:
        images = on_device(mixed)
        feed = Lookahead(
            images, images, views, policies, mean=[0.5] * 3, std=[0.2] * 3, seed=3, labeled_batch=4, unlabeled_batch=6
        )
        for step in (0, 1, 2, 3, 1):
            batch = feed(step)
            yield torch.cat([*batch.labeled, *batch.unlabeled])
        feed.close()

    first, second = list(batches()), list(batches())
    assert all(map(torch.equal, first, second))
    assert torch.equal(first[1], first[4])
    assert not torch.equal(first[1], first[2])


# Who decodes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(40, 30 + number, number).save(path)
    return tmp_path / "photos"


def opened(folder: Path, **settings: Any) -> StreamedImages:
    images = open_dataset(str(folder), image_size=SIZE, streaming=True, **settings).train
    assert isinstance(images, StreamedImages)
    return images


@pytest.fixture
def standing_in(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    monkeypatch.setenv(QUEUES, "32")  # as if CUDA had not started in this process
    asked: list[torch.device] = []
    monkeypatch.setattr(
        decoder, "find_decoder", lambda device: (asked.append(device), DeviceDecoder(CPU, StandIn()))[1]
    )
    return asked


def test_a_device_is_chosen_where_there_is_one(folder: Path, standing_in: list[torch.device]) -> None:
    images = opened(folder)
    assert decide(images, CPU) == ""
    assert decoder_of(images) == "cpu"
    assert standing_in == []
    said = decide(images, CUDA)
    assert "decoded on the GPU" in said
    assert QUEUES not in said
    assert "(the decoder 'cpu' avoids that)" in said
    assert decoder_of(images) == "device"
    part = images.select(torch.tensor([1]))
    assert decoder_of(part) == "device"
    assert decide(part, CUDA) == ""  # it is decided
    assert standing_in == [CUDA]
    assert decide(opened(folder, decoder="cpu"), CUDA) == ""
    assert standing_in == [CUDA]
    images.workers.close()


def test_cuda_that_has_started_is_told_of(
    folder: Path, standing_in: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with patch.dict(os.environ):
        os.environ.pop(QUEUES, None)
        assert decide(opened(folder), CUDA).endswith(f"steps may wait for them: set {QUEUES}=32 to avoid that.")
        os.environ[QUEUES] = "8"  # somebody's choice
        assert QUEUES not in decide(opened(folder), CUDA)


def test_cuda_is_asked_for_queues_before_a_decoder_starts_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(decoder, "find_decoder", lambda _device: seen.append(os.environ.get(QUEUES)) or "it is broken")
    with patch.dict(os.environ):
        os.environ.pop(QUEUES, None)
        decide(opened(folder), CUDA)
    assert seen == ["32"]


def test_without_a_decoder_the_cpu_decodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "find_decoder", lambda _device: "it is broken")
    images = opened(folder)
    assert decide(images, CUDA) == "Images are decoded by the CPU, since the GPU cannot (it is broken)."
    assert decoder_of(images) == "cpu"
    with pytest.raises(
        InputError, match=r"cannot be decoded on this device \(it is broken\): use a machine where they"
    ):
        decide(opened(folder, decoder="device"), CUDA)


def test_asking_for_a_device_where_nothing_is_streamed(folder: Path) -> None:
    with pytest.raises(InputError, match=r"'photos' are not streamed .* add --stream, or leave data.decoder out"):
        open_dataset(str(folder), image_size=SIZE, decoder="device")
    with pytest.raises(InputError, match=r"'digits' does not consist of image files: leave data.decoder out"):
        open_dataset("digits", decoder="device")
    with pytest.raises(InputError, match="it is no CUDA device but 'cpu'"):
        decide(opened(folder, decoder="device"), CPU)


def test_the_cache_holds_pixels_of_the_cpu(folder: Path, standing_in: list[torch.device]) -> None:
    open_dataset(str(folder), image_size=SIZE)  # fills it
    images = opened(folder)
    assert decide(images, CUDA) == ""
    assert decoder_of(images) == "cpu"
    images = opened(folder, decoder="device")
    decide(images, CUDA)
    assert decoder_of(images) == "device"


def test_features_are_kept_by_pixels_which_differ(folder: Path, standing_in: list[torch.device]) -> None:
    cpu, device = opened(folder), opened(folder)
    decide(device, CUDA)
    rows: Any = device.rows
    rows.device = DeviceDecoder(CPU, lambda images: [image ^ 1 for image in StandIn()(images)])
    keys = [{key_of(image.numpy().tobytes(), images.shape) for image in images.pixels} for images in (cpu, device)]
    assert len(keys[0]) == len(keys[1]) == len(cpu)
    assert not keys[0] & keys[1]
    for images in (cpu, device):
        images.workers.close()


def test_a_cpu_never_imports_torchvision(folder: Path) -> None:
    code = (
        "import sys, torch; from epass.data import decide, open_dataset;"
        f"images = open_dataset({str(folder)!r}, streaming=True).train; decide(images, torch.device('cpu'));"
        "images.pixels; images.workers.close(); print('torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# On a GPU


@pytest.fixture(scope="module")
def gpu() -> DeviceDecoder:
    found = find_decoder(torch.device("cuda"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


def compare(gpu: DeviceDecoder, paths: list[Path], size: int = 64) -> tuple[float, int]:
    """Mean and largest difference from Pillow, in levels."""
    rows = Files(paths, size)
    rows.device = gpu
    images = StreamedImages.all_of(rows, torch.zeros(len(paths), dtype=torch.int64, device="cuda"))
    found = images.take(torch.arange(len(paths)))
    assert found.is_cuda
    images.workers.close()
    expected = torch.stack([torch.from_numpy(decode(path, size)) for path in paths])
    away = (found.cpu().int() - expected.int()).abs()
    print(f"mean {away.float().mean():.3f}, largest {int(away.max())} levels from Pillow")
    return float(away.float().mean()), int(away.max())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("gray", "subsampling", "mean", "largest"),
    [(False, 0, 0.03, 4), (False, 1, 0.9, 12), (False, 2, 1.3, 16), (True, 0, 0.016, 4)],
)
def test_a_gpu_decodes_as_pillow_does(
    gpu: DeviceDecoder, tmp_path: Path, gray: bool, subsampling: int, mean: float, largest: int
) -> None:
    whole = not subsampling  # else how colors at half the resolution are enlarged is another matter
    shapes = [(100, 75), (101, 77), (99, 130), (250, 249)] + whole * [(64, 64), (65, 64), (50, 40), (16, 16)]
    paths = []
    for number, shape in enumerate(shapes):
        for orientation in range(1, 9):
            image = photo(*shape, seed=number).convert("L" if gray else "RGB")
            paths.append(tmp_path / f"{number}-{orientation}.jpg")
            image.save(paths[-1], quality=95, subsampling=subsampling, exif=turned(orientation))
            assert read_encoded(paths[-1]) is not None
    found_mean, found_largest = compare(gpu, paths)
    assert found_mean < mean
    assert found_largest <= largest


@pytest.mark.gpu
def test_a_gpu_and_files_of_other_kinds(gpu: DeviceDecoder, mixed: list[Path]) -> None:
    mean, largest = compare(gpu, [path for number, path in enumerate(mixed) if number % 2])
    assert (mean, largest) == (0, 0)
    mean, largest = compare(gpu, mixed)
    assert mean < 1.8
    assert largest <= 60


@pytest.mark.gpu
def test_a_gpu_gives_the_same_pixels_again_while_it_is_busy(gpu: DeviceDecoder, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(64)]
    for number, path in enumerate(paths):
        photo(300 + number % 3, 200 + number % 5, number).save(path)
    rows = Files(paths, 96)
    rows.device = gpu
    images = StreamedImages.all_of(rows, torch.zeros(len(paths), dtype=torch.int64, device="cuda"))
    expected, weight = images.take(torch.arange(64)).clone(), torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        product = weight
        for _ in range(10):
            product = product @ weight / 64
        order = torch.randperm(64)
        assert torch.equal(images.take(order), expected[order.cuda()])
    images.workers.close()


@pytest.mark.gpu
def test_a_gpu_decodes_while_a_queue_is_full(gpu: DeviceDecoder, tmp_path: Path) -> None:
    """In a process of its own, where CUDA has not started: what was queued before the photos ends after them."""
    paths = [tmp_path / f"{number}.jpg" for number in range(128)]
    for number, path in enumerate(paths):
        photo(500, 375, number).save(path)
    code = f"""
import torch
from pathlib import Path
from epass.data.read.jpeg_header import read_encoded
from epass.data.stream.device_jpeg import find_decoder
from epass.machine.device import choose_device
decoder = find_decoder(choose_device("cuda"))
photos = [read_encoded(path) for path in sorted(Path({str(tmp_path)!r}).glob("*.jpg"))]
def squares():
    with decoder.at_work():
        decoder.squares(photos, 224)
squares()
factor = torch.randn(4096, 4096, device="cuda").bfloat16()
torch.cuda.synchronize()
product, ended = factor @ factor, torch.cuda.Event()
for _ in range(900):  # fewer than CUDA queues without making the host wait
    torch.mm(factor, factor, out=product)
ended.record()
squares()
print(ended.query())
"""
    chosen = {name: value for name, value in os.environ.items() if name != QUEUES}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=chosen)
    assert done.stdout.strip() == "False"


@pytest.mark.gpu
def test_bytes_that_are_no_longer_a_photo_on_a_gpu(gpu: DeviceDecoder, tmp_path: Path) -> None:
    """A header that promises what does not follow ends in an error or in some pixels, and never in a hang."""
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    photo(100, 75).save(good)
    data = bytearray(good.read_bytes())
    start = data.rindex(b"\xff\xda") + 14
    data[start:-2] = bytes(len(data) - 2 - start)
    bad.write_bytes(data)
    rows = Files([good, bad], 64)
    rows.device = gpu
    images = StreamedImages.all_of(rows, torch.zeros(2, dtype=torch.int64, device="cuda"))
    with suppress(InputError):
        images.take(torch.tensor([0, 1]))
    assert (images.take(torch.tensor([0])).float().mean() - decode(good, 64).mean()).abs() < 2
    images.workers.close()
