from __future__ import annotations

import pytest
import torch

from epass.machine.distributed import gather_rows, mean_over_ranks, rank, world_size


def test_one_process_is_alone() -> None:
    assert (rank(), world_size()) == (0, 1)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_one_process_gathers_itself(requires_grad: bool) -> None:
    rows = torch.arange(6.0).view(3, 2).requires_grad_(requires_grad)
    assert gather_rows(rows) is rows  # no copy, and the gradient flows


def test_the_mean_over_one_process_is_the_value() -> None:
    value = torch.tensor([1.0, 2.0])
    assert mean_over_ranks(value) is value


# What they do in two processes is in tests/methods/test_contract.py, where two ranks must do what one process does.
