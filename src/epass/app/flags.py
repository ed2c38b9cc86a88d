"""What a person can say, each explained once: the names, types and help texts that all faces share.

The arguments of an application function that carry a `Flag` are what a command line offers, or a form: those before the
`*` by position, the others by name. What carries none (`stop`, `reading`) is between the function and the face.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated


@dataclass(frozen=True)
class Flag:
    """What is known of an argument beside its name, type and default."""

    help: str
    panel: str = ""  # the heading under which it is listed
    name: str = ""  # where it is not that of the argument, which may be a word of Python
    metavar: str = ""
    least: int | None = None
    default: str = ""  # in words, where the function decides


WHAT, HOW_LONG, WHERE, RECIPE = "What to train", "How long", "Where", "Every other setting"

Run = Annotated[str | Path, Flag("The folder of a finished run.", metavar="RUN")]
Device = Annotated[str, Flag("auto, cpu, cuda or mps.", WHERE)]
Trust = Annotated[
    list[str] | None,
    Flag(
        "Code of yours that a run or recipe may name: package.module:Class or file.py:Class. It is run.",
        RECIPE,
        metavar="NAME",
    ),
]

Stop = Callable[[], None]  # called between steps; what it raises ends the work
Reading = Callable[[int, int], None]  # told (images done, images in all) while images are decoded


def go_on() -> None:
    """Never stop: what is called between steps where nobody may interrupt."""
