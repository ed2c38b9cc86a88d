"""Images that do not fit into memory: they stay in their files and are decoded shortly before their step.

Which images a step sees is a function of (seed, step), so the coming steps can be asked at any time: nothing here has
to be saved for a resumed run, and neither the number of threads nor how far they are ahead can change a batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from ..method import Batch
from .decode import decode
from .feed import Feed

Decoding = dict[int, "Future[Tensor]"]  # by position


class FileImages:
    """An `ImageSource` of image files, decoded by a few threads as `decode` does; close it when it is done with.

    A file that cannot be read is reported by the `take` that wants it, not earlier, and by nobody if none does.

    Args:
        paths: The image files.
        labels: (N,) int64, -1 = unknown; `take` returns the images on the same device.
        image_size: Side of the square images.
        workers: How many threads decode.
    """

    def __init__(self, paths: Sequence[Path], labels: Tensor, image_size: int, workers: int | None = None) -> None:
        assert len(paths) == len(labels)
        self.paths, self.labels, self.image_size = tuple(paths), labels, image_size
        # Pillow lets other threads run while it decodes; more than a few of them only wait for each other.
        self._pool = ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1), thread_name_prefix="decode")
        self._coming: dict[tuple[int, ...], Decoding] = {}  # by the positions of a batch

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Tensor) -> Tensor:
        """The images at `index` (n,), as uint8 (n, 3, S, S); no waiting, if they were prepared early enough."""
        positions = tuple(index.tolist())
        decoding = self._coming.pop(positions, None) or self._begin(positions)
        if not positions:
            return torch.empty(0, 3, self.image_size, self.image_size, dtype=torch.uint8, device=self.labels.device)
        return torch.stack([decoding[position].result() for position in positions]).to(self.labels.device)

    def prepare(self, batches: Sequence[Tensor]) -> None:
        """Begin to decode these batches, the first ones first, and give up all others that were begun."""
        wanted = [tuple(index.tolist()) for index in batches]
        for positions in self._coming.keys() - set(wanted):
            for future in self._coming.pop(positions).values():
                future.cancel()
        for positions in wanted:
            if positions not in self._coming:
                self._coming[positions] = self._begin(positions)

    def _begin(self, positions: tuple[int, ...]) -> Decoding:
        # a batch may hold an image several times, above all one of few labeled images
        return {
            position: self._pool.submit(decode, self.paths[position], self.image_size)
            for position in dict.fromkeys(positions)
        }

    def close(self) -> None:
        """Give up what was begun and end the threads."""
        self._pool.shutdown(cancel_futures=True)
        self._coming.clear()

    def __enter__(self) -> FileImages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Lookahead:
    """The batches of a `Feed`; while a step computes, the files of the next `steps` steps are decoded."""

    def __init__(self, feed: Feed, steps: int = 2) -> None:
        self.feed, self.steps = feed, steps

    def __call__(self, step: int) -> Batch:
        """What the feed returns for this step."""
        coming = [self.feed.select(number) for number in range(step, step + self.steps + 1)]
        for source, batches in (
            (self.feed.labeled, [selection.labeled_index for selection in coming]),
            (self.feed.unlabeled, [selection.unlabeled_index for selection in coming]),
        ):
            if isinstance(source, FileImages):
                source.prepare(batches)
        return self.feed(step)
