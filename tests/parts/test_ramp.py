from __future__ import annotations

import pytest
import torch

from epass.parts.schedule import ramp_up


@pytest.mark.parametrize("steps", [1, 7, 400, 419_430])
def test_a_ramp_rises_in_a_straight_line_and_stays_up(steps: int) -> None:
    for step in {0, 1, 3, steps // 2, steps - 1, steps, steps + 1, 10 * steps}:
        found = ramp_up(torch.tensor(step), steps)
        assert found.item() == pytest.approx(min(step / steps, 1), rel=1e-6)
        assert found.shape == ()
        assert found.dtype == torch.float32


def test_a_ramp_of_no_steps_is_up_after_the_first_one() -> None:
    assert [ramp_up(torch.tensor(step), 0).item() for step in range(4)] == [0, 1, 1, 1]


def test_the_step_is_not_changed() -> None:
    step = torch.tensor(900)
    ramp_up(step, 100)
    assert step.item() == 900
