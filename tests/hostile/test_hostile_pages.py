"""Names of classes, files and runs in the pages, cards and tables that people open in a browser or an editor."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import category

import pytest
from hostile_files import RECIPE, photos, png
from hostile_world import World

from epass.report.frame import resource
from epass.untrusted import printable, spreadsheet_path, spreadsheet_text

SCRIPT = "<script>alert(1)</script>"
NAMES = [
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "</style></svg><svg onload=alert(1)>",
    "]]><!--",
    "&lt;b&gt;",
    "$\\frac{1}{0}$",
    "{body}{0}%s",
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
]


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def assert_harmless(page: Path) -> None:
    found = Tags(page.read_text("utf-8"))
    assert set(found.scripts) <= {resource("atlas.js")}
    assert not found.tags & {"iframe", "object", "embed", "form", "link", "base"}
    assert [name for name in found.attributes if name.startswith("on")] == []
    assert [a for a in found.addresses if not a.startswith(("#", "data:image/png;base64,"))] == []


def test_a_report_and_a_card_of_hostile_names(world: World, run: Path, change: Callable[..., None]) -> None:
    change("model.json", classes=NAMES)
    facts = {key: f"{SCRIPT}\n# x\n```\n" for key in ("command", "device", "torch", "platform", "commit", "started")}
    change("environment.json", **facts)
    hostile = '"<script>alert(1)</script> ![x](http://evil.example/x.png)"'
    (run / "recipe.toml").write_text(RECIPE.replace('"made up for tests"', hostile))
    answer = world.epass("report", "run", "--card", "card.md", "--title", SCRIPT)
    assert answer.code == 0, answer
    assert_harmless(world.home / "report.html")
    card = (world.home / "card.md").read_text("utf-8")
    prose = re.sub(r"```.*?```", "", card, flags=re.S)
    assert card.count("```") == 4  # of the two blocks that belong there
    assert "<" not in prose
    assert "](" not in prose.replace("&#91;", "") or "![" not in prose
    assert "[" not in prose
    assert "\n# x" not in card


def test_a_method_of_a_hostile_name_makes_no_page(world: World, run: Path) -> None:
    (run / "recipe.toml").write_text(RECIPE.replace('"simmatch"', '"<script>alert(1)</script>"'))
    answer = world.epass("report", "run")
    if answer.code == 0:
        assert_harmless(world.home / "report.html")
    else:
        assert answer.code == 2


def test_the_page_of_a_check(world: World) -> None:
    folder = photos(world.home / "photos")
    names = [name.replace("/", "\u2215") for name in NAMES]
    for name in names:
        (folder / name).mkdir()
        for number in (1, 2):
            (folder / name / f"{name}{number}.png").write_bytes(png(12, 12))
        (folder / name / f"{name}-bad.png").write_bytes(b"no image")
    answer = world.epass("check", "photos", "--out", "check.html")
    assert answer.code == 1, answer
    assert_harmless(world.home / "check.html")


@pytest.mark.parametrize("text", ["plain", "größe", "日本", "a b", "family: 👩\u200d👧"])
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == spreadsheet_text(text) == spreadsheet_path(text) == text


@pytest.mark.parametrize(
    "text", ["\x1b", "\n", "\r", "\t", "\x7f", "\x9b", "\u202e", "\u2067", "\u200f", "\u2029", "\ud800"]
)
def test_what_a_terminal_obeys_is_replaced(text: str) -> None:
    assert printable(f"a{text}b") == "a\ufffdb"


def test_what_is_replaced_is_the_same_for_every_letter_there_is() -> None:
    kinds, turning = (
        {"Cc", "Cs", "Zl", "Zp"},
        "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    )
    letters = [chr(number) for number in range(0x110000)]
    obeyed = {letter for letter in letters if category(letter) in kinds or letter in turning}
    assert {letter for letter in letters if printable(letter) != letter} == obeyed


def test_a_cell_is_no_formula() -> None:
    cells = ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1"]
    assert [spreadsheet_text(cell) for cell in cells] == [f"'{cell}" for cell in cells]
    assert [spreadsheet_path(cell) for cell in cells] == [f"./{cell}" for cell in cells]
    assert [spreadsheet_text(number) for number in ("-1", "+2.5", "-1e-3")] == ["-1", "+2.5", "-1e-3"]
