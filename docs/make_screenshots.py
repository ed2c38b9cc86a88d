"""Screenshots of reports, for the documentation: `python docs/make_screenshots.py [RUN ...] [--name NAME]`.

Without a run it trains one on the digits first, which takes minutes. Chromium must be installed.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from chromium import Chromium, find_chromium
from PIL import Image

from epass import load_run, read_recipe, run
from epass.report import group_runs, write_page

IMAGES = Path(__file__).parent / "images"
WIDTH = 1000
TOP = 1000  # height of the first screenshot
SECTION = "document.querySelector('.atlas').closest('section')"


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders; none: one that is trained on the digits")
    parser.add_argument("--name", default="digits", help="what the files are called")
    parser.add_argument("--title", help="the heading of the page")
    asked = parser.parse_args()
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium on this machine.")
    with tempfile.TemporaryDirectory() as folder:
        runs = [load_run(path) for path in asked.runs or [train(Path(folder) / "run")]]
        title = asked.title or f"{group_runs(runs)[0].label} on {asked.name}"
        page = write_page(Path(folder) / "page.html", runs, title=title, maps=True)
        with Chromium(program) as browser:
            shoot(browser, page, asked.name)


def train(folder: Path) -> Path:
    """A run of SimMatch with three projectors on the digits."""
    for report in run(read_recipe("digits-simmatch").with_settings({"projector.size": 3, "plan.steps": 300}), folder):
        print(f"step {report.step}")
    return folder


def shoot(browser: Chromium, page: Path, name: str) -> None:
    """The top of the page, and the map of its test images with one pointed at, in the light and in the dark."""
    IMAGES.mkdir(exist_ok=True)
    browser.open(page, width=WIDTH, height=TOP)
    keep(browser.screenshot(), f"report-{name}.png")
    for dark in (False, True):
        browser.open(page, width=WIDTH, height=2 * TOP, dark=dark)
        height = point_at_a_mistake(browser)
        keep(browser.screenshot(), f"report-{name}-map-{'dark' if dark else 'light'}.png", height)


def point_at_a_mistake(browser: Chromium) -> float:
    """Put the pointer on the most confident mistake of a map; how far down the maps reach."""
    spot = browser.evaluate(
        f"""(() => {{
            const atlas = document.querySelector(".atlas"), facts = JSON.parse(atlas.dataset.atlas);
            const maps = atlas.querySelectorAll("svg"), map = maps[maps.length - 1];
            {SECTION}.scrollIntoView({{block: "start"}});
            scrollBy(0, -16);
            const sure = (image) => (facts.labels[image] === facts.predicted[image] ? -1 : facts.confidence[image]);
            const image = facts.labels.map((_, number) => number).sort((one, other) => sure(other) - sure(one))[0];
            const box = map.getBoundingClientRect();
            const [x, y] = facts.places[maps.length - 1].slice(2 * image);
            return {{
                x: box.left + x / 1000 * box.width, y: box.top + y / 1000 * box.height,
                bottom: atlas.getBoundingClientRect().bottom,
            }};
        }})()"""
    )
    browser.move(spot["x"], spot["y"])
    return float(spot["bottom"]) + 20


def keep(png: bytes, name: str, height: float = TOP) -> None:
    """Write the upper part of a screenshot, in 256 colors: a third of the bytes, and nobody sees it."""
    image = Image.open(io.BytesIO(png)).convert("RGB").crop((0, 0, WIDTH, int(height)))
    image = image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    image.save(IMAGES / name, optimize=True)
    print(f"{IMAGES / name}: {image.width} by {image.height}, {(IMAGES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
