"""The first line of a method's file is where `epass methods` learns about the paper."""

from __future__ import annotations

import inspect

import pytest

from epass.cli.listings import PAPER, first_line
from epass.methods import METHODS, PRETRAINING, WRAPPERS
from epass.report.summary import NAMES

BOUNDS = {"supervised", "fully_supervised"}  # nobody published these
PUBLISHED = {name: cls for name, cls in (METHODS | WRAPPERS | PRETRAINING).items() if name not in BOUNDS}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_begins_with_name_title_authors_venue_and_year(name: str) -> None:
    doc = inspect.getdoc(inspect.getmodule(PUBLISHED[name])) or ""
    first, second, *rest = doc.splitlines()
    paper = PAPER.fullmatch(first_line(doc))

    assert first.endswith(".")
    assert paper, f"'{first}' is not 'Name: Title (Authors, VENUE YEAR).'"
    assert 2010 <= int(paper["year"]) <= 2030
    assert second == ""
    assert rest, "what it does, in a sentence or two"
    if name in METHODS:
        assert paper["name"] == NAMES[name]  # one name in tables, pages and listings


@pytest.mark.parametrize(
    "line",
    [
        "A method by somebody (Doe, 2020)",
        "Name: Title (Doe et al.)",
        "Name: Title (Doe et al., ICML)",
        "Name: Title (Doe et al., ICML 21)",
        "Title (Doe et al., ICML 2021)",
        "Name: Title (Doe et al., ICML 2021), with a twist",
    ],
)
def test_another_form_is_found(line: str) -> None:
    assert PAPER.fullmatch(line) is None
