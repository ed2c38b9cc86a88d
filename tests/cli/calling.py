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

RECIPE = """
format = 1
source = "made up for tests"

[data]
name = "digits"
labels = 40

[net]
name = "small"
width = 4

[method]
name = "simmatch"
warmup_steps = 2

[projector]
size = 1
out_dim = 16

[plan]
steps = 6
labeled_batch = 10
unlabeled_ratio = 2
warmup_steps = 0
report_every = 1
evaluate_every = 3
"""


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
