"""Two and three data-parallel processes against one.

In float64: what several processes sum up in another order than one differs by rounding, and in float32 that is enough
to break a tie or to cross a threshold, after which two sound runs differ visibly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.utils._pytree import tree_map

from ..method import Batch, Method
from ..networks.shared_norm import share_statistics
from ..parts.teacher import Average
from ..training.optimizer import make_optimizer
from ..training.schedule import Plan
from ..training.step import make_step
from .case import Case, own_share
from .checks import check_compiled

WORLDS = (2, 3)
STEPS = 20
TOLERANCE = 1e-12  # relative and absolute


def check_replicas(cls: type[Method], *, projector: Mapping[str, Any] | None = None, **arguments: Any) -> None:
    """Check that two and three data-parallel processes stay identical and do together what one process does.

    Starts processes, so `cls` must be importable (not local to a function), and a script needs the usual
    `if __name__ == "__main__":`. The arguments are those of `check_method`. All is computed in float64, and `.float()`
    gives that too; a method that asks for `torch.float32` by name cannot be checked.
    """
    (problem,) = compare_replicas([Case(cls, arguments, projector)])
    if problem:
        raise AssertionError(problem)


def compare_replicas(cases: Sequence[Case], worlds: Sequence[int] = WORLDS) -> list[str | None]:
    """What `check_replicas` finds wrong with each of several cases, for the price of one start of the processes."""
    with TemporaryDirectory() as name:
        for world in worlds:
            spawn(_train_replica, (world, name, list(cases)), nprocs=world)  # type: ignore[no-untyped-call]
        return [_judge(case, worlds, f"{name}/{number}") for number, case in enumerate(cases)]


def compare_compiled_replicas(cases: Sequence[Case], world: int = 2) -> list[str | None]:
    """Why the compiled step of each of several cases differs from the plain one where processes share the work.

    Both run in each of `world` processes, whose messages are part of the compiled graph.
    """
    with TemporaryDirectory() as name:
        spawn(_compile_replica, (world, name, list(cases)), nprocs=world)  # type: ignore[no-untyped-call]
        said = [[Path(f"{name}/{number}-{own}").read_text() for own in range(world)] for number in range(len(cases))]
        return [next(filter(None, problems), None) for problems in said]


@contextmanager
def _one_of(own: int, world: int, name: str) -> Iterator[None]:
    """A process that meets the others at the start and ends with them."""
    torch.set_num_threads(1)
    meeting = f"file://{name}/meeting-{world}"
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world, timeout=timedelta(seconds=120))
    yield
    dist.barrier()  # who leaves early closes connections that the others may still read
    # Everything is on disk. Taking gloo's threads down in good order sometimes aborts a busy machine's process instead.
    os._exit(0)


def _train_replica(own: int, world: int, name: str, cases: list[Case]) -> None:
    with _one_of(own, world, name):
        for number, case in enumerate(cases):
            save_file(_trace(case), f"{name}/{number}-{own}-of-{world}")


def _compile_replica(own: int, world: int, name: str, cases: list[Case]) -> None:
    with _one_of(own, world, name):
        for number, case in enumerate(cases):
            problem = ""
            try:
                check_compiled(case)
            except AssertionError as error:
                problem = str(error)
            Path(f"{name}/{number}-{own}").write_text(problem)


@contextmanager
def _double_precision() -> Iterator[None]:
    """Compute in float64, also where a method, which may be anybody's, says `.float()`."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.object(Tensor, "float", Tensor.double):
            yield
    finally:
        torch.set_default_dtype(usual)


def _trace(case: Case) -> dict[str, Tensor]:
    """The losses of every step and the whole state after the last, of one rank or of a process on its own."""
    method = case.build().double()
    share_statistics(method)
    average = Average(method.net)
    step = make_step(method, make_optimizer(method, Plan(steps=STEPS, lr=0.05)), average)
    losses: dict[str, Tensor] = {}
    for position in range(STEPS):
        batch = Batch(*tree_map(_own_share_in_double, case.batch(position)))
        with _double_precision():
            losses |= {f"losses['{name}'] of step {position}": loss for name, loss in step(batch).losses.items()}
    whole = nn.ModuleDict({"method": method, "average": average})
    state = {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    return {name: tensor.detach().contiguous().clone() for name, tensor in (losses | state).items()}


def _own_share_in_double(part: Tensor) -> Tensor:
    return own_share(part).double() if part.is_floating_point() else own_share(part)


def _judge(case: Case, worlds: Sequence[int], prefix: str) -> str | None:
    advice = "use the memories of `epass.parts`, or `gather_rows` and `mean_over_ranks` of `epass.machine.distributed`."
    alone = _trace(case)
    try:
        for world in worlds:
            ranks = [load_file(f"{prefix}-{own}-of-{world}") for own in range(world)]
            names = [name for name in ranks[0] if name.startswith("losses")]
            losses = {name: torch.stack([found.pop(name) for found in ranks]).mean(0) for name in names}
            for other in ranks[1:]:
                case.keep(ranks[0], other, f"from rank to rank: {advice}")
            case.keep(alone, losses | ranks[0], f"when {world} ranks share the work of one: {advice}", TOLERANCE)
    except AssertionError as error:
        return str(error)
    return None
