from __future__ import annotations

import pytest
import torch
from torch import Tensor

from epass.parts.memory import LastClass, Queue, Table


def numbered(start: int, count: int) -> dict[str, Tensor]:
    numbers = torch.arange(start, start + count, dtype=torch.float)
    return {"embedding": torch.stack([numbers, -numbers], 1), "label": numbers}


@pytest.mark.parametrize("overrun", ["wrap", "skip"])
@pytest.mark.parametrize("size", [1, 4, 5, 6, 12])
def test_a_queue_is_a_ring(size: int, overrun: str) -> None:
    """Batches smaller and larger than the ring, its size a multiple of theirs or not."""
    queue = Queue(size, overrun=overrun, embedding=(2,), label=())
    ring, pointer, start = [0.0] * size, 0, 1
    for count in (3, 3, 3, 2, 7, 1, 13, 5, 3):
        queue.push(**numbered(start, count))
        for offset in range(count):
            slot = pointer + offset
            if slot < size or overrun == "wrap":
                ring[slot % size] = float(start + offset)
        pointer, start = (pointer + count) % size, start + count
        assert queue["label"].tolist() == ring
        assert queue["embedding"].tolist() == [[value, -value] for value in ring]


def test_a_wrapping_queue_holds_the_last_rows() -> None:
    queue = Queue(5, label=())
    for start in range(0, 21, 3):
        queue.push(label=torch.arange(start, start + 3).float())
        assert set(queue["label"].tolist()) >= set(range(max(0, start - 2), start + 3))
    assert sorted(queue["label"].tolist()) == [16, 17, 18, 19, 20]


def test_a_skipping_queue_drops_rows_yet_counts_them() -> None:
    queue = Queue(5, overrun="skip", label=())
    queue.push(label=torch.tensor([1.0, 2, 3]))
    queue.push(label=torch.tensor([4.0, 5, 6]))  # 6 overruns; the next slot is 1
    assert queue["label"].tolist() == [1, 2, 3, 4, 5]
    queue.push(label=torch.tensor([7.0, 8, 9]))
    assert queue["label"].tolist() == [1, 7, 8, 9, 5]


def test_a_queue_starts_with_zeros_and_its_state_is_in_the_state_dict() -> None:
    queue = Queue(4, embedding=(2,), label=())
    assert not queue["embedding"].any()
    assert queue["embedding"].dtype == torch.float32
    queue.push(**numbered(1, 3))
    other = Queue(4, embedding=(2,), label=())
    other.load_state_dict(queue.state_dict())
    for ring in (queue, other):
        ring.push(**numbered(4, 3))
    assert queue["label"].tolist() == other["label"].tolist() == [5, 6, 3, 4]


def test_a_queue_keeps_no_gradients_and_no_views_of_what_is_pushed() -> None:
    queue, rows = Queue(2, embedding=(1,)), torch.ones(2, 1, requires_grad=True)
    queue.push(embedding=rows * 2)
    assert not queue["embedding"].requires_grad
    plain = torch.ones(2, 1)
    queue.push(embedding=plain)
    plain.fill_(5)
    assert queue["embedding"].tolist() == [[1], [1]]


def test_a_queue_wants_every_field() -> None:
    with pytest.raises(AssertionError):
        Queue(4, embedding=(2,), label=()).push(label=torch.ones(2))


def test_a_queue_remembers_reduced_precision_in_full() -> None:
    queue = Queue(2, label=())
    queue.push(label=torch.tensor([1.5, 2.5], dtype=torch.bfloat16))
    assert queue["label"].dtype == torch.float32
    assert queue["label"].tolist() == [1.5, 2.5]


def test_a_table_keeps_the_last_of_repeated_rows() -> None:
    table = Table(5, embedding=(2,), label=())
    index = torch.tensor([3, 0, 3, 1, 0, 3])
    table.write(index, embedding=torch.arange(12.0).view(6, 2), label=torch.arange(6))
    assert table["embedding"].tolist() == [[8, 9], [6, 7], [0, 0], [10, 11], [0, 0]]
    assert table["label"].tolist() == [4, 3, 0, 5, 0]


def test_a_table_leaves_other_rows_and_fields_alone() -> None:
    table = Table(4, embedding=(1,), label=())
    table.write(torch.arange(4), embedding=torch.ones(4, 1), label=torch.tensor([1, 2, 3, 4]))
    table.write(torch.tensor([2]), embedding=torch.full((1, 1), 9.0))
    assert table["embedding"].tolist() == [[1], [1], [9], [1]]
    assert table["label"].tolist() == [1, 2, 3, 4]
    assert set(table.state_dict()) == {"embedding", "label"}


def test_a_table_agrees_with_a_loop_on_random_writes() -> None:
    generator = torch.Generator().manual_seed(0)
    table, rows = Table(6, embedding=(3,)), [[0.0] * 3 for _ in range(6)]
    for _ in range(10):
        index = torch.randint(6, (9,), generator=generator)
        values = torch.randn(9, 3, generator=generator)
        table.write(index, embedding=values)
        for i, row in zip(index.tolist(), values.tolist(), strict=True):
            rows[i] = row
        assert table["embedding"].tolist() == rows


def test_last_classes_and_their_counts_are_those_of_a_recount() -> None:
    generator = torch.Generator().manual_seed(0)
    memory, slow = LastClass(6, 3), [3] * 6  # 3 stands for none
    assert memory.classes.tolist() == slow
    assert memory.counts.tolist() == [0, 0, 0, 6]
    for _ in range(30):
        index = torch.randint(6, (5,), generator=generator)  # repeats more often than not
        classes, mask = torch.randint(3, (5,), generator=generator), (torch.rand(5, generator=generator) > 0.6).float()
        memory.write(index, classes, mask)
        for i, c, given in zip(index.tolist(), classes.tolist(), mask.tolist(), strict=True):
            slow[i] = c if given else slow[i]
        assert memory.classes.tolist() == slow
        assert memory.counts.tolist() == [slow.count(c) for c in range(4)]
    assert memory.classes.dtype == memory.counts.dtype == torch.int64


def test_of_a_repeated_sample_the_last_class_that_is_given_counts() -> None:
    memory = LastClass(2, 3)
    memory.write(torch.tensor([1, 1, 1, 0]), torch.tensor([0, 2, 1, 1]), torch.tensor([1.0, 1, 0, 0]))
    assert memory.classes.tolist() == [3, 2]
    assert memory.counts.tolist() == [0, 0, 1, 1]
