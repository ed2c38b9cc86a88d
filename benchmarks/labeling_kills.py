"""Is an acknowledged answer ever lost? Kill the process that keeps labels at random moments, and look.

    python benchmarks/labeling_kills.py [--kills 100] [--seed 0]

Each process opens the folder, compares what it finds with everything that was acknowledged before, and answers until it
is killed. The journal is compacted and labels.csv written every few answers, so that kills fall into these, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from base64 import b64decode
from pathlib import Path

from epass.data.read.given_labels import find_labels
from epass.labeling import journal
from epass.labeling import project as labeling
from epass.labeling.project import Change, Project

PHOTOS = 40
LONGEST_LIFE = 0.15  # seconds
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
MARKS = (None, "skip", "unsure", "none")
Answer = tuple[int | None, str | None]  # label and mark


def said(project: Project, id: int) -> Answer:
    label = int(project.labels[id])
    return (label if label >= 0 else None), MARKS[project.marks[id]]


def lost(project: Project, known: dict[int, Answer], tried: dict[int, Answer], n: int) -> list[int]:
    """The images that are not what was acknowledged, nor what was said last and might have come to the disk."""
    possible = {id: {known.get(id, (None, None)), tried.get(id, known.get(id, (None, None)))} for id in range(PHOTOS)}
    return [id for id, answers in possible.items() if said(project, id) not in answers] + (
        [-1] if project.n < n else []
    )


def live(folder: Path, seed: int, pipe: int, known: dict[int, Answer], tried: dict[int, Answer], n: int) -> None:
    """Look, then answer and say so, until somebody kills us."""
    labeling.LONG, labeling.LATE, journal.KEPT = 6000, 0.005, 1500
    project = Project(folder, lambda sentence: None)
    if not project.classes():
        project.add_class("forest")
        project.add_class("lake")
    found = lost(project, known, tried, n)
    state = {id: said(project, id) for id in range(PHOTOS)}
    os.write(pipe, f"{json.dumps(['found', found, state])}\n".encode())
    draw = random.Random(seed)
    while True:
        ids = draw.sample(range(PHOTOS), draw.choice([1, 1, 1, 6]))
        new = {id: draw.choice([(0, None), (1, None), (None, "skip"), (None, "none"), (None, None)]) for id in ids}
        os.write(pipe, f"{json.dumps(['try', new])}\n".encode())
        changed = project.answer([Change(id, *new[id], *said(project, id)) for id in ids], "tab")
        os.write(pipe, f"{json.dumps(['done', changed.n])}\n".encode())


def measure(kills: int, seed: int) -> dict[str, int]:
    """Counts of what was acknowledged, lost, and cut off."""
    draw = random.Random(seed)
    known, tried, n = dict[int, Answer](), dict[int, Answer](), 0
    counts = {
        "kills": kills,
        "answers": 0,
        "lost": 0,
        "before the first answer": 0,
        "unacknowledged": 0,
        "compactions": 0,
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "photos"
        folder.mkdir()
        for number in range(PHOTOS):
            (folder / f"{number:02d}.png").write_bytes(PNG)
        snapshot, newest = folder / ".epass-studio" / "snapshot.json", 0.0
        for kill in range(kills):
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                try:
                    live(folder, seed * 1000 + kill, writing, known, tried, n)
                finally:
                    os._exit(1)
            os.close(writing)
            time.sleep(draw.uniform(0, LONGEST_LIFE))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with open(reading, "rb") as file:
                lines = [json.loads(line) for line in file.read().splitlines()]
            counts["before the first answer"] += len(lines) < 3
            for kind, *facts in lines:
                if kind == "found":
                    counts["lost"] += len(facts[0])
                    known, tried = {int(id): tuple(answer) for id, answer in facts[1].items()}, {}
                elif kind == "try":
                    tried = {int(id): tuple(answer) for id, answer in facts[0].items()}
                else:
                    known, tried, n = known | tried, {}, facts[0]
                    counts["answers"] += 1
            counts["unacknowledged"] += bool(tried)
            if snapshot.exists() and snapshot.stat().st_mtime > newest:
                newest, counts["compactions"] = snapshot.stat().st_mtime, counts["compactions"] + 1
        project = Project(folder, lambda sentence: None)
        counts["lost"] += len(lost(project, known, tried, n))
        names = {fact.id: fact.name for fact in project.classes()}
        labels = {name: names.get(int(label), "") for name, label in zip(project.names, project.labels, strict=True)}
        project.close()
        given = find_labels(folder)
        rows = {name: label for name, (label, _) in given.rows.items()} if given else {}
        counts["lost"] += sum(rows.get(name, "") != label for name, label in labels.items())
    return counts


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(json.dumps(measure(given.kills, given.seed)))


if __name__ == "__main__":
    main()
