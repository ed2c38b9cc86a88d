from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from epass.training.writer import Snapshot, Writer

NEVER = 1e9  # minutes


class Disk:
    """A disk that takes its time: a write waits until `done` is set."""

    def __init__(self) -> None:
        self.done, self.written = threading.Event(), list[int]()

    def write(self, number: int) -> Callable[[object], None]:
        def work(_: object) -> None:
            assert self.done.wait(600)
            self.written.append(number)

        return work


def fail(_: object) -> None:
    raise OSError(28, "No space left on device", "a file")


def test_training_goes_on_while_the_disk_is_slow_and_the_end_waits_for_it() -> None:
    disk = Disk()
    with Writer(NEVER) as writer:
        writer.start({}, disk.write(1))
        assert not writer.is_due()
        assert disk.written == [], "here steps are done"
        disk.done.set()
    assert disk.written == [1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_one_write_at_a_time_in_order() -> None:
    running, most = set[int](), list[int]()

    def write(number: int) -> Callable[[object], None]:
        def work(_: object) -> None:
            running.add(number)
            most.append(len(running))
            running.discard(number)

        return work

    with Writer(NEVER) as writer:
        for number in range(20):
            writer.start({}, write(number))
    assert most == [1] * 20


@pytest.mark.parametrize("call", ["start", "wait", "is_due", "end"])
def test_what_went_wrong_is_raised_by_the_next_call_once(call: str) -> None:
    def use() -> None:
        with Writer(NEVER) as writer:
            writer.start({}, fail)
            while not writer._writing.done():  # type: ignore[union-attr]
                time.sleep(0.001)
            if call == "start":
                writer.start({}, print)
            elif call != "end":
                getattr(writer, call)()

    with pytest.raises(OSError, match="No space left"):
        use()


@pytest.mark.parametrize(("error", "raised"), [(ZeroDivisionError, ZeroDivisionError), (KeyboardInterrupt, OSError)])
def test_an_error_of_the_training_goes_first_but_a_stop_hides_nothing(
    error: type[BaseException], raised: type[BaseException]
) -> None:
    def use() -> None:
        with Writer(NEVER) as writer:
            writer.start({}, fail)
            raise error

    with pytest.raises(raised):
        use()


def test_time_is_counted_from_the_last_write_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: pytest.fail("this clock can be set back"))
    disk = Disk()
    with Writer(2) as writer:
        assert not writer.is_due()
        now[0] += 119.9
        assert not writer.is_due()
        now[0] += 0.2
        assert writer.is_due()
        writer.start({}, disk.write(1))
        now[0] += 500
        assert not writer.is_due(), "a slow disk gets no second one"
        disk.done.set()
        writer.wait()
        assert writer.is_due()
        writer.start({}, disk.write(2))
        writer.wait()
        assert not writer.is_due()


def test_a_copy_is_taken_when_the_one_before_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, tensor, written = Disk(), torch.zeros(()), []
    monkeypatch.setattr("epass.training.writer._copy", lambda tensor: (written.append(list(disk.written)), tensor)[1])
    with Writer(NEVER) as writer:
        writer.start({"a": tensor}, disk.write(1))
        threading.Timer(0.05, disk.done.set).start()
        writer.start({"a": tensor}, disk.write(2))
    assert written == [[], [1]], "there is one copy at most"


def test_a_snapshot_does_not_follow_what_it_was_taken_of() -> None:
    tensor, parameter = torch.arange(4.0), torch.nn.Parameter(torch.ones(2, 3))
    snapshot = Snapshot({"a": tensor, "b": parameter, "c": tensor[::2]})
    tensor += 1
    with torch.no_grad():
        parameter.mul_(5)
    fetched = snapshot.fetch()
    assert fetched["a"].tolist() == [0, 1, 2, 3]
    assert fetched["b"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert not fetched["b"].requires_grad
    assert fetched["c"].tolist() == [0, 2]


def test_without_room_for_a_copy_on_the_device_it_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensor: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("epass.training.writer._copy", full)
    assert Snapshot({"a": torch.arange(3)}).fetch()["a"].tolist() == [0, 1, 2]


@pytest.mark.gpu
def test_on_cuda_the_copy_is_that_of_its_moment() -> None:
    tensor = torch.zeros(1 << 22, device="cuda")
    planes = torch.randn(8, 3, 5, 5, device="cuda").to(memory_format=torch.channels_last)
    mixed = {"a": tensor, "b": torch.arange(3), "c": planes}
    for number in range(1, 6):
        tensor += 1
        found: list[dict[str, torch.Tensor]] = []
        with Writer(NEVER) as writer:
            writer.start(mixed, found.append)
            for _ in range(50):
                tensor += 1
            tensor -= 50
        [fetched] = found
        assert all(value.device.type == "cpu" for value in fetched.values())
        assert (fetched["a"] == number).all()
        assert torch.equal(fetched["b"], mixed["b"])
        assert torch.equal(fetched["c"], mixed["c"].cpu())
