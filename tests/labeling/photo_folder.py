"""Folders of photos that are made in no time, and what tests say about them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from epass.labeling.project import Change, Changed, Project

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


def make(folder: Path, *names: str) -> Path:
    """A folder with tiny photos of these names, or of six."""
    for name in names or [f"{number}.png" for number in range(6)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PNG)
    return folder


def opened(folder: Path, notice: Callable[[str], None] = lambda sentence: None) -> Project:
    """The project of a folder of photos, with two classes if it had none."""
    project = Project(folder, notice)
    if not project.classes():
        project.add_class("forest", "first")
        project.add_class("lake", "first")
    return project


def say(project: Project, id: int, answer: int | str | None, tab: str = "tab") -> Changed:
    """Give one image a label or a mark, by somebody who sees what it has now."""
    label, mark = answer if isinstance(answer, int) else None, answer if isinstance(answer, str) else None
    return project.answer([Change(id, label, mark, *seen(project, id))], tab)


def seen(project: Project, id: int) -> tuple[int | None, str | None]:
    """What a tab shows of an image."""
    label, mark = int(project.labels[id]), int(project.marks[id])
    return (label if label >= 0 else None), ([None, "skip", "unsure", "none"][mark])


def state(project: Project) -> tuple[object, ...]:
    """All that a project knows."""
    return project.labels.tolist(), project.marks.tolist(), project.classes(), project.keys
