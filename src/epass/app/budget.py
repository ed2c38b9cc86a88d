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
JUDGED = 0.1  # share of a run after which its number of steps is judged
UNTIL, LATEST = 0.33, 300.0  # share of the time during which it may start over, and seconds
WORTHWHILE = 4 / 3  # times as many steps: for less, what was done is not thrown away
SHORTEST, LONGEST = 0.6, 1.5  # shares of the time that a run may take without a word
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
    """A length of time from now on, and whether a run makes use of it, which never has more than `most` steps."""

    def __init__(self, seconds: float, most: int | None = None) -> None:
        self.seconds, self.most, self.began = seconds, most, time.perf_counter()

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def settled(self) -> bool:
        """Whether it is too late for a run to start over."""
        return self.spent >= min(UNTIL * self.seconds, LATEST)

    def better_steps(self, clock: Clock) -> int:
        """How many steps a run should have instead, if these are far more, or it takes far too long; else 0."""
        if clock.made < 2 or (clock.step < JUDGED * clock.steps and clock.spent < JUDGED * self.seconds):
            return 0
        pace = min(clock.pace, clock.recent_pace)  # a machine that was busy at first may no longer be
        fitting = limited(max(1, int(TRAINING_SHARE * (self.seconds - self.spent) / pace)), self.most)
        too_long = self.spent + (clock.steps - clock.step) * pace > LONGEST * self.seconds
        return fitting if too_long or fitting >= WORTHWHILE * clock.steps else 0


def enough_steps(experiment: Experiment) -> int | None:
    """The steps of a recipe for vectors, where more teach nothing; from pixels, time is better spent than saved."""
    from ..data import Vectors

    return experiment.plan.steps if isinstance(experiment.split.labeled, Vectors) else None


def limited(steps: int, most: int | None) -> int:
    """So many steps, or `most` if these are fewer."""
    return steps if most is None else min(steps, most)


def budget_facts(steps: int, seconds: float | None, most: int | None) -> dict[str, str]:
    """That a run takes less than its time, for its plan."""
    if seconds is None or steps != most:
        return {}
    return {"budget": f"{duration(seconds)} at most: {steps:,} steps take less, and on vectors more teach nothing"}


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


def misjudged(used: float, seconds: float, steps: int, most: int | None = None) -> str:
    """That training took far less or more than the time asked for, and what to do; empty if it did not.

    A run of `most` steps may take less.
    """
    if (used / seconds >= SHORTEST or steps == most) and used / seconds <= LONGEST:
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
