from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from epass.train.window import NotFiniteError
from epass.train.writer import Snapshot, Writer, saving_between_steps

NEVER = 1e9  # minutes


class Disk:
    """A disk that takes its time: a write waits until `done` is set."""

    def __init__(self) -> None:
        self.done, self.written = threading.Event(), list[int]()

    def write(self, number: int) -> Callable[[], None]:
        def work() -> None:
            assert self.done.wait(60)
            self.written.append(number)

        return work


def fail() -> None:
    raise OSError(28, "No space left on device", "a file")


def test_training_goes_on_while_the_disk_is_slow_and_the_end_waits_for_it() -> None:
    disk = Disk()
    with Writer(NEVER) as writer:
        writer.start(disk.write(1))
        assert not writer.is_due()
        assert disk.written == [], "here steps are done"
        disk.done.set()
    assert disk.written == [1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_one_write_at_a_time_in_order() -> None:
    running, most = set[int](), list[int]()

    def write(number: int) -> Callable[[], None]:
        def work() -> None:
            running.add(number)
            most.append(len(running))
            running.discard(number)

        return work

    with Writer(NEVER) as writer:
        for number in range(20):
            writer.start(write(number))
    assert most == [1] * 20


@pytest.mark.parametrize("call", ["start", "wait", "is_due", "end"])
def test_what_went_wrong_is_raised_by_the_next_call_once(call: str) -> None:
    def use() -> None:
        with Writer(NEVER) as writer:
            writer.start(fail)
            while not writer._writing.done():  # type: ignore[union-attr]
                time.sleep(0.001)
            if call == "start":
                writer.start(lambda: None)
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
            writer.start(fail)
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
        writer.start(disk.write(1))
        now[0] += 500
        assert not writer.is_due(), "a slow disk gets no second one"
        disk.done.set()
        writer.wait()
        assert writer.is_due()
        writer.start(disk.write(2))
        writer.wait()
        assert not writer.is_due()


def steps_saved(minutes: float, *, start: int = 0, stop_at: int = 5) -> tuple[list[int], list[int]]:
    saved: list[int] = []
    fed: list[int] = []

    def stop() -> None:
        if len(fed) + start == stop_at:
            raise KeyboardInterrupt

    with Writer(minutes) as writer:

        def save(step: int) -> None:
            writer.start(lambda: saved.append(step))
            writer.wait()

        feed = saving_between_steps(fed.append, stop, start, save, writer)
        with pytest.raises(KeyboardInterrupt):
            list(map(feed, range(start, 10)))
    return saved, fed


def test_checkpoints_come_between_steps_but_not_before_the_first() -> None:
    assert steps_saved(1e-12) == ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
    assert steps_saved(NEVER) == ([5], [0, 1, 2, 3, 4])
    assert steps_saved(1e-12, start=3, stop_at=3) == ([], [])


def test_a_stop_is_not_hidden_by_a_state_that_cannot_be_kept_but_by_a_disk_that_is_full() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    def ruined() -> None:
        raise NotFiniteError

    def use(write: Callable[[], None]) -> None:
        with Writer(NEVER) as writer:
            saving_between_steps(lambda step: step, stop, 0, lambda step: writer.start(write), writer)(1)

    for write, raised in ((ruined, KeyboardInterrupt), (fail, OSError)):
        with pytest.raises(raised):
            use(write)


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

    monkeypatch.setattr("epass.train.writer._copy", full)
    assert Snapshot({"a": torch.arange(3)}).fetch()["a"].tolist() == [0, 1, 2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_copy_is_that_of_its_moment() -> None:
    tensor = torch.zeros(1 << 22, device="cuda")
    planes = torch.randn(8, 3, 5, 5, device="cuda").to(memory_format=torch.channels_last)
    mixed = {"a": tensor, "b": torch.arange(3), "c": planes}
    for number in range(1, 6):
        tensor += 1
        snapshot = Snapshot(mixed)
        for _ in range(50):
            tensor += 1
        tensor -= 50
        found: list[dict[str, torch.Tensor]] = []
        with Writer(NEVER) as writer:
            writer.start(lambda snapshot=snapshot, found=found: found.append(snapshot.fetch()))  # type: ignore[misc]
        [fetched] = found
        assert all(value.device.type == "cpu" for value in fetched.values())
        assert (fetched["a"] == number).all()
        assert torch.equal(fetched["b"], mixed["b"])
        assert torch.equal(fetched["c"], mixed["c"].cpu())
