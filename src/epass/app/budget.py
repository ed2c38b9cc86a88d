"""From a length of time to a number of steps."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from ..errors import InputError
from ..recipe import read_recipe
from ..runs import RunFolder
from .request import Shared
from .words import duration

if TYPE_CHECKING:
    from ..engine.build import Experiment
    from .train import Clock

TRAINING_SHARE = 0.9  # of the time; the rest is for tests and files
TRIED, LONGEST_TRIAL = 0.05, 15.0  # share of the time for trying steps before the run, and seconds
JUDGED, LATEST = 0.1, 120.0  # share of a run after which its number of steps is judged, and seconds
FITTING, ACCEPTABLE = (0.75, 1.25), (0.6, 1.5)  # shares of the time: a run beyond starts over, or is told of at its end
LEAST_STEPS, LEAST_PASSES = 300, 5  # that teach something: steps, and passes over the labeled images


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


class Budget:
    """A length of time from now on, and whether a run makes use of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, time.perf_counter()

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    def can_judge(self, clock: Clock) -> bool:
        """Whether enough steps of a run were made to tell how long all of them take."""
        part = clock.step >= JUDGED * clock.steps or clock.spent >= min(JUDGED * self.seconds, LATEST)
        return part and clock.made >= 2

    def better_steps(self, clock: Clock) -> int:
        """How many steps a run should have instead, if it will take far less or more than the time; else 0."""
        shortest, longest = FITTING
        if shortest <= (self.spent + clock.left) / self.seconds <= longest:
            return 0
        return max(1, int(TRAINING_SHARE * (self.seconds - self.spent) / clock.pace))


def steps_in(seconds: float, experiments: Iterable[Experiment]) -> int:
    """As many steps as the slowest of some experiments makes in that time."""
    from ..engine.timing import seconds_per_step

    slowest, patience = 0.0, min(TRIED * seconds, LONGEST_TRIAL)
    for experiment in experiments:
        with closing(experiment.feed):
            slowest = max(slowest, seconds_per_step(experiment, patience))
    return max(1, int(TRAINING_SHARE * seconds / slowest))


def too_few(steps: int, labels: int, labeled_batch: int, seconds: float) -> str:
    """That so many steps hardly teach anything, and what to do; empty where they are enough."""
    least = max(LEAST_STEPS, math.ceil(LEAST_PASSES * labels / labeled_batch))
    if steps >= least:
        return ""
    more = math.ceil(seconds * least / steps / 60)
    return (
        f"Only {steps:,} steps fit into {duration(seconds)}, and less than {least:,} teach hardly anything: give more "
        f"time (--budget {more}m), smaller images (--image-size) or a smaller network (--net)."
    )


def misjudged(used: float, seconds: float, steps: int) -> str:
    """That training took far less or more than the time asked for, and what to do; empty if it did not."""
    shortest, longest = ACCEPTABLE
    if shortest <= used / seconds <= longest:
        return ""
    then, fitting = "slower" if used < seconds else "faster", max(1, int(steps * seconds / used))
    return (
        f"Training took {duration(used)} and not the {duration(seconds)} asked for, because the machine was {then} "
        f"when its steps were timed: --steps {fitting} would fit at the pace of this run."
    )


def steps_planned(home: RunFolder) -> int:
    """The steps of the run in a folder, 0 without one: the speed of today would give another number and another run."""
    if not home.exists():
        return 0
    steps: int = read_recipe(str(home.path / "recipe.toml")).plan["steps"]
    return steps
