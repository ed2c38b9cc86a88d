"""Training many runs: one after the other here, or side by side with a process for each device."""

from __future__ import annotations

import multiprocessing
import pickle
import shlex
import signal
import sys
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
from ..recipe import Recipe
from .settings import fitting
from .stopping import Stop, Terminated, stop_signals

if TYPE_CHECKING:
    import torch

    from ..data import Dataset


class News(NamedTuple):
    """What is heard of a run: how far it is, a warning, or that it ended and why."""

    folder: Path
    place: str
    step: int = 0
    warning: str | None = None
    ended: bool = False
    problem: str | None = None  # why it failed


class Worker(NamedTuple):
    """A process that trains on one device, and the way to talk to it."""

    process: SpawnProcess
    place: str


def train_runs(
    jobs: Mapping[Path, Recipe], dataset: Dataset, places: Sequence[torch.device], stop: Stop
) -> Generator[News]:
    """Train every run or go on with it, until `stop` raises; one that fails does not stop the others."""
    if len(places) == 1:
        return train_here(jobs, dataset, places[0], stop)
    return train_apart(jobs, dataset, [str(place) for place in places])


def train_here(jobs: Mapping[Path, Recipe], dataset: Dataset, place: torch.device, stop: Stop) -> Generator[News]:
    """One run after the other in this process."""
    for folder, recipe in jobs.items():
        try:
            for step in train_one(folder, recipe, dataset, place, stop):
                yield News(folder, str(place), step)
        except Exception as problem:  # whatever one method trips over, the others still can be compared
            kind = "" if isinstance(problem, InputError) else f"{type(problem).__name__}: "
            yield News(folder, str(place), ended=True, problem=kind + " ".join(str(problem).split()))
        else:
            yield News(folder, str(place), recipe.plan["steps"], ended=True)


def train_one(folder: Path, recipe: Recipe, dataset: Dataset, place: torch.device, stop: Stop) -> Iterator[int]:
    """Start a run or go on with it, and yield the steps done."""
    import torch

    from ..engine.run import run

    if place.type == "cuda":
        if place.index is not None:
            torch.cuda.set_device(place)  # a CUDA graph is recorded on the current device
        torch.compiler.reset()  # it compiles a function for a few networks only, and there are many runs
    with fitting(recipe.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
        command = shlex.join(["epass", *sys.argv[1:]])
        reports = run(
            recipe, folder, dataset=dataset, device=place, resume=True, allow_leak=True, command=command, stop=stop
        )
        with stop.patiently():
            for report in reports:
                yield report.step
    stop()  # if a signal came when the last step was done


def train_apart(jobs: Mapping[Path, Recipe], dataset: Dataset, places: Sequence[str]) -> Generator[News]:
    """A process for each place; whoever is done takes the next run. Closing the iterator stops all of them."""
    data = pickle.dumps(dataset)  # bytes: torch would put tensors into shared memory, of which containers have little
    waiting, busy = deque(jobs.items()), dict[Connection, tuple[Worker, Path]]()
    crew: dict[Connection, Worker] = {}

    def give_work(channel: Connection) -> None:
        if waiting:
            folder, recipe = waiting.popleft()
            busy[channel] = crew[channel], folder
            with suppress(OSError):  # it just died, which is noticed when it does not answer
                channel.send((folder, recipe))

    try:
        for place in places[: len(jobs)]:
            give_work(hire(crew, place, data, len(places)))
        while busy:
            ready = wait(busy)
            for channel in [channel for channel in busy if channel in ready]:
                worker, folder = busy[channel]
                try:
                    news: News = channel.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    news = News(folder, worker.place, ended=True, problem=describe_end(worker.process.exitcode))
                    del crew[channel]
                yield news
                if news.ended:
                    del busy[channel]
                    if channel not in crew and waiting:
                        channel = hire(crew, worker.place, data, len(places))
                    if channel in crew:
                        give_work(channel)
    finally:
        dismiss(crew, hurry=bool(busy))


def hire(crew: dict[Connection, Worker], place: str, data: bytes, number: int) -> Connection:
    """Start a process for one place and remember it by the way to talk to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, place, data, number, trusted()), name=f"epass on {place}")
    with ctrl_c_ignored():  # a terminal sends it to all processes; what it means is decided here
        process.start()
    theirs.close()
    crew[ours] = Worker(process, place)
    return ours


def dismiss(crew: Mapping[Connection, Worker], *, hurry: bool) -> None:
    """End every process: those that train stop between two steps, unless a second signal comes meanwhile."""
    processes = [worker.process for worker in crew.values()]
    try:
        for channel, process in zip(crew, processes, strict=True):
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


def work(channel: Connection, place: str, data: bytes, number: int, code: Sequence[str] = ()) -> None:
    """What one of `number` processes does: train what it is sent, until nobody is there to send more."""
    trust(*code)
    keep_freed_memory()
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // number))
    dataset = pickle.loads(data)
    try:
        with stop_signals() as stop, warnings.catch_warnings():

            def tell(news: News) -> None:
                try:
                    channel.send(news)
                except OSError:  # whoever started us is gone: stop as on a signal, with a checkpoint
                    stop.asked = Terminated()

            while True:
                folder, recipe = channel.recv()

                def warn(message: Warning | str, *_: Any, where: Path = folder, **__: Any) -> None:
                    tell(News(where, place, warning=str(message)))

                warnings.showwarning = warn
                for news in train_here({folder: recipe}, dataset, torch.device(place), stop):
                    tell(news)
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
