"""Screenshots of the studio, for its page: `python docs/make_studio_screenshots.py [--out FOLDER]`.

Starts the real studio on scans of digits, labels some, trains two runs, and takes a picture of every view: minutes of
two cores. Chromium must be installed.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from chromium import Chromium, find_chromium
from PIL import Image
from real_studio import running_studio, save_digits

IMAGES = Path(__file__).parent / "images"
KINDS = {0: "zero", 1: "one", 2: "two", 3: "three", 4: "four", 7: "seven"}
EACH, LABELS = 60, 48
WIDE, PHONE = (1280, 800), (390, 844)
LEARNED = "fetch('/api/model').then((a) => a.json()).then((m) => m?.behind === 0 && m.how === 'semi-supervised')"
MEASURED = "document.querySelector('.score') && document.getElementById('progress').hidden"
JOBS_ARE_OVER = "fetch('/api/jobs').then((a) => a.json()).then((all) => all.every((job) => job.state !== 'running'))"
PICTURES = "[...document.querySelectorAll('.view:not([hidden]) img[src]')].every((one) => one.complete)"


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="where they are written")
    out = parser.parse_args().out
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium on this machine.")
    with tempfile.TemporaryDirectory() as place:
        photos = Path(place) / "photos"
        truth = save_digits(photos, KINDS, EACH, side=160)
        with running_studio(photos) as studio, Chromium(program) as browser:
            browser.open(studio.address, width=WIDE[0], height=WIDE[1])
            label(browser, truth)
            run(browser)
            home = studio.address.split("?")[0]
            shoot(browser, home, out)
            browser.open("about:blank")


def ask(browser: Chromium, path: str, body: Any = None) -> Any:
    """What the server answers to the page."""
    sent = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
    options = "" if body is None else f", {json.dumps(sent)}"
    return browser.evaluate(f"fetch({path!r}{options}).then((answer) => answer.json())")


def label(browser: Chromium, truth: dict[str, str]) -> None:
    """Answer what is suggested, a few at a time; then wait until all is learned."""
    for name in KINDS.values():
        ask(browser, "/api/classes", {"do": "add", "name": name, "tab": "shots"})
    ids = {each["name"]: each["id"] for each in ask(browser, "/api/state")["classes"]}
    for _ in range(0, LABELS, 12):
        chosen = ask(browser, "/api/ids?view=suggested")["ids"][:12]
        rows = ask(browser, "/api/rows", {"ids": chosen})["rows"]
        seen = {"label": None, "mark": None}
        changes = [{"id": row["id"], "label": ids[truth[row["name"]]], "mark": None, "seen": seen} for row in rows]
        ask(browser, "/api/answers", {"tab": "shots", "changes": changes})
        browser.wait_for(LEARNED)
    browser.wait_for(MEASURED)


def run(browser: Chromium) -> None:
    """Train two ways, and name every image by the second."""
    for said in ({"method": "fixmatch"}, {"projectors": 3}):
        ask(browser, "/api/jobs", {"do": "train", "said": said, "plan": False})
        browser.wait_for(JOBS_ARE_OVER)
    newest = ask(browser, "/api/runs")[0]["name"]
    ask(browser, "/api/jobs", {"do": "predict", "said": {"run": newest}, "plan": False})
    browser.wait_for(JOBS_ARE_OVER)


def shoot(browser: Chromium, home: str, out: Path) -> None:
    """Every view, and the first of them in the dark and on a phone."""
    browser.wait_for("fetch('/api/look/map').then((answer) => answer.json()).then((map) => map !== null)")
    views = {
        "grid": "#label?view=unlabeled&mode=grid",
        "look": "#look",
        "runs": "#runs",
        "finish": "#finish",
        "single": "#label?view=suggested&mode=single",
    }
    ready = {
        "grid": "document.querySelectorAll('.tile img.there').length > 20 && document.querySelector('.tile .guess')",
        "look": "document.querySelector('.map-canvas')?.dataset.points > 0 && document.querySelector('.confusion')",
        "runs": "document.querySelectorAll('[data-run]').length === 2",
        "finish": "document.querySelector('[data-card=predict] .files a')",
        "single": "document.querySelector('.chip') && document.querySelector('.score')",
    }
    for name, view in views.items():
        take(browser, home + view, ready[name], out / f"studio-{name}.png", WIDE)
    for name, size in (("dark", WIDE), ("phone", PHONE)):
        take(browser, home + views["single"], ready["single"], out / f"studio-{name}.png", size, dark=name == "dark")


def take(browser: Chromium, address: str, ready: str, path: Path, size: tuple[int, int], *, dark: bool = False) -> None:
    """One picture of a window."""
    browser.open(address, width=size[0], height=size[1], dark=dark)
    browser.wait_for(f"!!({ready}) && {PICTURES}")
    if path.stem == "studio-grid":
        for tile in (1, 2, 9):
            spot = browser.evaluate(
                f"(({{x, y}}) => [x + 60, y + 60])(document.querySelector('#tile-{tile}').getBoundingClientRect())"
            )
            browser.click(*spot, *(["Control"] if tile > 1 else []))
    browser.evaluate("new Promise((done) => setTimeout(done, 700))")  # until what moves has come to rest
    image = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
    image = in_few_colors(image)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, optimize=True)
    print(f"{path.name}: {image.width} by {image.height}, {path.stat().st_size:,} bytes")


def in_few_colors(image: Image.Image) -> Image.Image:
    """The same in 256 colors: those of large areas as they are, and others far apart, or gray scans would take all."""
    most = sorted(image.getcolors(1 << 24), reverse=True)[:128]
    apart = image.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for _, color in most for part in color), *(apart or [])[: 3 * 128]])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()
