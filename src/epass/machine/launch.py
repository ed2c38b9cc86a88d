"""Several processes that share one piece of work: how they are started, find each other, and end together."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from ..errors import InputError, PeerError

TIMEOUT = timedelta(minutes=30)  # a process that is dead is noticed at once; this is for one that hangs
GRACE = 20.0  # seconds that the others have to end by themselves when one has failed
LOST = 75  # the exit code of a process that ends because another one did
FAILED = 1e9  # less its rank: what a process says that knows why it cannot go on
_FOLLOWS = 1.0  # what one says that ends because another one has failed
DEVICES = "EPASS_DEVICES"  # in the environment: how many processes `--devices` asked for


def is_one_of_several() -> bool:
    """Whether torchrun, or `start_processes`, started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))


def is_first_process() -> bool:
    """Whether this process tells people how it is going: the first of several does."""
    return not is_one_of_several() or os.environ["RANK"] == "0"


def restarts() -> int:
    """How often torchrun started the same command line again after a process died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if is_one_of_several() else 0


def devices_asked() -> int | None:
    """What `--devices` said where it started this process."""
    return int(os.environ[DEVICES]) if is_one_of_several() and DEVICES in os.environ else None


def has_joined() -> bool:
    """Whether this process talks to others."""
    return "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_initialized()


def join_processes(device: str) -> str:
    """Meet the other processes, if the environment names some; the device of this one."""
    if not is_one_of_several():
        return device
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    local = int(os.environ["LOCAL_RANK"])
    kind = device_kind(device, int(os.environ.get("LOCAL_WORLD_SIZE", local + 1)))
    if kind == "cuda":
        torch.cuda.set_device(local)
    if has_joined():
        return f"cuda:{local}" if kind == "cuda" else kind
    store, own, world = next(rendezvous("env://", timeout=TIMEOUT))
    # Where torchrun keeps its store over a restart, the addresses of dead processes are still in it.
    store = PrefixStore(f"attempt {restarts()}", store)
    # What hosts tell each other is on the CPU, so that no device is waited for.
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=own, world_size=world, timeout=TIMEOUT)
    return f"cuda:{local}" if kind == "cuda" else kind


def device_kind(device: str, count: int) -> str:
    """The kind of device that `count` processes of this machine have one each of, or a sentence why they cannot."""
    import torch

    from .device import choose_device

    place = choose_device(device)
    if place.index is not None or place.type == "mps":
        raise InputError(
            f"'{device}' is one device, and {count} processes need one each: use --device cuda or --device cpu."
        )
    if place.type == "cuda" and count > torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise InputError(
            f"{count} processes need a GPU each, and there {'is' if there == 1 else 'are'} {there} here: use --devices "
            f"{there}, or --device cpu."
        )
    return place.type


@contextmanager
def all_or_none() -> Iterator[None]:
    """All processes pass this, or none: the first that fails says why, and the others end quietly.

    For work in which they do not talk to each other, but for a `Stop` that others may call for it: this one is told.
    """
    if not has_joined():
        yield
        return
    from .distributed import largest_over_ranks, rank

    try:
        yield
    except PeerError:
        largest_over_ranks(_FOLLOWS)
        raise
    except Exception as problem:
        if largest_over_ranks(FAILED - rank()) > FAILED - rank():
            raise PeerError from problem
        raise
    if largest_over_ranks(0):
        raise PeerError


def start_processes(count: int, device: str) -> list[int]:
    """Run the command line of this process in `count` processes that work together; their exit codes."""
    from torch._C._distributed_c10d import TCPStore

    device_kind(device, count)
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(meeting.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # they find `meeting`, and open none
        "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        DEVICES: str(count),
    }
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "epass", *sys.argv[1:]],
            env={**threads, **os.environ, **shared, "RANK": str(number), "LOCAL_RANK": str(number)},
            start_new_session=True,  # a signal of the terminal reaches them through us, once
        )
        for number in range(count)
    ]
    with passing_on(processes):
        return wait_for_all(processes)


@contextmanager
def passing_on(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Hand on the signals that end a process, except one that whoever started us has switched off."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        for process in processes:
            process.send_signal(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, hand_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The exit codes; once one process has failed, the others do not live much longer, and only lost it."""
    deadline, killed = None, []
    while any(process.poll() is None for process in processes):
        if deadline is None and any(process.returncode for process in processes):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            deadline, killed = math.inf, [process for process in processes if process.poll() is None]
            for process in killed:
                process.kill()
        time.sleep(0.05)
    return [LOST if process in killed else process.returncode for process in processes]


def first_failure(codes: Sequence[int]) -> tuple[int, int]:
    """The process that made a run fail, or the first one, and its exit code: not one that only lost the others."""
    failed = [(number, code) for number, code in enumerate(codes) if code]
    return min(failed, key=lambda found: (found[1] == LOST, found[0]), default=(0, 0))


def run_together(count: int, device: str, again: str) -> tuple[int, str]:
    """Have this command line carried out by several processes; the exit code, and who was ended by a signal.

    `again` says which command goes on then.
    """
    number, code = first_failure(start_processes(count, device))
    if code >= 0:
        return code, ""
    name = signal.Signals(-code).name
    return 128 - code, f"process {number} was ended by {name}; {again} goes on."


@contextmanager
def exiting_at_once() -> Iterator[None]:
    """End one of several processes at once, with the exit code that it would have.

    Taking the threads of a process group down in good order sometimes aborts the process instead.
    """
    if not is_one_of_several():
        yield
        return
    code: object = 0
    try:
        yield
    except SystemExit as end:
        code = end.code
    except BaseException as problem:
        code = LOST if lost_connection(problem) else 1
        if code != LOST:
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def lost_connection(problem: BaseException) -> bool:
    """Whether this is what a process sees of the end of another one."""
    if isinstance(problem, PeerError):
        return True
    from torch.distributed import DistError

    return isinstance(problem, DistError) or (isinstance(problem, RuntimeError) and "gloo" in str(problem))
