"""How the studio stands 100,000 photos, and whether labeling waits for the model that learns beside it.

    python benchmarks/studio_load.py [--images 100000] [--folder MADE] [--photos FOLDER] [--out studio-load.json]

Makes tiny photos, starts `epass studio` on them as a program of its own, and asks it as a browser does, through six
connections. With --photos, a copy of a folder of class folders, and one called unlabeled, is labeled as well: each
answer is the class of the photo's folder, and after it the next photo is fetched, while the model trains all the time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import local
from typing import Any
from zlib import crc32

import numpy as np
from PIL import Image

from epass.runs.environment import environment

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from real_studio import printed_address

CONNECTIONS = 6  # of a browser to one server
FIRST_VIEW, SCROLLED, ANSWERS = 60, 5_000, 200
PATIENCE = 900.0  # seconds
UNLABELED = "unlabeled"  # the folder without a class
COMMAND = [sys.executable, "-u", "-m", "epass"]


class Browser:
    """What asks: several connections that stay open, and the cookie that the printed address gave."""

    def __init__(self, address: str) -> None:
        self.host = address.split("/")[2]
        self.kept, self.lines = local(), list[HTTPConnection]()
        self.threads = ThreadPoolExecutor(CONNECTIONS)
        answer = self.request("GET", f"/{address.split('/', 3)[3]}", None, {})
        self.cookie = answer.headers["set-cookie"].split(";")[0]
        self.version = ""

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        if not hasattr(self.kept, "line"):
            self.kept.line = HTTPConnection(self.host, timeout=PATIENCE)
            self.lines.append(self.kept.line)
        try:
            self.kept.line.request(method, path, body, headers)
            answer = self.kept.line.getresponse()
        except ConnectionError:  # nothing was said on it for long
            self.kept.line.close()
            self.kept.line.request(method, path, body, headers)
            answer = self.kept.line.getresponse()
        answer.content = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.content[:300]!r}")
        return answer

    def get(self, path: str) -> bytes:
        return bytes(self.request("GET", path, None, {"Cookie": self.cookie}).content)

    def post(self, path: str, value: Any) -> Any:
        headers = {"Cookie": self.cookie, "Content-Type": "application/json", "Origin": f"http://{self.host}"}
        return json.loads(self.request("POST", path, json.dumps(value).encode(), headers).content)

    def thumbnails(self, ids: list[int]) -> None:
        list(self.threads.map(lambda number: self.get(f"/thumb/{number}/160?v={self.version}"), ids))

    def close(self) -> None:
        self.threads.shutdown()
        for line in self.lines:
            line.close()


def make_photos(folder: Path, images: int) -> None:
    """Noise of 48 pixels; a few contents under many names, since nobody looks at them."""
    folder.mkdir(parents=True, exist_ok=True)
    random, contents = np.random.default_rng(0), []
    for _ in range(200):
        stream = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (48, 48, 3), dtype=np.uint8)).save(stream, "JPEG")
        contents.append(stream.getvalue())
    for number in range(images):
        path = folder / f"photo-{number:06d}.jpg"
        if not path.exists():
            path.write_bytes(contents[number % len(contents)])


def copy_photos(source: Path, folder: Path) -> list[str]:
    """The photos of class folders side by side, so that nobody sees their class; and their classes, by name."""
    folder.mkdir()
    for place in sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")):
        shutil.copyfile(place, folder / f"{crc32(str(place).encode()):08x}~{place.parent.name}~{place.name}")
    return sorted({path.name.split("~")[1] for path in folder.iterdir()} - {UNLABELED})


@contextmanager
def studio(folder: Path) -> Iterator[tuple[int, Browser, float]]:
    """The process, somebody who has opened its address, and the seconds until it was printed."""
    started = time.perf_counter()
    words = ["studio", str(folder), "--port", "0", "--no-browser", "--runs", str(folder.parent / "runs")]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        address = printed_address(process)
        seconds = time.perf_counter() - started
        try:
            with closing(Browser(address)) as browser:
                yield process.pid, browser, seconds
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def seconds_of(work: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def memory(process: int) -> dict[str, float]:
    """Megabytes that the server holds, and has held at most."""
    text = Path(f"/proc/{process}/status").read_text()
    found = {name: re.search(rf"{name}:\s+(\d+) kB", text) for name in ("VmRSS", "VmHWM")}
    return {name: int(match[1]) / 1024 for name, match in found.items() if match}


def shares(seconds: list[float]) -> dict[str, float]:
    return {f"p{share}": 1000 * float(np.percentile(seconds, share)) for share in (50, 95, 100)}


def answer_all(browser: Browser, ids: list[int], label: Callable[[int], int], pace: float) -> dict[str, Any]:
    """Milliseconds of an answer, and of an answer with the next picture, one after the other."""
    answers, pictures = [], []
    seen = {"label": None, "mark": None}
    for number, following in zip(ids, [*ids[1:], ids[0]], strict=True):
        change = {"id": number, "label": label(number), "mark": None, "seen": seen}
        answers.append(seconds_of(browser.post, "/api/answers", {"tab": "load", "changes": [change]}))
        pictures.append(answers[-1] + seconds_of(browser.get, f"/image/{following}"))
        time.sleep(pace)
    return {"answer": shares(answers), "answer_and_picture": shares(pictures)}


def load(folder: Path, images: int, scrolled: int, answers: int) -> dict[str, Any]:
    """The tiny photos: opening, scrolling, answering."""
    found: dict[str, Any] = {"images": images}
    with studio(folder) as (process, browser, found["listening_s"]):
        found["state_s"] = seconds_of(browser.get, "/api/state")
        browser.version = json.loads(browser.get("/api/state"))["project"].get("version", "")
        found["ids_s"] = seconds_of(browser.get, "/api/ids?view=all")
        first = list(range(min(FIRST_VIEW, images)))
        found["thumbnails_cold_s"] = seconds_of(browser.thumbnails, first)
        found["thumbnails_warm_s"] = seconds_of(browser.thumbnails, first)
        before = memory(process)
        spread = np.linspace(0, images - 1, min(scrolled, images)).astype(int).tolist()
        found["scrolled"], found["scrolling_s"] = len(spread), seconds_of(browser.thumbnails, spread)
        found["memory_mb"] = {"before": before, "after": memory(process)}
        classes = add_classes(browser, ["one", "two"])
        asked = spread[:answers]
        found["idle_ms"] = answer_all(
            browser, asked, lambda number: classes["one"], 0.0
        )  # of one class nothing is learned
    return found


def add_classes(browser: Browser, names: list[str]) -> dict[str, int]:
    for name in names:
        browser.post("/api/classes", {"do": "add", "name": name, "tab": "load"})
    return {row["name"]: row["id"] for row in json.loads(browser.get("/api/state"))["classes"]}


def load_while_training(folder: Path, names: list[str], answers: int, pace: float) -> dict[str, Any]:
    """Real photos: answers while the model learns from those before."""
    with studio(folder) as (_, browser, listening):
        started = time.perf_counter()
        while json.loads(browser.get("/api/state"))["progress"] is not None or time.perf_counter() < started + 5:
            if time.perf_counter() > started + PATIENCE:
                raise SystemExit("The features were not computed in time: run 'epass embed' before.")
            time.sleep(1)
        found: dict[str, Any] = {"listening_s": listening, "features_s": time.perf_counter() - started}
        classes = add_classes(browser, names)
        found["images"] = len(json.loads(browser.get("/api/ids?view=all"))["ids"])
        known = [json.loads(browser.get(f"/api/ids?view=all&q=~{name}~"))["ids"] for name in names]
        ids = [number for group in known for number in group]
        ids = np.random.default_rng(0).permutation(ids)[:answers].tolist()
        rows = [
            row
            for at in range(0, len(ids), 200)
            for row in browser.post("/api/rows", {"ids": ids[at : at + 200]})["rows"]
        ]
        true = {row["id"]: classes[row["name"].split("~")[1]] for row in rows}
        found["training_ms"] = answer_all(browser, ids, true.__getitem__, pace)
        found["teachings"] = len((json.loads(browser.get("/api/model")) or {}).get("history", []))
    return found


def table(found: dict[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from table(value, f"{indent}  ")
        else:
            yield f"{indent}{name:<24} {value:,.2f}" if isinstance(value, float) else f"{indent}{name:<24} {value:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="keep the tiny photos here, for the next time")
    parser.add_argument("--scrolled", type=int, default=SCROLLED)
    parser.add_argument("--answers", type=int, default=ANSWERS)
    parser.add_argument("--photos", type=Path, help="class folders, to answer while the model trains")
    parser.add_argument("--pace", type=float, default=0.3, help="seconds between two answers while it trains")
    parser.add_argument("--out", type=Path, default=Path("studio-load.json"))
    asked = parser.parse_args()
    facts = environment(0, " ".join(["python", *sys.argv]), "cpu")
    found: dict[str, Any] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as home:
        made = (asked.folder or Path(home)) / f"tiny-{asked.images}"
        make_photos(made, asked.images)
        for left in (made / ".epass-studio", made / "labels.csv"):  # of the time before
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        found["tiny"] = load(made, asked.images, asked.scrolled, asked.answers)
        if asked.photos:
            names = copy_photos(asked.photos, Path(home) / "photos")
            found["photos"] = load_while_training(Path(home) / "photos", names, asked.answers, asked.pace)
    found["environment"] = {key: facts[key] for key in ("commit", "platform", "cpu_count", "python") if key in facts}
    asked.out.write_text(json.dumps(found, indent=2) + "\n")
    print("\n".join(table({name: value for name, value in found.items() if name != "environment"})))
    print(f"commit {found['environment'].get('commit')}, {found['environment'].get('cpu_count')} cores; {asked.out}")


if __name__ == "__main__":
    main()
