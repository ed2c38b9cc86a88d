"""From a length of time to a number of steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from ..errors import InputError
from ..recipe import read_recipe
from ..runs import RunFolder
from .request import Shared

if TYPE_CHECKING:
    from ..engine.build import Experiment

TRAINING_SHARE = 0.9  # of the time; the rest is for tests and files


def parse_budget(asked: Shared) -> float | None:
    """`90s`, `10m` or `1.5h` in seconds, which nothing else may contradict."""
    if asked.budget is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", asked.budget.strip().lower())
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds:
        raise InputError(f"'{asked.budget}' is not a length of time: use --budget 90s, 10m or 1.5h.")
    if asked.steps is not None or any(text.startswith("plan.steps=") for text in asked.settings):
        raise InputError("Steps and --budget both say how long to train: give one of them.")
    return seconds


def steps_in(seconds: float, experiments: Iterable[Experiment]) -> int:
    """As many steps as the slowest of some experiments makes in that time."""
    from ..engine.timing import seconds_per_step

    slowest = 0.0
    for experiment in experiments:
        with closing(experiment.feed):
            slowest = max(slowest, seconds_per_step(experiment))
    return max(1, int(TRAINING_SHARE * seconds / slowest))


def steps_planned(home: RunFolder) -> int:
    """The steps of the run in a folder, 0 without one: the speed of today would give another number and another run."""
    if not home.exists():
        return 0
    steps: int = read_recipe(str(home.path / "recipe.toml")).plan["steps"]
    return steps
