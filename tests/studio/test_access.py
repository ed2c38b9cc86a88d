"""Whoever cannot see the page well or has no mouse can use it: names, the way of the focus, contrast."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browsing import NEEDED
from contrast import FAINT
from fake_look import FakeLook
from fake_server import STATIC, start

pytestmark = NEEDED
KINDS = ("beach", "forest", "mountain", "street")
VIEWS = {
    "label?mode=single": "document.querySelector('.chip') && document.querySelector('.score')",
    "label?mode=grid&view=all": "document.querySelectorAll('.tile img.there').length > 8",
    "look": "document.querySelector('.confusion') && Number(document.querySelector('.map-canvas')?.dataset.points)",
    "runs": "document.querySelector('[data-run]') && document.querySelector('[data-job]')",
    "runs?new=train": "document.querySelector('.job-form')",
    "runs?run=photos-simmatch-0": "document.querySelector('.view-runs .confusion')",
    "finish": "document.querySelector('[data-card=predict] button:enabled')",
}
CONTROLS = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "checkbox",
    "radio",
    "combobox",
    "slider",
    "spinbutton",
    "listbox",
}
CONTROLS |= {"application", "DisclosureTriangle"}
REACHABLE = """(() => {
  const can = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  globalThis.reachable = [...document.querySelectorAll(can)].filter((one) =>
    one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.tabIndex >= 0);
  return reachable.map((one) => one.getAttribute("aria-label") || one.innerText || one.placeholder || one.outerHTML);
})()"""


@pytest.fixture
def show(browser):
    """A function that opens a view of forty images, of which nine have a label and one a wrong guess."""
    fake = FakeLook([f"photo_{i:02}.jpg" for i in range(40)], [KINDS[i % 4] for i in range(40)])
    fake.classes = [{"id": i, "name": name, "key": str(i + 1)} for i, name in enumerate(KINDS)]
    fake.labels, fake.marks = {i: i % 4 for i in range(8)}, {9: "skip", 10: "unsure", 11: "none"}
    fake.guesses = {i: (i % 4 if i != 3 else 0, 0.9) for i in range(40)}
    score = {"value": 0.875, "low": 0.5, "high": 0.98, "labels": 8}
    rows = [{"labels": labels, "accuracy": 0.8, "low": 0.5, "high": 0.9} for labels in (6, 8)]
    fake.model = {"n": 0, "labels": 8, "how": "semi-supervised", "accuracy": score, "labels_only": None, "behind": 0}
    fake.model |= {"history": rows, "helped": "They helped.", "about": "Measured on all.", "seconds": 1.0}
    fake.model |= {"enough": {"verdict": "not yet", "sentence": "Label on."}}
    fake.teach_from = 1000
    fake.job("train", {})
    server, url = start(fake, STATIC)

    def open_view(view, **window):
        browser.open(f"{url}#{view}", **window)
        browser.wait_for(f"!!({VIEWS[view]})")

    yield open_view
    browser.open("about:blank")
    server.should_exit = True


def nameless(browser):
    """Controls as somebody hears them who cannot see them, if there is nothing to hear."""
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    heard = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert sum(role in CONTROLS for role, _ in heard) > 8
    return [role for role, name in heard if role in CONTROLS and not any(letter.isalnum() for letter in name)]


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_has_a_name(browser, show, view):
    show(view)
    assert nameless(browser) == []
    browser.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert nameless(browser) == ["button"]


@pytest.mark.parametrize("view", ["label?mode=single", "label?mode=grid&view=all"])
def test_the_tab_key_reaches_every_control_of_the_label_view_in_the_order_of_the_page(browser, show, view):
    show(view, width=1280, height=800)
    wanted = browser.evaluate(REACHABLE)
    assert len(wanted) > 20
    browser.evaluate("document.querySelector('.jump').focus()")
    way = [browser.evaluate("reachable.indexOf(document.activeElement)")]
    while len(way) < len(wanted):
        browser.press("Tab")
        way.append(browser.evaluate("reachable.indexOf(document.activeElement)"))
    assert [wanted[place] for place in way if place >= 0] == wanted
    assert -1 not in way
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.evaluate(ring) != "none"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_text_stands_out(browser, show, view, dark):
    show(view, width=1280, height=800, dark=dark)
    assert browser.evaluate(FAINT) == []
    browser.evaluate("document.querySelector('.views').style.setProperty('--faint', '#777')")
    assert browser.evaluate(FAINT) != []
