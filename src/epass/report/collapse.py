"""Has a training gone astray? Signs that need no eye for curves, with the thresholds they are told by."""

from __future__ import annotations

from collections.abc import Sequence

from ..evaluation import find_doubts, find_swallowing
from ..evaluation.alarms import EARLIEST
from ..runs import Run
from .summary import Group, number, seed_of

ONCE, NOW = 0.10, 0.01  # coverage that a run had once, and that it has no more


def lost_coverage(coverage: Sequence[float]) -> tuple[float, float] | None:
    """The highest and the last coverage, if it was once a tenth or more and ended below a hundredth."""
    if len(coverage) and max(coverage) >= ONCE and coverage[-1] < NOW:
        return max(coverage), coverage[-1]
    return None


def warnings_of(groups: Sequence[Group]) -> list[str]:
    """A sentence about every run that shows a sign of collapse, or whose result alarms; what is true of all, once."""
    found = [warning for group in groups for run in group.runs for warning in _warnings(run, _name(run, group))]
    return list(dict.fromkeys(found))


def _warnings(run: Run, name: str) -> list[str]:
    last = run.metrics[-1] if run.metrics else None
    classes, found = (run.model or {}).get("classes") or [], list[str]()
    if run.predictions is not None:
        found += find_doubts(*run.predictions, classes, who=name, row=last, start=run.pretraining)
    coverage = [value for row in run.metrics if (value := number(row, "coverage")) is not None]
    if lost := lost_coverage(coverage):
        found.append(
            f"{name} stopped using its unlabeled images: {100 * lost[0]:.0f} % of them had a pseudo-label once, "
            f"{100 * lost[1]:.1f} % at the end. A lower threshold or learning rate may help."
        )
    if (number(run.results, "steps") or 0) >= EARLIEST and coverage and max(coverage) == 0:
        found.append(
            f"{name} never used a pseudo-label: none was sure enough in the whole run. A lower threshold, more steps "
            "or more labels may help."
        )
    counted = [row for row in run.metrics if row.get("used_by_class")]
    return found + (find_swallowing(counted[-1], classes, name) if counted else [])


def _name(run: Run, group: Group) -> str:
    return f"{group.label} (seed {seed_of(run)})" if len(group.runs) > 1 else group.label
