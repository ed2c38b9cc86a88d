"""Checkpoints beside the training: a copy is taken between two steps, and a thread writes it while steps go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

import torch
from torch import Tensor


class Snapshot:
    """A copy of tensors as they are now. On CUDA it is taken on the device, and fetched while steps go on."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        try:
            self.tensors = {name: _copy(tensor) for name, tensor in state.items()}
        except torch.OutOfMemoryError:  # no room for a second one: the training waits for the transfer
            self.tensors = {name: tensor.detach().cpu() for name, tensor in state.items()}
        device = next((tensor.device for tensor in self.tensors.values() if tensor.is_cuda), None)
        self.taken = None if device is None else torch.cuda.current_stream(device).record_event()

    def fetch(self) -> dict[str, Tensor]:
        """The copy on the CPU."""
        if self.taken is None:
            return self.tensors
        stream = torch.cuda.Stream(next(tensor.device for tensor in self.tensors.values() if tensor.is_cuda))  # type: ignore[no-untyped-call]
        stream.wait_event(self.taken)
        with torch.cuda.stream(stream):
            fetched = {name: _to_host(tensor) for name, tensor in self.tensors.items()}
        stream.synchronize()
        return fetched


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone() if tensor.is_cuda else tensor.detach().to("cpu", copy=True)


def _to_host(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


class Writer:
    """A thread for one checkpoint at a time. What goes wrong in it is raised by the next call from the training.

    Args:
        minutes: How long to train between two checkpoints.
    """

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[object] | None = None
        self._last = time.perf_counter()  # a clock that nobody sets

    def start(self, state: Mapping[str, Tensor], write: Callable[[dict[str, Tensor]], object]) -> None:
        """Have a copy of `state` written, which is taken when no other is being written: there is one at most."""
        self.wait()
        copy = Snapshot(state)
        self._writing, self._last = self._pool.submit(lambda: write(copy.fetch())), time.perf_counter()

    def wait(self) -> None:
        """Until nothing is being written any more."""
        if self._writing is not None:
            wait([self._writing])
            ended, self._writing = self._writing, None
            ended.result()

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint. While one is being written, it is not."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._writing is None and time.perf_counter() - self._last >= 60 * self.minutes

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except Exception:
            if not isinstance(error, Exception):  # else that one came first
                raise
        finally:
            self._pool.shutdown(wait=self._writing is None)  # it is not, where a second signal ended the waiting
