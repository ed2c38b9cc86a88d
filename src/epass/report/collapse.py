"""Has a training gone astray? Signs that need no eye for curves, with the thresholds they are told by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..evaluation import find_alarms
from ..runs import Run
from .summary import Group, number, seed_of

ONCE, NOW = 0.10, 0.01  # coverage that a run had once, and that it has no more
SWALLOWED = 0.5  # share of what belongs to the other classes


def lost_coverage(coverage: Sequence[float]) -> tuple[float, float] | None:
    """The highest and the last coverage, if it was once a tenth or more and ended below a hundredth."""
    if len(coverage) and max(coverage) >= ONCE and coverage[-1] < NOW:
        return max(coverage), coverage[-1]
    return None


def swallowing_class(used: ArrayLike, images: ArrayLike | None = None) -> tuple[int, float] | None:
    """The class that got half or more of what belongs to the others, and its share of the pseudo-labels.

    `used` (C,) says on what share of all unlabeled images each class is the pseudo-label, `images` (C,) how many there
    are of each: equally many, if that is unknown. A class with a share e of the images and s of the pseudo-labels took
    (s - e) / (1 - e) of the rest. While it is named less often than it has images, it may just be the easiest one.
    """
    named = np.asarray(used, dtype=np.float64)
    true = np.ones_like(named) if images is None else np.asarray(images, dtype=np.float64)
    if named.sum() <= 0 or true.sum() <= 0:
        return None
    given, true = named / named.sum(), true / true.sum()
    taken = np.divide(given - true, 1 - true, out=np.zeros_like(given), where=true < 1)
    worst = int(taken.argmax())
    return (worst, float(given[worst])) if taken[worst] >= SWALLOWED and named[worst] > true[worst] else None


def warnings_of(groups: Sequence[Group]) -> list[str]:
    """A sentence about every run that shows a sign of collapse, or whose result alarms."""
    return [warning for group in groups for run in group.runs for warning in _warnings(run, _name(run, group))]


def _warnings(run: Run, name: str) -> list[str]:
    found = [] if run.predictions is None else find_alarms(*run.predictions, who=name)
    coverage = [value for row in run.metrics if (value := number(row, "coverage")) is not None]
    if lost := lost_coverage(coverage):
        found.append(
            f"{name} stopped using its unlabeled images: {100 * lost[0]:.0f} % of them had a pseudo-label once, "
            f"{100 * lost[1]:.1f} % at the end. A lower threshold or learning rate may help."
        )
    counted = [row for row in run.metrics if row.get("used_by_class")]
    if counted:
        images = counted[-1].get("images_by_class") or [0.0]
        swallowing = swallowing_class(counted[-1]["used_by_class"], images if sum(images) > 0 else None)
        if swallowing is not None:
            label, share = swallowing
            found.append(
                f"In {name} one class swallowed the others: {100 * share:.0f} % of the pseudo-labels at step "
                f"{counted[-1]['step']:,} say '{_class(run, label)}'. More labels or distribution alignment may help."
            )
    return found


def _class(run: Run, label: int) -> str:
    names = (run.model or {}).get("classes") or []
    return str(names[label]) if label < len(names) else str(label)


def _name(run: Run, group: Group) -> str:
    return f"{group.label} (seed {seed_of(run)})" if len(group.runs) > 1 else group.label
