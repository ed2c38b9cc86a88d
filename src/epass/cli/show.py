"""Events on a terminal, or anywhere else that text goes."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from io import TextIOWrapper
from typing import Any

import typer
from rich.console import Console

from ..app.events import Caution, Event, Line, Notice, Plan, Progress, Result, Section, Table, Work
from ..errors import InputError
from ..machine.launch import is_first_process
from ..machine.signals import exit_code, stop_signals
from .progress import Watch, downloading, reading
from .screen import complain, plain, screen, show_facts, show_json, show_line, show_table

# what a function may want from whoever shows its events
OFFERED: dict[str, Callable[[Console], Any]] = {
    "stop": lambda _: stop_signals(),
    "reading": reading,
    "fetching": downloading,
    "command": lambda _: nullcontext(shlex.join(["epass", *sys.argv[1:]])),
    "lines": lambda _: nullcontext(typed_lines()),
}


def typed_lines() -> Iterator[str]:
    """Standard input, line by line; bytes that are no text stay what they are, since they may name a file."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    if sys.stdin is None:
        raise InputError("Standard input is closed: pipe the paths in, or name a folder of images in place of '-'.")
    yield from sys.stdin


def show(function: Callable[..., Work], said: Mapping[str, Any], *, as_json: bool) -> None:
    """Do what was asked for and show what happens; exit code 1 if it is not all that was asked for."""
    console = Console(quiet=True) if as_json else screen()
    result = Result()
    try:
        with ExitStack() as held:
            wanted = OFFERED.keys() & inspect.signature(function).parameters.keys()
            offered = {name: held.enter_context(OFFERED[name](console)) for name in wanted}
            printer = Printer(console)
            held.callback(printer.watch.stop)
            for event in function(**said, **offered):
                if isinstance(event, Result):
                    result = event
                    held.close()  # no bar below what came out
                printer.show(event)
    except KeyboardInterrupt as stopped:
        if is_first_process():
            complain(str(stopped) or "nothing more is done.", "Stopped")
        raise typer.Exit(exit_code(stopped)) from None
    if as_json and result.values is not None and is_first_process():
        show_json(result.values)
    if result.complaint or result.partial:
        raise typer.Exit(1)


class Printer:
    """Where events are written one below the other, with room between those that do not belong together."""

    APART = (
        (Progress, Result),
        (Progress, Table),
        (Notice, Table),
        (Table, Table),
        (Table, Section),
        (Table, Notice),
    )

    def __init__(self, console: Console) -> None:
        self.console, self.watch = console, Watch(console)
        self.last: Event | None = None

    def show(self, event: Event) -> None:
        """Write one more event."""
        if isinstance(event, Progress):
            self.watch.show(event)
        elif isinstance(event, Caution):
            if is_first_process():
                complain(event.sentence, event.kind)
            return
        elif isinstance(event, Line):
            if is_first_process():
                show_line(event.value)
        else:
            if not isinstance(event, Notice):
                self.watch.stop()
            if (type(self.last), type(event)) in self.APART:
                self.console.print()
            show_event(self.console, event)
        self.last = event


def show_event(console: Console, event: Event) -> None:
    """One event in words."""
    if isinstance(event, Plan):
        show_facts(console, event.title, event.facts)
    elif isinstance(event, Notice):
        if event.apart:
            console.print()
        console.print(plain(f"  {event.sentence}" if event.run else event.sentence), soft_wrap=True)
    elif isinstance(event, Section):
        show_section(console, event)
    elif isinstance(event, Table):
        if event.title:
            show_section(console, Section(event.title, lines=event.notes), indent="")
        show_table(console, event.heads, event.rows, several_lines=event.several_lines)
    elif isinstance(event, Result):
        show_result(console, event)


def show_section(console: Console, section: Section, indent: str = "  ") -> None:
    """A heading with what is below it, and an empty line."""
    if section.facts:
        show_facts(console, section.title, section.facts)
        return
    in_file = not console.is_terminal  # which does not break sentences, while a terminal does, between words
    console.print(plain(section.title, "bold"), soft_wrap=in_file)
    for line in section.lines:
        console.print(plain(f"{indent}{line}"), soft_wrap=in_file or bool(indent))
    console.print()


def show_result(console: Console, result: Result) -> None:
    """What came out, where it is, and what to type next."""
    if result.facts:
        show_facts(console, result.title, result.facts)
    if result.following:
        console.print(plain(f"Next: {result.following}"), soft_wrap=True)
    if result.complaint:
        complain(result.complaint)
