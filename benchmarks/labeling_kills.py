"""Is an acknowledged answer ever lost? Kill the process that keeps labels at random moments, and look.

    python benchmarks/labeling_kills.py [--server] [--kills 100] [--seed 0]

Each process opens the folder, compares what it finds with everything that was acknowledged before, and answers until it
is killed. The journal is compacted and labels.csv written every few answers, so that kills fall into these, too. With
--server it is `epass studio` that is killed, while it starts or while somebody answers over HTTP as fast as it listens.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

from epass.data.read.given_labels import find_labels, own_table
from epass.labeling import journal
from epass.labeling import project as labeling
from epass.labeling.project import Change, Project

sys.path.append(str(Path(__file__).parents[1] / "docs"))

PHOTOS = 40
LONGEST_LIFE = 0.15  # seconds
LONGEST_SERVICE = 0.6  # seconds of a server, once it listens
WHILE_STARTING = 0.2  # share of the servers that are killed before they listen
PATIENCE = 300.0  # seconds, on a machine that is busy
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
MARKS = (None, "skip", "unsure", "none")
Answer = tuple[int | None, str | None]  # label and mark


def said(project: Project, id: int) -> Answer:
    label = int(project.labels[id])
    return (label if label >= 0 else None), MARKS[project.marks[id]]


def lost(found: dict[int, Answer], now: int, known: dict[int, Answer], tried: dict[int, Answer], n: int) -> list[int]:
    """The images that are not what was acknowledged, nor what was said last and might have come to the disk.

    `now` is the number of the last record that is there, `n` of the last one that was acknowledged.
    """
    possible = {id: {known.get(id, (None, None)), tried.get(id, known.get(id, (None, None)))} for id in range(PHOTOS)}
    return [id for id, answers in possible.items() if found[id] not in answers] + ([-1] if now < n else [])


def all_said(project: Project) -> dict[int, Answer]:
    return {id: said(project, id) for id in range(PHOTOS)}


def draw_answers(draw: random.Random) -> dict[int, Answer]:
    """What somebody says at once, about one image or a few."""
    ids = draw.sample(range(PHOTOS), draw.choice([1, 1, 1, 6]))
    return {id: draw.choice([(0, None), (1, None), (None, "skip"), (None, "none"), (None, None)]) for id in ids}


def make_photos(place: Path) -> Path:
    folder = place / "photos"
    folder.mkdir()
    for number in range(PHOTOS):
        (folder / f"{number:02d}.png").write_bytes(PNG)
    return folder


def differ_from_table(folder: Path, labels: Iterable[tuple[str, str]]) -> int:
    """How many images have another label in labels.csv than these."""
    given = find_labels(own_table(folder))
    rows = {name: label for name, (label, _) in given.rows.items()} if given else {}
    return sum(rows.get(name, "") != label for name, label in labels)


def live(folder: Path, seed: int, pipe: int, known: dict[int, Answer], tried: dict[int, Answer], n: int) -> None:
    """Look, then answer and say so, until somebody kills us."""
    labeling.LONG, labeling.LATE, journal.KEPT = 6000, 0.005, 1500
    project = Project(folder, lambda sentence: None)
    if not project.classes():
        project.add_class("forest")
        project.add_class("lake")
    state = all_said(project)
    found = lost(state, project.n, known, tried, n)
    os.write(pipe, f"{json.dumps(['found', found, state])}\n".encode())
    draw = random.Random(seed)
    while True:
        new = draw_answers(draw)
        os.write(pipe, f"{json.dumps(['try', new])}\n".encode())
        changed = project.answer([Change(id, *new[id], *said(project, id)) for id in new], "tab")
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
        folder = make_photos(Path(place))
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
        counts["lost"] += len(lost(all_said(project), project.n, known, tried, n))
        names = {fact.id: fact.name for fact in project.classes()}
        labels = [(name, names.get(int(label), "")) for name, label in zip(project.names, project.labels, strict=True)]
        project.close()
        counts["lost"] += differ_from_table(folder, labels)
    return counts


class Visitor:
    """Somebody at the page of a studio, through one connection."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        from real_studio import printed_address  # which the processes that are killed need not wait for

        address = urlsplit(printed_address(process))
        token = address.query.removeprefix("token=")
        self.headers = {"Cookie": f"epass-{address.port}={token}", "Origin": f"http://{address.netloc}"}
        self.line = HTTPConnection(address.netloc, timeout=PATIENCE)

    def ask(self, path: str, value: Any = None) -> Any:
        headers = {**self.headers, "Content-Type": "application/json"}
        self.line.request("GET" if value is None else "POST", path, value and json.dumps(value), headers)
        answer = self.line.getresponse()
        content = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {content}")
        return content

    def rows(self) -> list[dict[str, Any]]:
        return list(self.ask("/api/rows", {"ids": list(range(PHOTOS))})["rows"])

    def all_said(self) -> dict[int, Answer]:
        return {row["id"]: (row["label"], row["mark"]) for row in self.rows()}

    def answer(self, new: dict[int, Answer], seen: dict[int, Answer]) -> int:
        """The number of the record, when it was acknowledged."""
        names = ("label", "mark")
        changes = [
            {"id": id, **dict(zip(names, said, strict=True)), "seen": dict(zip(names, seen[id], strict=True))}
            for id, said in new.items()
        ]
        return int(self.ask("/api/answers", {"tab": "tab", "changes": changes})["n"])


def measure_server(kills: int, seed: int) -> dict[str, int]:
    """The same counts for `epass studio`, with all that it starts."""
    draw = random.Random(seed)
    known, tried, n = dict[int, Answer](), dict[int, Answer](), 0
    counts = {"kills": kills, "answers": 0, "lost": 0, "while starting": 0, "unacknowledged": 0}
    with tempfile.TemporaryDirectory() as place:
        folder = make_photos(Path(place))
        command = [sys.executable, "-u", "-m", "epass", "studio", folder.name, "--no-browser", "--port", "0"]
        for kill in range(kills + 1):
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place
            ) as process:
                if 0 < kill < kills and draw.random() < WHILE_STARTING:
                    time.sleep(draw.uniform(0, 2 * LONGEST_SERVICE))
                    process.kill()
                    counts["while starting"] += 1
                    continue
                visitor = Visitor(process)
                for name in ("forest", "lake") if kill == 0 else ():
                    visitor.ask("/api/classes", {"do": "add", "name": name, "tab": "tab"})
                state = visitor.ask("/api/state")
                found = visitor.all_said()
                counts["lost"] += len(lost(found, state["n"], known, tried, n))
                known, tried = found, {}
                if kill == kills:
                    names = {each["id"]: each["name"] for each in state["classes"]}
                    labels = [(row["name"], names.get(row["label"], "")) for row in visitor.rows()]
                    process.send_signal(signal.SIGINT)
                    process.communicate(timeout=PATIENCE)
                    counts["lost"] += differ_from_table(folder, labels)
                    break
                Timer(draw.uniform(0, LONGEST_SERVICE), process.kill).start()
                try:
                    while True:
                        tried = draw_answers(draw)
                        n = visitor.answer(tried, known)
                        known, tried = known | tried, {}
                        counts["answers"] += 1
                except (OSError, HTTPException, ValueError):  # the server is gone, maybe in the middle of an answer
                    counts["unacknowledged"] += 1
    return counts


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="store_true", help="kill the studio instead of a process that answers")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(json.dumps((measure_server if given.server else measure)(given.kills, given.seed)))


if __name__ == "__main__":
    main()
