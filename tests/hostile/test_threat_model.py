"""The page about threats says what the code does."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text("utf-8")
ROWS = re.findall(r"^\| .+ \| ([\d,]+)(?: \w+)? \| `([\w.]+)\.(\w+)` \|$", PAGE, flags=re.M)


def test_every_limit_is_in_the_table() -> None:
    assert len(ROWS) == PAGE.partition("## Limits")[2].count("| `epass.") == 36


@pytest.mark.parametrize(("number", "module", "name"), ROWS)
def test_a_limit_is_the_constant(number: str, module: str, name: str) -> None:
    assert int(number.replace(",", "")) == getattr(import_module(module), name)
