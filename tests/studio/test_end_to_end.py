"""The studio as a person uses it: the real server, a real browser, photos without a class, and a terminal at the end.

Whoever sits there knows each photo's class by its name, which tells the model nothing.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browsing import NEEDED, PROGRAM
from chromium import Chromium
from real_studio import COMMAND, running_studio, save_digits

pytestmark = [pytest.mark.slow, *NEEDED]
KINDS = {0: "zero", 1: "one", 4: "four", 7: "seven"}
EACH = 24
PATIENCE = 600.0  # seconds until a model is there, on a machine that is busy
CHANCE = 1 / len(KINDS)
Row = dict[str, Any]


class Person:
    """Somebody in front of the page who knows the answers, and may ask the server as the page does."""

    def __init__(self, browser: Chromium, truth: dict[str, str]) -> None:
        self.browser, self.truth = browser, truth

    def ask(self, path: str, body: Any = None) -> Any:
        sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
        options = "" if body is None else f", {json.dumps(sent)}"
        return self.browser.evaluate(f"fetch({path!r}{options}).then((answer) => answer.json())")

    def until(self, script: str) -> Any:
        """The value of an expression as soon as it is true; a model may take longer than a page."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.browser.wait_for(script)
            except TimeoutError:
                if time.monotonic() > end:
                    raise

    def rows(self) -> list[Row]:
        """What the server knows of every photo."""
        return list(self.ask("/api/rows", {"ids": list(range(len(self.truth)))})["rows"])

    def classes(self) -> dict[str, Row]:
        return {each["name"]: each for each in self.ask("/api/state")["classes"]}

    def labels(self) -> dict[str, str]:
        """The class of every photo that has one."""
        names = {each["id"]: each["name"] for each in self.classes().values()}
        return {row["name"]: names[row["label"]] for row in self.rows() if row["label"] is not None}

    def accuracy(self) -> float:
        """The share of photos that are called what they are, by their label or else by the guess."""
        names = {each["id"]: each["name"] for each in self.classes().values()}
        called = [
            (row["name"], names.get(row["guess"] if row["label"] is None else row["label"])) for row in self.rows()
        ]
        return sum(self.truth[name] == said for name, said in called) / len(called)

    def name_classes(self) -> None:
        """Type them, as the page proposes."""
        self.browser.wait_for("document.activeElement.matches('.class-add input')")
        for number, name in enumerate(KINDS.values(), start=1):
            self.browser.write(name)
            self.browser.press("Enter")
            self.browser.wait_for(f"document.querySelectorAll('.classes li').length === {number}")
        self.browser.press("Enter")

    def seen(self) -> str:
        """The name of the photo in sight, as soon as there is one."""
        return str(self.until("document.querySelector('.single')?.checkVisibility() && text('.single-name')"))

    def label(self, photos: int) -> None:
        """Label the photos that come, by the keys of their classes."""
        for _ in range(photos):
            name = self.seen()
            before = int(self.browser.evaluate("counted()"))
            self.browser.press(self.classes()[self.truth[name]]["key"])
            self.until(f"counted() === {before + 1} && text('.single-name') && text('.single-name') !== {name!r}")

    def wait_for_model(self, labels: int) -> str:
        """The words of the model's card, once all labels and all other photos have been learned from."""
        known = "fetch('/api/model').then((answer) => answer.json())"
        self.until(f"{known}.then((m) => m && m.labels === {labels} && m.behind === 0 && m.how === 'semi-supervised')")
        self.until(f"text('.model').includes('up to date') && text('.model').includes('{labels} label')")
        quiet = "document.getElementById('progress').hidden"
        self.until(f"{quiet} && {known}.then((m) => m.accuracy && m.history.at(-1).labels === {labels})")
        return str(self.browser.evaluate("text('.model')"))

    def find(self, words: str, inside: str = "document") -> str:
        return f"[...{inside}.querySelectorAll('button, a')].find((one) => one.innerText.trim() === {words!r})"

    def press(self, words: str, inside: str = "document") -> None:
        self.until(f"!!{self.find(words, inside)} && !{self.find(words, inside)}.disabled")
        self.browser.evaluate(f"{self.find(words, inside)}.click()")

    def edit(self, name: str) -> None:
        """Open the window in which a class is changed."""
        self.browser.evaluate(f"document.querySelector(\"[aria-label='Change the class {name}']\").click()")
        self.browser.wait_for("document.activeElement.closest('dialog') !== null")


HELPERS = """
globalThis.text = (selector) => document.querySelector(selector)?.innerText ?? "";
globalThis.counted = () =>
  [...document.querySelectorAll(".class-count")].reduce((sum, one) => sum + Number(one.innerText), 0);
"""


@pytest.fixture(scope="module")
def browser():
    with Chromium(PROGRAM) as running:
        running.call("Page.addScriptToEvaluateOnNewDocument", source=HELPERS)
        yield running


def read_labels(path: Path) -> dict[str, str]:
    """The labels of a table, which stand beside the name of the photo."""
    with path.open(encoding="utf-8", newline="") as file:
        return {name: label for name, label, *_ in [*csv.reader(file)][1:] if label}


def wait_until(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def group(places: list[tuple[int, int]], kinds: list[str]) -> tuple[tuple[int, int], float, list[int]]:
    """Middle, radius and members of the largest circle around photos of one class that is clear of all others."""
    best: tuple[tuple[int, int], float, list[int]] = ((0, 0), 0.0, [])
    for middle in places:
        near = sorted(range(len(places)), key=lambda one: math.dist(places[one], middle))
        far = [math.dist(places[one], middle) for one in near]
        for count in range(len(best[2]) + 1, len(near)):
            if len({kinds[one] for one in near[:count]}) > 1:
                break
            if far[count] - far[count - 1] > 150:
                best = middle, (far[count] + far[count - 1]) / 2, sorted(near[:count])
    return best


def lasso(person: Person) -> list[str]:
    """Draw around photos of one class on the map and label them; the names of those that had no label."""
    browser = person.browser
    browser.evaluate("location.hash = 'look'")
    shown = "Number(document.querySelector('.map-canvas')?.dataset.points)"
    person.until(f"{shown} === {len(person.truth)} && document.querySelector('.map-canvas').checkVisibility()")
    rows, numbers = person.rows(), person.ask("/api/look/map")["xy"]
    places = list(zip(numbers[::2], numbers[1::2], strict=True))
    middle, radius, members = group(places, [person.truth[row["name"]] for row in rows])
    assert len(members) > 2
    box = "document.querySelector('.map-canvas').getBoundingClientRect()"
    left, top, width, height = browser.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")
    scale = (min(width, height) - 56) / 10000
    corners = [2 * math.pi * step / 40 for step in range(41)]
    around = [(middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)) for angle in corners]
    browser.drag([(left + width / 2 + (x - 5000) * scale, top + height / 2 + (y - 5000) * scale) for x, y in around])
    person.until(f"text('.map-bar strong') === '{len(members)} images'")
    kind = person.truth[rows[members[0]]["name"]]
    unlabeled = [rows[number]["name"] for number in members if rows[number]["label"] is None]
    person.press("Label as…")
    person.press(next(name for name in person.classes() if kind in name), "document.querySelector('.map-menu')")
    person.until(f"text('.map-bar').includes('{len(unlabeled)} image')")
    return unlabeled


def test_from_a_folder_of_photos_to_a_classifier(browser: Chromium, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    truth = save_digits(photos, KINDS, EACH)
    person = Person(browser, truth)
    with running_studio(photos, "--device", "cpu") as studio:
        browser.open(studio.address, width=1280, height=800)
        assert "token" not in browser.evaluate("location.href")
        person.name_classes()

        # twelve labels by keyboard, and a model appears
        person.label(12)
        assert "12 labels" in person.wait_for_model(12)
        first = person.accuracy()
        assert first > 2 * CHANCE

        # more labels, the model is not worse, and everything is as it was after a reload
        person.label(6)
        model, known, name = person.wait_for_model(18), person.labels(), person.seen()
        assert "18 labels" in model
        assert person.accuracy() >= first
        classes = browser.evaluate("text('.classes')")
        browser.reload()
        assert person.seen() == name
        person.until(f"text('.classes') === {json.dumps(classes)} && text('.model') === {json.dumps(model)}")
        assert person.labels() == known

        # a class gets another name, and its labels follow
        person.edit("seven")
        browser.write("the seven, ⅶ")
        browser.press("Enter")
        person.until("text('.classes').includes('the seven, ⅶ') && !document.querySelector('dialog')")
        renamed = {name: "the seven, ⅶ" if kind == "seven" else kind for name, kind in truth.items()}
        known = person.labels()
        assert known == {name: renamed[name] for name in known}
        wait_until(lambda: read_labels(photos / "labels.csv") == known)

        # merged by mistake, and undone
        person.edit("one")
        into = f"s.value = {person.classes()['four']['id']}; s.dispatchEvent(new Event('change'))"
        browser.evaluate(f"{{ const s = document.querySelector('dialog select'); {into}; }}")
        person.press("Merge", "document.querySelector('dialog')")
        person.until("document.querySelectorAll('.classes li').length === 3 && !document.querySelector('dialog')")
        assert set(person.labels().values()) == {"zero", "four", "the seven, ⅶ"}
        browser.evaluate("document.activeElement.blur()")
        browser.press("u")
        person.until("document.querySelectorAll('.classes li').length === 4")
        assert person.labels() == known

        # a group on the map
        unlabeled = lasso(person)
        known |= {name: renamed[name] for name in unlabeled}
        assert unlabeled
        assert person.labels() == known

        # what is taken home
        downloads = tmp_path / "downloads"
        browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        browser.evaluate("location.hash = 'finish'")
        person.press("↓ CSV")
        wait_until(lambda: list(downloads.glob("*.csv")))
        (exported,) = downloads.glob("*.csv")
        wait_until(lambda: read_labels(exported) == known)
        assert browser.complaints() == []
        browser.open("about:blank")
        said = studio.stop()
        assert studio.process.returncode == 0, said
        assert f"{len(known)} of {len(truth)} images" in said
        assert "Next: epass train photos" in said
    assert read_labels(photos / "labels.csv") == known

    # a terminal learns from the same labels
    trained = run(tmp_path, "train", "photos", "--steps", "20", "--device", "cpu", "--no-guard", "--out", "kept")
    assert f"{len(known)}" in trained
    run(tmp_path, "predict", "kept", "photos", "--device", "cpu", "--out", "named.csv")
    with (tmp_path / "named.csv").open(encoding="utf-8", newline="") as file:
        named = {Path(row["file"]).name: row["prediction"] for row in csv.DictReader(file)}
    assert named.keys() == truth.keys()
    assert sum(renamed[name] == kind for name, kind in named.items()) > 2 * CHANCE * len(truth)

    # the labels come back into a copy of the photos that nobody has labeled
    fresh = tmp_path / "again" / "photos"
    shutil.copytree(photos, fresh, ignore=shutil.ignore_patterns(".epass-studio", "labels.csv"))
    with running_studio(fresh, "--device", "cpu") as studio:
        browser.open(f"{studio.address}#finish")
        browser.wait_for("document.querySelector('#finish-file') !== null")
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        field = browser.call("DOM.querySelector", nodeId=root, selector="#finish-file")
        browser.call("DOM.setFileInputFiles", nodeId=field["nodeId"], files=[str(exported)])
        person.until("text('.view-finish .good')")
        assert person.labels() == known
        browser.open("about:blank")


def run(place: Path, *words: str) -> str:
    done = subprocess.run([*COMMAND, *words], cwd=place, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
