"""What happens while something is done for a person: small facts that a terminal prints and a page draws."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from ..files import from_home

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is going to happen, by name, in words."""

    title: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Progress:
    """How far a run is, or what comes before it."""

    step: int
    steps: int
    values: Mapping[str, float] = field(default_factory=dict)  # of a report; nothing between two reports
    seconds_left: float | None = None  # None: not known yet
    run: str = ""  # which one, where there are several
    place: str = ""  # the device that trains it, where there are several
    what: str = "step"  # is counted


@dataclass(frozen=True)
class Notice:
    """A sentence that somebody may want to know."""

    sentence: str
    run: str = ""  # which one it is about, where there are several
    apart: bool = False  # from what is above it


@dataclass(frozen=True)
class Intention(Notice):
    """What is going to happen, where one sentence is the plan."""


@dataclass(frozen=True)
class Caution:
    """A sentence that nobody should miss: what was guessed, skipped or went wrong, and what to do."""

    sentence: str
    kind: str = "Warning"


@dataclass(frozen=True)
class Section:
    """A heading, and below it facts by name, or lines."""

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """Rows of cells under heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()  # sentences that the cells cannot be understood without
    several_lines: bool = False  # in a cell, which only the package itself may write


@dataclass(frozen=True)
class Line:
    """A JSON value for a program that listens: written at once, in one line."""

    value: Any


@dataclass(frozen=True)
class Result:
    """What came out: always the last event."""

    title: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # for people
    values: Any = field(default_factory=dict)  # for programs, in JSON's own types; None where lines have said it
    files: Mapping[str, Path] = field(default_factory=dict)  # what was written, by what it is
    following: str = ""  # the command that people type next
    complaint: str = ""  # why this is not all that was asked for, if it is not; a command then ends with exit code 1
    partial: bool = False  # the same where other events have said it already


Event = Plan | Progress | Notice | Caution | Section | Table | Line | Result


class Work:
    """Events as they happen. Nothing happens before somebody iterates, or asks for the result."""

    def __init__(self, events: Iterator[Event], name: str) -> None:
        self._events, self._name = events, name

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __repr__(self) -> str:
        return f"<{self._name}: not done yet, call .result() or iterate over its events>"

    def result(self) -> Result:
        """Do everything, and return what came out; a caution becomes a warning of Python."""
        event: Event | None = None
        for event in self._events:
            warn_of(event, stacklevel=2)
        if not isinstance(event, Result):
            raise RuntimeError(f"{self._name} was iterated over before: its result was the last event.")
        return event


def warn_of(event: Event, stacklevel: int) -> None:
    """Where nobody looks at events, a caution is a warning of Python, at the line that is so many calls up."""
    if isinstance(event, Caution):
        kind = "" if event.kind == "Warning" else f"{event.kind}: "
        warnings.warn(kind + event.sentence, stacklevel=stacklevel + 1)


def work(function: Callable[P, Iterator[Event]]) -> Callable[P, Work]:
    """Let a generator of events return `Work`, so that it can be run to its end in one call."""

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Work:
        return Work(_called(function, *args, **kwargs), function.__name__)

    return begin


def with_arguments_of(cls: Callable[P, T]) -> Callable[[Callable[[T], Iterator[Event]]], Callable[P, Work]]:
    """Let a generator of events that takes one dataclass be called with the fields of it, and return `Work`.

    So functions that share arguments share a base class, and each argument is written down once.
    """
    hints = get_type_hints(cls, include_extras=True)
    known = inspect.signature(cls).parameters.values()
    arguments = [argument.replace(annotation=hints[argument.name]) for argument in known]

    def decorate(function: Callable[[T], Iterator[Event]]) -> Callable[P, Work]:
        @wraps(function)
        def begin(*args: P.args, **kwargs: P.kwargs) -> Work:
            return Work(function(_called(cls, *args, **kwargs)), function.__name__)

        begin.__signature__ = inspect.Signature(arguments, return_annotation=Work)  # type: ignore[attr-defined]
        begin.__annotations__ = {argument.name: argument.annotation for argument in arguments}
        return begin

    return decorate


def _called(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it with every path that begins with `~` in the home folder: a shell leaves `--out=~/run` as it is.

    What may be a path or the name of a data set is left to whoever opens it, since messages repeat it as it was said.
    """
    hints = get_type_hints(function)
    paths = {name for name, kind in hints.items() if Path in get_args(kind)}
    names = chain(inspect.signature(function).parameters, repeat(""))  # too many are the function's to refuse
    by_position: Any = [_at_home(value) if name in paths else value for name, value in zip(names, args, strict=False)]
    by_name: Any = {name: _at_home(value) if name in paths else value for name, value in kwargs.items()}
    return function(*by_position, **by_name)


def _at_home(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_at_home(one) for one in value]
    return from_home(value) if isinstance(value, str | Path) and str(value).startswith("~") else value
