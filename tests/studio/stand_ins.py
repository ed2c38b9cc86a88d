"""What stands where the learner and the jobs do, which train in other processes: the same names, and no torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from epass.errors import InputError, unknown
from epass.labeling.project import Project
from epass.studio.desk import Desk
from epass.studio.stream import Stream


class StandInLearner:
    """Guesses the first class for everything, and is sure of it."""

    def __init__(self, project: Project, publish: Callable[[str, dict[str, Any]], None]) -> None:
        self.project, self.publish = project, publish
        self.asked: list[tuple[str, dict[str, int]]] = []
        self.waits: threading.Event | None = None

    def summary(self) -> dict[str, Any] | None:
        return None

    def ids(self, view: str, **which: int) -> list[int]:
        if self.waits is not None:
            self.waits.wait(20)
        self.asked.append((view, which))
        return [2, 0]

    def facts(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        return [{"guess": None, "confidence": None, "why": None, "disagreement": None} for _ in ids]

    def map(self) -> dict[str, Any] | None:
        return None

    def confusion(self) -> dict[str, Any] | None:
        return {"classes": [], "matrix": [], "labels": 0, "how": "labels only"}

    def calibration(self) -> dict[str, Any] | None:
        raise RuntimeError("a mistake of ours, with /home/me in it")

    def start(self) -> None: ...

    def close(self) -> None: ...


class StandInPast:
    """One run."""

    def __init__(self, runs: Path) -> None:
        self.home = runs

    def page(self, name: str) -> Path:
        self.run(name)
        return self.home / name / "report.html"

    def runs(self) -> list[dict[str, Any]]:
        return [{"name": "one"}]

    def run(self, name: str) -> dict[str, Any]:
        if name != "one":
            raise unknown("run", name, ["one"])
        return {"name": "one"}

    def pair(self, a: str, b: str) -> dict[str, Any]:
        return {"a": self.run(a), "b": self.run(b)}


class StandInJobs:
    """Starts nothing, and remembers what it was told."""

    def __init__(self, runs: Path) -> None:
        self.runs, self.past = runs, StandInPast(runs)
        self.told: list[tuple[Any, ...]] = []

    def forms(self) -> list[dict[str, Any]]:
        return [{"do": "train"}]

    def list(self) -> list[dict[str, Any]]:
        return [{"id": "7", "state": "running"}]

    def plan(self, do: str, said: dict[str, Any]) -> Any:
        self.told.append(("plan", do, said))
        return [{"kind": "plan"}]

    def start(self, do: str, said: dict[str, Any]) -> str:
        self.told.append(("start", do, said))
        return "8"

    def stop(self, job: str) -> None:
        self.told.append(("stop", job))

    def resume(self, job: str) -> None:
        self.told.append(("resume", job))

    def result(self, job: str, name: str) -> Path:
        if name != "table.csv":
            raise InputError(f"'{job}' wrote no '{name}'.")
        return self.runs / name

    def close(self) -> None: ...


def open_with_stand_ins(photos: Path, runs: Path, device: str, stream: Stream, notice: Any, held: ExitStack) -> Desk:
    """As `open_desk` of the command does it."""
    project = held.enter_context(closing(Project(photos, notice)))
    return Desk(project, StandInLearner(project, stream.publish), StandInJobs(runs), stream)  # type: ignore[arg-type]
