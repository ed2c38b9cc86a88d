"""Images that do not fit into memory: they stay on disk and are read in parallel shortly before they are needed."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ..images import ImageSource
from ..read.decode import decode, without_name
from ..read.decode_processes import DecodingProcess
from ..read.jpeg_header import Encoded, read_encoded
from .device_jpeg import Decoder, DeviceDecoder

Streaming = bool | Literal["auto"]
SHARE = 0.5  # of the free memory: what "auto" lets decoded images take
THREADS_DO = 4  # workers: with more of them, decoding threads wait for each other and processes decode faster
PROCESSES_DO = os.name == "posix"  # elsewhere a process cannot be given the socket that it is asked over
TOGETHER = 8  # images that a process is given at a time
FILES_TOGETHER = 16  # the same of files for a device, which a process only reads


class Rows(Protocol):
    """Images on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image: (C, H, W)."""

    def read(self, position: int) -> Tensor:
        """One image as uint8 (C, H, W); called by several threads at a time."""


Job = list[tuple[int, int]]  # positions of images, and the rows of a batch where they are wanted
Memory = Callable[[int], memoryview]  # of such a row


class Files:
    """Rows that are image files, decoded as `decode` does, but for those that a `device` is given and can take.

    Args:
        paths: The files.
        image_size: Side of the square images.
        wanted: Who is to decode them; `decide` finds out, once, when it is known which device they are for.
        unreadable: Where those that cannot be read are noted, by position, and why; otherwise they are an InputError.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        image_size: int,
        wanted: Decoder = "auto",
        unreadable: dict[int, str] | None = None,
    ) -> None:
        self.paths, self.image_size, self.wanted, self.unreadable = paths, image_size, wanted, unreadable
        self.device: DeviceDecoder | None = None
        self.decided = False

    @property
    def shape(self) -> tuple[int, ...]:
        return 3, self.image_size, self.image_size

    def read(self, position: int) -> Tensor:
        try:
            return torch.from_numpy(decode(self.paths[position], self.image_size))
        except InputError as problem:
            self.refuse(position, problem)
            return torch.zeros(self.shape, dtype=torch.uint8)

    def refuse(self, position: int, problem: InputError) -> None:
        """Note that a file cannot be read, if that is wanted."""
        if self.unreadable is None:
            raise problem
        self.unreadable[position] = without_name(problem, self.paths[position])


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
        self.processes = PROCESSES_DO and self.count > THREADS_DO if processes is None else processes
        self._pool: ThreadPoolExecutor | None = None
        self._device_pool: ThreadPoolExecutor | None = None
        self._own = threading.local()  # the process of each thread
        self._started: list[DecodingProcess] = []

    def submit(self, rows: Rows, job: Job, memory: Memory) -> Future[list[Encoded | None]]:
        """Begin to read these images into where they are wanted, or to find the bytes of those for a device."""
        if self._pool is None:
            # Pillow lets other threads run while it decodes and scales; what it warns of changes no pixel.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="read")
        return self._pool.submit(self._read, rows, job, memory)

    def submit_to_device(self, work: Callable[[], Tensor]) -> Future[Tensor]:
        """Do this in the one thread that has a device decode: it waits for the device, which others need not."""
        if self._device_pool is None:
            self._device_pool = ThreadPoolExecutor(1, thread_name_prefix="read-device")
        return self._device_pool.submit(work)

    def _read(self, rows: Rows, job: Job, memory: Memory) -> list[Encoded | None]:
        files = rows if isinstance(rows, Files) else None
        if self.processes and files is not None:
            if not hasattr(self._own, "process"):
                self._own.process = DecodingProcess()
                self._started.append(self._own.process)
            process: DecodingProcess = self._own.process
            paths = [files.paths[position] for position, _ in job]
            return process.read(
                paths,
                files.image_size,
                lambda number: memory(job[number][1]),
                lambda number, problem: files.refuse(job[number][0], problem),
                encoded=files.device is not None,
            )
        found: list[Encoded | None] = [None] * len(job)
        for number, (position, row) in enumerate(job):
            if files is not None and files.device is not None:
                found[number] = read_encoded(files.paths[position])
            if found[number] is None:
                np.frombuffer(memory(row), dtype=np.uint8)[:] = rows.read(position).numpy().reshape(-1)
        return found

    def close(self) -> None:
        """Give up what was begun and end the threads and their processes."""
        pools, self._pool, self._device_pool = (self._pool, self._device_pool), None, None
        for pool in pools:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
        while self._started:
            self._started.pop().close()


class Pending:
    """Images that are being read into one tensor, page-locked if a GPU wants them, which is made when one arrives."""

    together = TOGETHER

    def __init__(self, rows: Rows, workers: Workers, positions: Sequence[int], pin: bool) -> None:
        self._shape, self._pin = (len(positions), *rows.shape), pin
        self._held: Tensor | None = None
        self._lock = threading.Lock()
        self._again: list[tuple[int, int]] = []  # rows of an image that an earlier row holds, and that row
        self._first: dict[int, int] = {}  # the first row of every image
        for row, position in enumerate(positions):
            if self._first.setdefault(position, row) != row:
                self._again.append((row, self._first[position]))
        wanted = [*self._first.items()]
        # The last jobs of a batch find all workers busy because those of the next batches wait already.
        together = max(1, min(self.together, len(wanted) * self.together // TOGETHER // workers.count))
        starts = range(0, len(wanted), together if workers.processes else 1)
        self._futures = [workers.submit(rows, wanted[start : start + starts.step], self._memory) for start in starts]

    @property
    def _pixels(self) -> Tensor:
        with self._lock:
            if self._held is None:
                self._held = torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._pin)
            return self._held

    def _memory(self, row: int) -> memoryview:
        return memoryview(self._pixels.numpy()[row]).cast("B")

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

    together = FILES_TOGETHER

    def __init__(
        self, rows: Files, device: DeviceDecoder, workers: Workers, positions: Sequence[int], home: torch.device
    ) -> None:
        super().__init__(rows, workers, positions, pin=device.device.type == "cuda")
        self._rows, self._device, self._home = rows, device, home
        self._decoded = workers.submit_to_device(self._decode)

    def _decode(self) -> Tensor:
        found = [one for some in self._futures for one in some.result()]
        self._futures = []  # which hold the bytes
        wanted = [*self._first.items()]
        known = [number for number, one in enumerate(found) if one is not None]
        place = [-1] * self._shape[0]  # of each row among all that are made
        with self._device.at_work():
            made, pixels = self._device.squares([one for one in found if one is not None], self._rows.image_size)
            for at, number in enumerate(made):
                place[wanted[known[number]][1]] = at
            for (position, row), one in zip(wanted, found, strict=True):
                if one is not None and place[row] < 0:  # the device cannot
                    self._pixels[row] = self._rows.read(position)
            if len(made) < len(wanted):
                pixels = torch.cat([pixels, self._pixels.to(self._device.device)])
                place = [at if at >= 0 else len(made) + row for row, at in enumerate(place)]
            for row, first in self._again:
                place[row] = place[first]
            if place != [*range(len(pixels))]:
                pixels = pixels[torch.tensor(place, device=self._device.device)]
            if pixels.is_cuda and self._home.type == "cpu":  # copied here, where nobody else waits for it
                copied = torch.empty_like(pixels, device="cpu", pin_memory=True)
                pixels = copied.copy_(pixels, non_blocking=True)
            return pixels

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
            return PendingOnDevice(self.rows, self.rows.device, self.workers, positions, self.labels.device)
        return Pending(self.rows, self.workers, positions, pin=self.labels.is_cuda)

    def take(self, index: Tensor) -> Tensor:
        return self.begin(index).result().to(self.labels.device)

    def look(self, index: Tensor) -> Tensor:
        return self.take(index)

    def chunks(self, rows: int) -> Iterator[Tensor]:
        yield from self.groups(torch.split(torch.arange(len(self)), rows))

    def groups(self, indices: Sequence[Tensor]) -> Generator[Tensor]:
        """The images at one index (n,) after the other; while some are in use, the next ones are read."""
        begun = [self.begin(index) for index in indices[:1]]
        try:
            for number in range(len(indices)):
                begun += [self.begin(index) for index in indices[number + 1 : number + 2]]
                yield begun.pop(0).result().to(self.labels.device)
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
