"""The page in a real browser. Skipped where there is none: install Chromium to run these."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epass.report import write_page
from epass.report.contact_sheet import Entry, contact_sheet

sys.path.append(str(Path(__file__).parents[2] / "docs"))
from chromium import Chromium, find_chromium

PROGRAM = find_chromium()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine"),
]
CARD = "document.querySelector('.atlas .card')"


@pytest.fixture(scope="module")
def browser():
    with Chromium(PROGRAM) as running:
        yield running


@pytest.fixture(scope="module")
def page(pictured, make_run, tmp_path_factory):
    runs = [pictured(), make_run("supervised"), make_run("fixmatch", finished=False)]
    runs[0].metrics[-1]["coverage"] = 0.0  # so that there is a warning
    title = "A page with a title that is far too long for a telephone"
    return write_page(tmp_path_factory.mktemp("browser") / "page.html", runs, title=title, maps=True)


def place(browser, image, number=0):
    """Where an image of the first atlas lies in the window, in its map of that number, and the image's true class."""
    return browser.evaluate(
        f"""(() => {{
            const atlas = document.querySelector(".atlas"), facts = JSON.parse(atlas.dataset.atlas);
            const map = atlas.querySelectorAll("svg")[{number}];
            map.scrollIntoView({{block: "center"}});
            const box = map.getBoundingClientRect(), [x, y] = facts.places[{number}].slice(2 * {image});
            return {{x: box.left + x / 1000 * box.width, y: box.top + y / 1000 * box.height}};
        }})()"""
    )


def test_nothing_is_complained_about_and_nothing_is_asked_for(browser, page):
    browser.open(page)
    browser.move(10, 10)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.evaluate("document.querySelectorAll('.warning').length") == 1


def test_the_tests_would_notice_complaints_and_requests(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://epass.invalid/a.png'><script>console.error('oh'); nothing();</script>")
    browser.open(bad)
    assert len(browser.complaints()) >= 2
    assert browser.requests() == ["http://epass.invalid/a.png"]


@pytest.mark.parametrize(("image", "number"), [(0, 0), (7, 1), (29, 0)])
def test_pointing_at_an_image_shows_it_and_its_answer(browser, page, pictured, image, number):
    browser.open(page)
    assert browser.evaluate(f"{CARD}.hidden")
    spot = place(browser, image, number)
    browser.move(spot["x"], spot["y"])
    assert not browser.evaluate(f"{CARD}.hidden")
    classes, predictions = ["cat", "dog", "ship"], pictured().predictions
    true, said = predictions.labels[2 * image], predictions.logits[2 * image].argmax()
    words = browser.evaluate(f"{CARD}.querySelector('.words').innerText").splitlines()
    assert words[0] == f"is {classes[true]}"
    assert words[1].startswith(f"predicted {classes[said]}, ")
    assert words[2] == ("right" if true == said else "wrong")
    assert words[3] == f"test image {2 * image}"
    picture = browser.evaluate(f"{CARD}.querySelector('span').className")
    shift = browser.evaluate(f"{CARD}.querySelector('span').style.backgroundPosition")
    row, column = divmod(image, 6)  # thirty images of 6 by 8 pixels, enlarged twelve times, six in a row
    assert (picture.split()[0], shift) == (
        ("thumb", f"{-72 * column}px {-96 * row}px") if true == said else ("photo", "")
    )
    rings = browser.evaluate("[...document.querySelectorAll('.ring')].map((ring) => ring.style.display)")
    assert rings == ["inline", "inline"]  # the same image in both maps
    inside = "((card, atlas) => card.bottom <= atlas.bottom && card.right <= atlas.right + 1)"
    assert browser.evaluate(f"{inside}(...[{CARD}, {CARD}.parentElement].map((part) => part.getBoundingClientRect()))")
    browser.move(1, 1)
    assert browser.evaluate(f"{CARD}.hidden")


def test_the_keyboard_goes_from_image_to_image(browser, page):
    browser.open(page)
    browser.evaluate("document.querySelector('.atlas svg').focus()")
    assert not browser.evaluate(f"{CARD}.hidden")
    ring = "Number(document.querySelector('.ring').getAttribute('cx'))"
    before = browser.evaluate(ring)
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert browser.evaluate(ring) < before
    browser.press("Escape")
    assert browser.evaluate(f"{CARD}.hidden")


def luminance(browser, what="backgroundColor"):
    color = browser.evaluate(f"getComputedStyle(document.body).{what}")
    return sum(int(part) for part in color.strip("rgb()").split(","))


def test_dark_is_dark_and_paper_is_white(browser, page):
    browser.open(page, dark=True)
    assert luminance(browser) < 150 < luminance(browser, "color")
    browser.open(page)
    assert luminance(browser) > 700
    browser.open(page, media="print", dark=True)
    assert luminance(browser) == 3 * 255
    assert luminance(browser, "color") == 0
    assert browser.pdf().startswith(b"%PDF")


def test_charts_are_dark_in_the_dark(browser, page):
    def light(dark):
        browser.open(page, dark=dark)
        box = browser.evaluate(
            """(() => { const box = document.querySelector(".charts svg").getBoundingClientRect();
                return [box.left + scrollX, box.top + scrollY, box.width, box.height]; })()"""
        )
        return np.asarray(Image.open(io.BytesIO(browser.screenshot(box))).convert("L")).mean()

    assert light(dark=True) < 70 < 220 < light(dark=False)


@pytest.mark.parametrize("width", [360, 390])
def test_nothing_is_cut_on_a_telephone(browser, page, width):
    browser.open(page, width=width)
    cut = (
        "[...document.querySelectorAll('body *')].filter((part) => part.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert browser.evaluate(f"{cut}.map((part) => part.outerHTML.slice(0, 80))") == []
    assert browser.evaluate("document.querySelector('.results td').innerText") == "1"


@pytest.mark.parametrize("width", [360, 1000])
def test_the_page_fits_the_window(browser, page, width):
    browser.open(page, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width


def test_the_labels_typed_into_a_contact_sheet_are_saved_as_a_table(browser, tmp_path):
    pixels = np.zeros((1, 8, 8), dtype=np.uint8)
    entries = [Entry('odd "name", <b>.png', pixels, "", "cat"), Entry("b.png", pixels, "looks like dog")]
    page = tmp_path / "sheet.html"
    page.write_text(contact_sheet("To label", "file", ["cat", "<i>"], [("Next", entries)]), encoding="utf-8")
    browser.open(page, width=360)
    assert browser.evaluate("document.querySelector('datalist').options[1].value") == "<i>"
    saved = """(async () => {
        const fields = document.querySelectorAll("input"), blobs = [];
        URL.createObjectURL = (blob) => { blobs.push(blob); return "#"; };
        fields[0].value = ' "dog" ';
        fields[0].dispatchEvent(new Event("input", {bubbles: true}));
        document.querySelector("button").click();
        return [document.querySelector("output").textContent, await blobs[0].text()];
    })()"""
    assert browser.evaluate(saved) == ["1 of 2", '"file","known","label"\n"odd ""name"", <b>.png","cat","""dog"""\n']
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") == 360
