"""The feed of a run whose images are on disk: those of the coming steps are read while a step computes.

Which images a step sees is a function of (seed, step), so the coming steps can be asked at any time: nothing here has
to be saved for a resumed run, and neither the number of threads nor how far they are ahead can change a batch.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ..images import ImageSource
from .disk import Pending, StreamedImages
from .feed import Feed, Selection

UNFINISHED = 2  # batches that a GPU may still have to make when the host goes on: enough to keep it busy


class Lookahead(Feed):
    """A `Feed` whose `select` brings the pixels along, so that what a CUDA graph records need not read files.

    Args:
        *sources: The arguments of `Feed`.
        ahead: For how many steps after the current one images are read.
        **settings: Those of `Feed`.
    """

    def __init__(self, *sources: Any, ahead: int = 2, **settings: Any) -> None:
        super().__init__(*sources, **settings)
        self.ahead = ahead
        self._coming: dict[int, tuple[Pending | Tensor, ...]] = {}  # by step
        self._copies: torch.cuda.Stream | None = None
        self._unfinished: deque[tuple[torch.cuda.Event, Selection]] = deque()

    @property
    def index_device(self) -> torch.device:
        return torch.device("cpu")  # where the files are opened

    def select(self, step: int) -> Selection:
        self._prepare(range(step, step + 1 + self.ahead))
        labeled, unlabeled = (
            images.result() if isinstance(images, Pending) else images for images in self._coming.pop(step)
        )
        selection = super().select(step)._replace(pixels=(labeled, unlabeled))
        return self._to_gpu(selection) if self.device.type == "cuda" else selection

    def _prepare(self, steps: range) -> None:
        """Begin to read the images of these steps, and give up all others that were begun."""
        for step in [step for step in self._coming if step not in steps]:
            for images in self._coming.pop(step):
                if isinstance(images, Pending):
                    images.cancel()
        for step in steps:
            if step not in self._coming:
                pairs = zip((self.labeled, self.unlabeled), self.rows(step), strict=True)
                self._coming[step] = tuple(_begin(source, index) for source, index in pairs)

    def _to_gpu(self, selection: Selection) -> Selection:
        """Copy beside what the GPU still works on; the stream that makes the batch waits for it.

        The copy that arrives belongs to the stream of the copies, and to that of the batches until they have used it;
        the page-locked original is kept until it has been copied.
        """
        batches = torch.cuda.current_stream(self.device)
        if self._copies is None:
            self._copies = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._copies):
            arrived: Selection = tree_map(lambda tensor: tensor.to(self.device, non_blocking=True), selection)
        batches.wait_stream(self._copies)
        for tensor in tree_leaves(arrived):
            tensor.record_stream(batches)
        mark = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        mark.record(batches)
        self._unfinished.append((mark, selection))
        if len(self._unfinished) > UNFINISHED:
            self._unfinished.popleft()[0].synchronize()
        return arrived

    def close(self) -> None:
        """Give up what was begun and end the threads; a later step starts them again."""
        self._coming.clear()
        for source in (self.labeled, self.unlabeled):
            if isinstance(source, StreamedImages):
                source.workers.close()


def _begin(source: ImageSource, index: Tensor) -> Pending | Tensor:
    if isinstance(source, StreamedImages):
        return source.begin(index)
    return source.take(index.to(source.labels.device))
