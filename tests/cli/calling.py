"""Calling the command line inside the test process: a second of importing torch per test would add up."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from epass.cli import main
from tiny_recipe import tiny_recipe

RECIPE = tiny_recipe()


class Answer(NamedTuple):
    """What the person at the keyboard gets."""

    code: int
    out: str
    err: str


Epass = Callable[..., Answer]


def call(*arguments: str | Path) -> Answer:
    out, err, code = io.StringIO(), io.StringIO(), 0
    typed = patch.object(sys, "argv", ["/somewhere/epass", *map(str, arguments)])
    with typed, redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Answer(code, out.getvalue(), err.getvalue())


class Trained(NamedTuple):
    folder: Path
    recipe: Path
    answer: Answer
