"""What a process knows of the others before it meets them, and what a launcher makes of their ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist

from epass.cli.screen import screen
from epass.errors import InputError, PeerError
from epass.machine import launch
from epass.machine.launch import (
    FAILED,
    LOST,
    all_or_none,
    device_kind,
    first_failure,
    is_first_process,
    is_one_of_several,
    join_processes,
    lost_connection,
    restarts,
)
from epass.machine.signals import Stop, Terminated

FACTS = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FACTS.items():
        monkeypatch.setenv(name, value)


def test_a_process_on_its_own_speaks_and_keeps_its_device() -> None:
    assert not is_one_of_several()
    assert is_first_process()
    assert restarts() == 0
    assert join_processes("auto") == "auto"
    assert not dist.is_initialized()


def test_a_rank_of_some_other_program_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not is_one_of_several()
    assert is_first_process()
    assert restarts() == 0


@pytest.mark.usefixtures("second")
def test_the_second_process_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_one_of_several()
    assert not is_first_process()
    screen().print("anything")
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("RANK", "0")
    assert is_first_process()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert restarts() == 2


@pytest.mark.parametrize(
    ("device", "there", "sentence"),
    [
        ("cuda", 1, "4 processes need a GPU each, and there is 1 here: use --devices 1, or --device cpu."),
        ("auto", 2, "4 processes need a GPU each, and there are 2 here: use --devices 2, or --device cpu."),
        ("cuda:1", 8, "'cuda:1' is one device, and 4 processes need one each: use --device cuda or --device cpu."),
    ],
)
def test_more_processes_than_gpus(device: str, there: int, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    with pytest.raises(InputError) as found:
        device_kind(device, 4)
    assert str(found.value) == sentence
    assert device_kind("cpu", 4) == "cpu"
    assert device_kind("cuda", there) == "cuda"


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        ([0, 0], (0, 0)),
        ([0, 2], (1, 2)),
        ([LOST, 2, LOST], (1, 2)),
        ([143, 143], (0, 143)),
        ([LOST, -9], (1, -9)),
        ([LOST, LOST], (0, LOST)),
    ],
)
def test_the_cause_is_not_a_process_that_only_lost_the_others(codes: list[int], wanted: tuple[int, int]) -> None:
    assert first_failure(codes) == wanted


def test_processes_do_not_outlive_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.2)
    started = time.monotonic()
    programs = ["import sys; sys.exit(3)", "import time; time.sleep(600)"]
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    assert launch.wait_for_all(processes) == [3, LOST], "the second one is not why they ended"
    assert time.monotonic() - started < 300


def test_what_a_lost_connection_looks_like() -> None:
    assert lost_connection(PeerError())
    assert lost_connection(dist.DistBackendError("NCCL error"))
    assert lost_connection(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
    assert not lost_connection(RuntimeError("shapes do not match"))
    assert not lost_connection(ValueError("gloo"))


@pytest.mark.usefixtures("second")
def test_a_process_stops_when_another_one_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter([0.0, 143.0, 130.0])
    monkeypatch.setattr("epass.machine.distributed.largest_over_ranks", lambda mine: max(mine, next(others)))
    stop = Stop()
    stop()
    with pytest.raises(Terminated):
        stop()
    with pytest.raises(KeyboardInterrupt) as found:
        stop()
    assert type(found.value) is KeyboardInterrupt


@pytest.mark.usefixtures("second")
def test_a_process_whose_parent_is_gone_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop()
    stop()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(Terminated):
        stop()


def test_who_has_met_the_others_does_not_meet_them_again(second: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "has_joined", lambda: True)
    assert join_processes("cpu") == "cpu"


@pytest.mark.usefixtures("second")
def test_a_process_that_asks_whether_to_stop_hears_that_another_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.machine.distributed.largest_over_ranks", lambda mine: max(mine, FAILED - 700))
    with pytest.raises(PeerError):
        Stop()()


@pytest.mark.parametrize(
    ("others", "problem", "wanted"),
    [
        (0.0, None, None),
        (0.0, ValueError(), ValueError),
        (143.0, ValueError(), ValueError),  # asked to stop meanwhile
        (FAILED - 2, ValueError(), ValueError),  # the first that fails says why
        (FAILED - 0, ValueError(), PeerError),
        (FAILED - 0, None, PeerError),
        (FAILED - 2, None, PeerError),
        (1.0, ValueError(), ValueError),  # they end because we said so before
        (FAILED - 0, PeerError(), PeerError),
    ],
)
def test_one_of_those_that_fail_says_why(
    others: float, problem: Exception | None, wanted: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "has_joined", lambda: True)
    monkeypatch.setattr("epass.machine.distributed.rank", lambda: 1)
    said = []

    def largest(mine: float) -> float:
        said.append(mine)
        return max(mine, others)

    monkeypatch.setattr("epass.machine.distributed.largest_over_ranks", largest)
    with nullcontext() if wanted is None else pytest.raises(wanted), all_or_none():
        if problem is not None:
            raise problem
    assert len(said) == 1, "each process says one thing"
    if isinstance(problem, PeerError):
        assert said[0] < FAILED - 10_000, "one that follows is not taken for one that knows why"
