"""Which images somebody asks for, and what is known of each: the lists and rows that a page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, one_of
from ..files import as_text
from ..runs.folder import to_json
from .steps import MARKS, NUMBERS

if TYPE_CHECKING:
    from ..evaluation.calibration import Reliability
    from .learner import Learner
    from .project import Project

# what a view is called; those of the learner follow from what it believes, the others from the labels
TITLES = {
    "all": "All images",
    "unlabeled": "Without a label",
    "labeled": "Labeled",
    "skip": "Skipped",
    "unsure": "Unsure",
    "none": "None of these",
    "class": "Labeled {class}",
}
BELIEVED = {
    "suggested": "Suggested next",
    "guessed": "Guessed {class}",
    "mistakes": "Most confident mistakes",
    "unlike": "Unlike any other",
    "disagreement": "Projectors disagree",
    "suspects": "Labels that look wrong",
    "cell": "Labeled {true}, guessed {guess}",
}
NEEDED = {"class": ("class",), "guessed": ("class",), "cell": ("true", "guess")}  # the classes that a view is about


def list_images(
    project: Project, learner: Learner, view: str, which: Mapping[str, int], text: str
) -> tuple[list[int], str]:
    """The ids of a view's images, those whose name holds the text, and what to call them."""
    one_of("view", view, (*TITLES, *BELIEVED))
    names = {facts.id: facts.name for facts in project.classes()}
    for part in NEEDED.get(view, ()):
        if which.get(part) not in names:
            raise InputError(f"There is no such class: reload the page, and ask for {part} by the number of one.")
    said = {part: f"'{names[which[part]]}'" for part in NEEDED.get(view, ())}
    title = {**TITLES, **BELIEVED}[view].format_map(said)
    found: Iterable[int]
    if view in BELIEVED:
        found = learner.ids(view, **{part: which[part] for part in NEEDED.get(view, ())})
    else:
        found = np.flatnonzero(labeled_as(project, view, which.get("class", -1))).tolist()
    if text:
        title = f"{title}, named '{text}'"
        found = [number for number in found if text.casefold() in project.names[number].casefold()]
    return list(found), title


def labeled_as(project: Project, view: str, label: int) -> Any:
    """Of every image, whether it belongs to a view of the labels."""
    if view == "all":
        return np.ones(len(project.names), bool)
    if view == "class":
        return project.labels == label
    if view == "labeled":
        return project.labels >= 0
    if view == "unlabeled":
        return (project.labels < 0) & (project.marks == 0)
    return project.marks == NUMBERS[view]


def describe_images(project: Project, learner: Learner, ids: Iterable[int]) -> list[dict[str, Any]]:
    """Of each image its name, what a person said of it, and what the model believes."""
    ids = list(ids)
    rows = []
    for number, believed in zip(ids, learner.facts(ids), strict=True):
        label, mark = int(project.labels[number]), int(project.marks[number])
        rows.append(
            {
                "id": number,
                "name": as_text(project.names[number]),
                "label": None if label < 0 else label,
                "mark": MARKS[mark - 1] if mark else None,
                **believed,
            }
        )
    return rows


def describe_bins(found: Reliability) -> list[dict[str, Any]]:
    """The bins of a reliability diagram; an empty one has no accuracy."""
    edges = zip(found.edges[:-1], found.edges[1:], strict=True)
    values = zip(edges, found.counts, found.confidence, found.accuracy, strict=True)
    return [
        to_json({"low": low, "high": high, "count": count, "confidence": sure, "accuracy": right})
        for (low, high), count, sure, right in values
    ]


def describe_project(project: Project, learner: Learner) -> dict[str, Any]:
    """What a page must know before it shows anything."""
    folder = project.folder.resolve()  # '.' has no name
    counts = np.bincount(project.marks, minlength=len(MARKS) + 1).tolist()
    return {
        "project": {
            "name": as_text(folder.name),
            "images": len(project.names),
            "folder": as_text(folder),
        },
        "n": project.n,
        "classes": [facts._asdict() for facts in project.classes()],
        "marks": dict(zip(MARKS, counts[1:], strict=True)),
        "labeled": int((project.labels >= 0).sum()),
        "keys": dict(project.keys),
        "model": learner.summary(),
    }
