"""Images that do not fit into memory: they stay on disk and are read in parallel shortly before they are needed."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ..images import ImageSource
from ..read.decode import decode
from ..read.decode_processes import DecodingProcess
from ..read.jpeg_header import Encoded, read_encoded
from .device_jpeg import Decoder, DeviceDecoder

Streaming = bool | Literal["auto"]
SHARE = 0.5  # of the free memory: what "auto" lets decoded images take
THREADS_DO = 4  # workers: with more of them, decoding threads wait for each other and processes decode faster
TOGETHER = 8  # images that a process is given at a time


class Rows(Protocol):
    """Images on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: (C, H, W)."""

    def read(self, position: int) -> Tensor:
        """One image as uint8 (C, H, W); called by several threads at a time."""


Job = list[tuple[int, memoryview]]  # positions of images, and where they are wanted


class Files:
    """Rows that are image files, decoded as `decode` does, but for those that a `device` is given and can take.

    Args:
        paths: The files.
        image_size: Side of the square images.
        wanted: Who is to decode them; `decide` finds out, once, when it is known which device they are for.
    """

    def __init__(self, paths: Sequence[Path], image_size: int, wanted: Decoder = "auto") -> None:
        self.paths, self.image_size, self.wanted = paths, image_size, wanted
        self.device: DeviceDecoder | None = None
        self.decided = False

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, self.image_size, self.image_size

    def read(self, position: int) -> Tensor:
        return torch.from_numpy(decode(self.paths[position], self.image_size))


class Mapped:
    """Rows that were decoded earlier, in a tensor (N, C, H, W) that is mapped from disk."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pixels.shape[1:])

    def read(self, position: int) -> Tensor:
        return self.pixels[position]


class Workers:
    """Threads that start when there is something to read; once closed, they start again when there is more.

    Args:
        count: How many.
        processes: Whether each has a process that decodes files for it; None decides by their number.
    """

    def __init__(self, count: int | None = None, *, processes: bool | None = None) -> None:
        self.count = count or default_workers()
        self.processes = self.count > THREADS_DO if processes is None else processes
        self._pool: ThreadPoolExecutor | None = None
        self._device_pool: ThreadPoolExecutor | None = None
        self._own = threading.local()  # the process of each thread
        self._started: list[DecodingProcess] = []

    def submit(self, rows: Rows, job: Job) -> Future[list[Encoded | None]]:
        """Begin to read these images into where they are wanted, or to find the bytes of those for a device."""
        if self._pool is None:
            # Pillow lets other threads run while it decodes and scales; what it warns of changes no pixel.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="read")
        return self._pool.submit(self._read, rows, job)

    def submit_to_device(self, work: Callable[[], Tensor]) -> Future[Tensor]:
        """Do this in the one thread that has a device decode: it waits for the device, which others need not."""
        if self._device_pool is None:
            self._device_pool = ThreadPoolExecutor(1, thread_name_prefix="read-device")
        return self._device_pool.submit(work)

    def _read(self, rows: Rows, job: Job) -> list[Encoded | None]:
        encoded: list[Encoded | None] = [None] * len(job)
        if isinstance(rows, Files) and rows.device is not None:
            encoded = [read_encoded(rows.paths[position]) for position, _ in job]
        self._decode(rows, [part for part, found in zip(job, encoded, strict=True) if found is None])
        return encoded

    def _decode(self, rows: Rows, job: Job) -> None:
        if self.processes and isinstance(rows, Files):
            if not hasattr(self._own, "process"):
                self._own.process = DecodingProcess()
                self._started.append(self._own.process)
            self._own.process.read([(rows.paths[position], rows.image_size, memory) for position, memory in job])
            return
        for position, memory in job:
            np.frombuffer(memory, dtype=np.uint8)[:] = rows.read(position).numpy().reshape(-1)

    def close(self) -> None:
        """Give up what was begun and end the threads and their processes."""
        pools, self._pool, self._device_pool = (self._pool, self._device_pool), None, None
        for pool in pools:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
        while self._started:
            self._started.pop().close()


class Pending:
    """Images that are being read into one tensor, page-locked if a GPU wants them."""

    def __init__(self, rows: Rows, workers: Workers, positions: Sequence[int], pin: bool) -> None:
        self._pixels = torch.empty(len(positions), *rows.shape, dtype=torch.uint8, pin_memory=pin)
        places = self._pixels.numpy()
        self._again: list[tuple[int, int]] = []  # rows of an image that an earlier row holds, and that row
        self._first: dict[int, int] = {}  # the first row of every image
        for row, position in enumerate(positions):
            if self._first.setdefault(position, row) != row:
                self._again.append((row, self._first[position]))
        wanted = [(position, memoryview(places[row]).cast("B")) for position, row in self._first.items()]
        together = max(1, min(TOGETHER, len(wanted) // workers.count)) if workers.processes else 1
        starts = range(0, len(wanted), together)
        self._futures = [workers.submit(rows, wanted[start : start + together]) for start in starts]

    def result(self) -> Tensor:
        """The images, once all are there; the first one that cannot be read is reported here."""
        for future in self._futures:
            future.result()
        for row, first in self._again:
            self._pixels[row] = self._pixels[first]
        return self._pixels

    def cancel(self) -> None:
        for future in self._futures:
            future.cancel()


class PendingOnDevice(Pending):
    """Images whose files are being read, and decoded by a device as soon as all are there."""

    def __init__(self, rows: Files, device: DeviceDecoder, workers: Workers, positions: Sequence[int]) -> None:
        super().__init__(rows, workers, positions, pin=device.device.type == "cuda")
        self._rows, self._device = rows, device
        self._decoded = workers.submit_to_device(self._decode)

    def _decode(self) -> Tensor:
        encoded = dict(zip(self._first, (found for some in self._futures for found in some.result()), strict=True))
        self._futures = []  # which hold the bytes
        known = {position: found for position, found in encoded.items() if found is not None}
        with self._device.at_work():
            squares = dict(zip(known, self._device.squares([*known.values()], self._rows.image_size), strict=True))
            made = {position: square for position, square in squares.items() if square is not None}
            for position in squares.keys() - made.keys():
                self._pixels[self._first[position]] = self._rows.read(position)
            held = self._pixels if len(made) == len(self._first) else self._pixels.to(self._device.device)
            found = {row: made.get(position, held[row]) for position, row in self._first.items()}
            found |= {row: found[first] for row, first in self._again}
            return torch.stack([found[row] for row in range(len(held))]) if found else held.to(self._device.device)

    def result(self) -> Tensor:
        pixels = self._decoded.result()
        if pixels.is_cuda:  # its memory belongs to the stream that decodes
            pixels.record_stream(torch.cuda.current_stream(pixels.device))
        return pixels

    def cancel(self) -> None:
        super().cancel()
        self._decoded.cancel()


class StreamedImages:
    """An `ImageSource` of images on disk. What is selected from it shares its threads: closing one closes all.

    An image that cannot be read is reported by the `take` that wants it, not earlier, and by nobody if none does.

    Args:
        rows: The images on disk.
        index: (N,) int64, the positions of these images among the rows.
        labels: (N,) int64, -1 = unknown; `take` returns the images on the same device.
        workers: Who reads them.
    """

    def __init__(self, rows: Rows, index: Tensor, labels: Tensor, workers: Workers) -> None:
        assert len(index) == len(labels)
        self.rows, self.index, self.labels, self.workers = rows, index, labels, workers

    @classmethod
    def all_of(cls, rows: Rows, labels: Tensor, workers: int | None = None) -> StreamedImages:
        """All rows, as many as there are labels, with threads of their own."""
        return cls(rows, torch.arange(len(labels)), labels, Workers(workers))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    @property
    def pixels(self) -> Tensor:
        return torch.cat(list(self.chunks(512)))

    def begin(self, index: Tensor) -> Pending:
        """Begin to read the images at `index` (n,), the first ones first."""
        positions = self.index[index.cpu()].tolist()
        if isinstance(self.rows, Files) and self.rows.device is not None:
            return PendingOnDevice(self.rows, self.rows.device, self.workers, positions)
        return Pending(self.rows, self.workers, positions, pin=self.labels.is_cuda)

    def take(self, index: Tensor) -> Tensor:
        return self.begin(index).result().to(self.labels.device)

    def look(self, index: Tensor) -> Tensor:
        return self.take(index)

    def chunks(self, rows: int) -> Iterator[Tensor]:
        first, *others = torch.split(torch.arange(len(self)), rows)
        begun = [self.begin(first)]
        try:
            for part in others:
                begun.append(self.begin(part))
                yield begun.pop(0).result().to(self.labels.device)
            yield begun[0].result().to(self.labels.device)
        finally:  # nobody waits for what is left after an error
            for pending in begun:
                pending.cancel()

    def select(self, index: Tensor) -> StreamedImages:
        place = index.to(self.labels.device)
        return StreamedImages(self.rows, self.index[index.cpu()], self.labels.index_select(0, place), self.workers)

    def labeled(self, labels: Tensor) -> StreamedImages:
        return StreamedImages(self.rows, self.index, labels, self.workers)

    def joined(self, other: ImageSource) -> StreamedImages:
        assert isinstance(other, StreamedImages)
        assert other.rows is self.rows
        index, labels = torch.cat([self.index, other.index]), torch.cat([self.labels, other.labels])
        return StreamedImages(self.rows, index, labels, self.workers)

    def to(self, device: torch.device | str) -> StreamedImages:
        return self.labeled(self.labels.to(device))


def default_workers() -> int:
    """EPASS_WORKERS, or one for every core that this process may use: the number changes no result."""
    chosen = os.environ.get("EPASS_WORKERS", "")
    if chosen and not (chosen.isdecimal() and int(chosen) > 0):
        raise InputError(f"EPASS_WORKERS is '{chosen}', but it is a number of workers: use 1 or more.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(chosen) if chosen else cores


def stream(rows: Rows, labels: list[int], test_labels: list[int]) -> tuple[StreamedImages, StreamedImages]:
    """Training and test images, the former ones first among the rows."""
    images = StreamedImages.all_of(rows, torch.tensor(labels + test_labels))
    split, count = len(labels), len(images)
    return images.select(torch.arange(split)), images.select(torch.arange(split, count))


def is_streamed(shape: tuple[int, ...], streaming: Streaming) -> bool:
    """Whether images that are (N, C, H, W) once they are decoded stay on disk."""
    if streaming != "auto":
        return bool(streaming)
    free = free_memory()
    return free is not None and math.prod(shape) > SHARE * free


def free_memory() -> int | None:
    """Bytes that are free in main memory or, if that is less, on the GPU; None where the system does not tell."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass
    if torch.cuda.is_available():
        found.append(torch.cuda.mem_get_info()[0])
    return min(found, default=None)
