"""Training many runs: one after the other here, or side by side with a process for each device."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..extensions import trust, trusted
from ..machine.cpu import keep_freed_memory
from ..machine.signals import Terminated, stop_signals
from ..recipe import Recipe
from .flags import Stop
from .request import fitting

if TYPE_CHECKING:
    from ..data import Dataset


class Update(NamedTuple):
    """What is heard of a run: how far it is, a warning, or that it ended and why."""

    folder: Path
    place: str
    step: int = 0
    warning: str | None = None
    ended: bool = False
    problem: str | None = None  # why it failed
    lost: bool = False  # with its process


class How(NamedTuple):
    """What holds for all runs beside their recipes."""

    command: str = ""  # that was typed, for the record
    anew: bool = False  # throw away the runs that are there; else go on with them


class Worker(NamedTuple):
    """A process that trains on one device."""

    process: SpawnProcess
    place: str


def train_runs(
    jobs: Mapping[Path, Recipe], dataset: Dataset, places: Sequence[str], how: How, stop: Stop
) -> Generator[Update]:
    """Train every run or go on with it, until `stop` raises; one that fails does not stop the others.

    Each place is a device with a process of its own. A single one is used by this process.
    """
    if len(places) == 1:
        return train_here(jobs, dataset, places[0], how, stop)
    return train_apart(jobs, dataset, places, how)


def train_here(jobs: Mapping[Path, Recipe], dataset: Dataset, place: str, how: How, stop: Stop) -> Generator[Update]:
    """One run after the other in this process."""
    for folder, recipe in jobs.items():
        try:
            for step in train_one(folder, recipe, dataset, place, how, stop):
                yield Update(folder, place, step)
        except Exception as problem:  # whatever one method trips over, the others still can be compared
            kind = "" if isinstance(problem, InputError) else f"{type(problem).__name__}: "
            yield Update(folder, place, ended=True, problem=kind + " ".join(str(problem).split()))
        else:
            yield Update(folder, place, recipe.plan["steps"], ended=True)


def train_one(folder: Path, recipe: Recipe, dataset: Dataset, place: str, how: How, stop: Stop) -> Iterator[int]:
    """Start a run or go on with it, and yield the steps done."""
    import torch

    from ..engine.run import run

    device = torch.device(place)
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)  # a CUDA graph is recorded on the current device
        torch.compiler.reset()  # it compiles a function for a few networks only, and there are many runs
    with fitting(recipe.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
        # whoever compares has decided about leaks
        how_often = {"resume": not how.anew, "force": how.anew, "allow_leak": True}
        for report in run(recipe, folder, dataset=dataset, device=place, command=how.command, stop=stop, **how_often):
            yield report.step
    stop()  # if a signal came when the last step was done


def train_apart(jobs: Mapping[Path, Recipe], dataset: Dataset, places: Sequence[str], how: How) -> Generator[Update]:
    """A process for each place; whoever is done takes the next run. Closing the iterator stops all of them."""
    # bytes: torch would put tensors into shared memory, of which containers have little
    order = Order(pickle.dumps(dataset), how, len(places), trusted())
    waiting, busy = deque(jobs.items()), dict[Connection, tuple[Worker, Path]]()
    workers: dict[Connection, Worker] = {}

    def give_work(channel: Connection) -> None:
        if waiting:
            folder, recipe = waiting.popleft()
            busy[channel] = workers[channel], folder
            with suppress(OSError):  # it just died, which is noticed when it does not answer
                channel.send((folder, recipe))

    try:
        for place in places[: len(jobs)]:
            give_work(start_worker(workers, place, order))
        while busy:
            ready = wait(busy)
            for channel in [channel for channel in busy if channel in ready]:
                worker, folder = busy[channel]
                try:
                    update: Update = channel.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    reason = describe_end(worker.process.exitcode)
                    update = Update(folder, worker.place, ended=True, problem=reason, lost=True)
                    del workers[channel]
                yield update
                if update.ended:
                    del busy[channel]
                    if channel not in workers and waiting:
                        channel = start_worker(workers, worker.place, order)
                    if channel in workers:
                        give_work(channel)
    finally:
        end_workers(workers, hurry=bool(busy))


class Order(NamedTuple):
    """What every worker is told when it starts."""

    data: bytes
    how: How
    number: int  # of workers, which share the cores
    code: Sequence[str] = ()  # of the user, which it may load


def start_worker(workers: dict[Connection, Worker], place: str, order: Order) -> Connection:
    """Start a process for one place and remember it by the way to talk to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, place, order), name=f"epass on {place}")
    with ctrl_c_ignored():  # a terminal sends it to all processes; what it means is decided here
        process.start()
    theirs.close()
    workers[ours] = Worker(process, place)
    return ours


def end_workers(workers: Mapping[Connection, Worker], *, hurry: bool) -> None:
    """End every process: those that train stop between two steps, unless a second signal comes meanwhile."""
    processes = [worker.process for worker in workers.values()]
    try:
        for channel, process in zip(workers, processes, strict=True):
            if hurry:
                process.terminate()
            channel.close()
        for process in processes:
            process.join()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.join()
        raise


def describe_end(code: int | None) -> str:
    """Why a process went away without a word."""
    if code is not None and code < 0:
        return f"its process was killed by {signal.Signals(-code).name}; was there enough memory?"
    return f"its process ended with exit code {code}."


def work(channel: Connection, place: str, order: Order) -> None:
    """What a worker does: train what it is sent, until nobody is there to send more."""
    trust(*order.code)
    keep_freed_memory()
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // order.number))
    dataset = pickle.loads(order.data)
    try:
        with stop_signals() as stop, warnings.catch_warnings():

            def tell(update: Update) -> None:
                try:
                    channel.send(update)
                except OSError:  # whoever started us is gone: stop as on a signal, with a checkpoint
                    stop.asked = Terminated()

            while True:
                folder, recipe = channel.recv()

                def warn(message: Warning | str, *_: Any, where: Path = folder, **__: Any) -> None:
                    tell(Update(where, place, warning=str(message)))

                warnings.showwarning = warn
                for update in train_here({folder: recipe}, dataset, place, order.how, stop):
                    tell(update)
    except (EOFError, OSError, KeyboardInterrupt):  # no more work, or a signal
        return


@contextmanager
def ctrl_c_ignored() -> Iterator[None]:
    """What is started here inherits it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
