"""Events on a terminal, or anywhere else that text goes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from ..app.events import Caution, Event, Notice, Plan, Result, Table, Work
from .progress import reading
from .screen import complain, screen, show_facts, show_json, show_table


def show(function: Callable[..., Work], said: Mapping[str, Any], *, as_json: bool) -> None:
    """Do what was asked for and show what happens; exit code 1 if it is not all that was asked for."""
    console = Console(quiet=True) if as_json else screen()
    result = Result()
    with reading(console) as progress:
        between = {"reading": progress} if "reading" in inspect.signature(function).parameters else {}
        for event in function(**said, **between):
            show_event(console, event)
            if isinstance(event, Result):
                result = event
    if as_json:
        show_json(result.values)
    if result.complaint:
        raise typer.Exit(1)


def show_event(console: Console, event: Event) -> None:
    """One event in words."""
    if isinstance(event, Plan):
        show_facts(console, event.title, event.facts)
    elif isinstance(event, Notice):
        console.print(Text(event.sentence), soft_wrap=True)
    elif isinstance(event, Caution):
        complain(event.sentence, event.kind)
    elif isinstance(event, Table):
        show_table(console, event.heads, event.rows)
    elif isinstance(event, Result):
        show_result(console, event)


def show_result(console: Console, result: Result) -> None:
    """What came out, where it is, and what to type next."""
    if result.facts:
        show_facts(console, result.title, result.facts)
    if result.following:
        console.print(f"Next: {result.following}", markup=False, soft_wrap=True)
    if result.complaint:
        complain(result.complaint)
