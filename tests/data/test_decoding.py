"""Files that other processes decode: the same pixels, the same sentences, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from epass.data.read.decode import decode
from epass.data.read.decode_processes import DecodingProcess
from epass.data.stream import disk
from epass.data.stream.disk import THREADS_DO, Files, Mapped, StreamedImages, Workers

Refused = Callable[..., AbstractContextManager[None]]
SIZE = 8
NAMES = ["plain", "with\nbreak", 'quote"and\\slash', "ünïcode", os.fsdecode(b"no-utf8-\xff"), "f", "g", "h", "i", "j"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths = [home / f"{name}.png" for name in NAMES]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture
def images(paths: list[Path]) -> Iterator[StreamedImages]:
    workers = Workers(2, processes=True)
    index = torch.arange(len(paths))
    yield StreamedImages(Files(paths, SIZE), index, torch.zeros(len(paths), dtype=torch.int64), workers)
    workers.close()


def processes(images: StreamedImages) -> list[subprocess.Popen[bytes]]:
    return [own._process for own in images.workers._started if own._process is not None]


def test_the_pixels_are_those_of_decode_in_any_order_and_number(images: StreamedImages, paths: list[Path]) -> None:
    wanted = torch.from_numpy(np.stack([decode(path, SIZE) for path in paths]))
    for index in ([0], [3, 3, 3], list(range(10)), [9, 0, 9, 4, 0, 1, 2, 3, 5, 6, 7, 8], []):
        assert torch.equal(images.take(torch.tensor(index, dtype=torch.int64)), wanted[index])
    assert torch.equal(torch.cat(list(images.chunks(4))), wanted)
    assert 1 <= len(processes(images)) <= 2  # started once, kept between batches


def test_few_workers_are_threads_and_many_have_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Workers(THREADS_DO).processes
    assert Workers(THREADS_DO + 1).processes
    monkeypatch.setattr(disk, "PROCESSES_DO", False)
    assert not Workers(THREADS_DO + 1).processes
    rows = Mapped(torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4))
    mapped = StreamedImages(rows, torch.arange(2), torch.zeros(2), Workers(2, processes=True))
    assert torch.equal(mapped.pixels, rows.pixels)
    assert processes(mapped) == []  # nothing to decode
    mapped.workers.close()


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_the_same_sentence_and_spoils_no_other(
    paths: list[Path], tmp_path: Path, refused: Refused
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a photo")
    mixed = [*paths[:3], broken, *paths[3:]]
    workers = Workers(1, processes=True)
    images = StreamedImages(Files(mixed, SIZE), torch.arange(11), torch.zeros(11, dtype=torch.int64), workers)
    for _ in range(2):
        with refused(f"The image '{broken}' cannot be read (not an image)"):
            images.take(torch.arange(11))
        good = torch.tensor([0, 1, 2, 4, 5])
        assert np.array_equal(images.take(good), np.stack([decode(mixed[number], SIZE) for number in good]))
    workers.close()


@pytest.mark.slow
def test_a_killed_process_is_replaced_and_no_image_is_lost(images: StreamedImages, paths: list[Path]) -> None:
    everything = torch.arange(10)
    wanted = images.take(everything)
    for own in processes(images):
        own.kill()
        own.wait()
    assert torch.equal(images.take(everything), wanted)
    for own in processes(images):
        own.send_signal(signal.SIGSTOP)
    pending = images.begin(everything)
    for own in processes(images):  # in the middle of it
        own.kill()
    assert torch.equal(pending.result(), wanted)


def test_a_file_that_always_ends_the_process_is_named(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    process = DecodingProcess()
    monkeypatch.setattr(process, "_ask", lambda *_: process._process.kill())  # type: ignore[union-attr]
    with refused(f"Decoding '{paths[0]}' ended a process twice: free memory or remove it."):
        process.read(paths[:2], SIZE, lambda _: memoryview(bytearray(3 * SIZE * SIZE)), lambda *_: None)
    process.close()


def test_closing_ends_the_processes_and_the_next_image_starts_them_again(images: StreamedImages) -> None:
    before = images.take(torch.tensor([1]))
    (own,) = processes(images)
    images.workers.close()
    assert own.returncode is not None
    assert torch.equal(images.take(torch.tensor([1])), before)
    images.workers.close()


ORPHAN = """
import os, sys, torch
from pathlib import Path
from epass.data.stream.disk import Files, StreamedImages, Workers
images = StreamedImages(Files([Path(sys.argv[1])], 8), torch.arange(1), torch.zeros(1), Workers(1, processes=True))
images.take(torch.tensor([0]))
print(images.workers._started[0]._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_processes_of_a_killed_run_end_by_themselves(paths: list[Path]) -> None:
    ended = subprocess.run([sys.executable, "-c", ORPHAN, str(paths[0])], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    folder = Path(f"/proc/{int(ended.stdout)}")
    patience = time.monotonic() + 600
    while folder.exists() and "zombie" not in (folder / "status").read_text() and time.monotonic() < patience:
        time.sleep(0.05)
    assert not folder.exists() or "zombie" in (folder / "status").read_text()
