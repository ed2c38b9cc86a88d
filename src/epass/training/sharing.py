"""What the first rank read from its disk, on all ranks."""

from __future__ import annotations

from safetensors.torch import load, save

from ..machine.distributed import alone, bytes_of_first_rank, of_first_rank, rank, take_from_first_rank
from .checkpoint import RunState, Unreported


def share_start(start: int, progress: RunState, unreported: Unreported) -> int:
    """Give all ranks the first rank's state after `start` steps, and that step. Only it needs to see the run folder."""
    if alone():
        return start
    start = int(of_first_rank(start))
    tensors = progress.tensors()
    take_from_first_rank(tensors.values())
    rest = load(bytes_of_first_rank(save(unreported.tensors())))
    if rank():
        unreported.restore(start, rest, next(iter(tensors.values())).device)
    return start
