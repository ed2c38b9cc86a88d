"""Two data-parallel processes against one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any
from warnings import simplefilter

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from ..method import Batch, Method
from ..parts.teacher import Average
from ..train.optimizer import trainable
from ..train.step import make_step
from .case import Case, snapshot
from .checks import TOLERANCE


def check_replicas(cls: type[Method], *, projector: Mapping[str, Any] | None = None, **arguments: Any) -> None:
    """Check that two data-parallel processes stay identical and do together what one process does.

    Starts two processes, so `cls` must be importable (not local to a function), and a script needs the usual
    `if __name__ == "__main__":`. The arguments are those of `check_method`.
    """
    (problem,) = compare_replicas([Case(cls, arguments, projector)])
    if problem:
        raise AssertionError(problem)


def compare_replicas(cases: Sequence[Case]) -> list[str | None]:
    """What `check_replicas` finds wrong with each of several cases, for the price of one start of two processes."""
    with TemporaryDirectory() as name:
        spawn(_train_replica, (name, list(cases)), nprocs=2)  # type: ignore[no-untyped-call]
        return [_judge(case, f"{name}/{number}") for number, case in enumerate(cases)]


def _train_replica(rank: int, name: str, cases: list[Case]) -> None:
    torch.set_num_threads(1)
    simplefilter("ignore", FutureWarning)  # names that torch renames, but not in the oldest release we support
    meeting = f"file://{name}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    for number, case in enumerate(cases):
        for kind, batch_norm in (("norm", True), ("plain", False)):
            save_file(_trace(case, batch_norm=batch_norm, rank=rank), f"{name}/{number}-{kind}-{rank}")
    dist.barrier()  # who leaves early closes connections that the other may still read
    # Everything is on disk. Taking gloo's threads down in good order sometimes aborts a busy machine's process instead.
    os._exit(0)


def _trace(case: Case, *, batch_norm: bool, rank: int | None = None) -> dict[str, Tensor]:
    """The losses of four steps and the state after them, of one rank or of a process on its own."""
    method = case.build(batch_norm=batch_norm)
    parallel = None if rank is None else DistributedDataParallel(method, broadcast_buffers=False)
    # No momentum and a small rate, so that rounding is not amplified to a visible difference
    step = make_step(method, torch.optim.SGD(trainable(method), lr=0.05), Average(method.net), forward=parallel)
    losses: dict[str, Tensor] = {}
    for position in range(4):
        batch = case.batch(position)
        if rank is not None:
            batch = Batch(*tree_map(lambda rows: rows[rank::2] if rows.ndim else rows, batch))
        losses |= {f"losses['{name}'] of step {position}": loss for name, loss in step(batch).losses.items()}
    return {name: tensor.contiguous().clone() for name, tensor in (losses | snapshot(method)).items()}


def _judge(case: Case, prefix: str) -> str | None:
    advice = "use the memories of `epass.parts`, or `gather_rows` and `mean_over_ranks` of `epass.distributed`."
    try:
        for kind in ("norm", "plain"):
            one, two = (load_file(f"{prefix}-{kind}-{rank}") for rank in range(2))
            losses = {name: (one.pop(name) + two.pop(name)) / 2 for name in list(one) if name.startswith("losses")}
            case.keep(one, two, f"from rank to rank: {advice}")
        if case.method.not_replicated:
            return None
        # Without BatchNorm, whose statistics are those of each rank's rows, two ranks must do what one process does.
        alone = _trace(case, batch_norm=False)
        case.keep(alone, losses | one, f"when two ranks share the work of one: {advice}", TOLERANCE)
    except AssertionError as error:
        return str(error)
    return None
