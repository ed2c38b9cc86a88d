"""What cannot be understood on a command line, in one sentence like every other mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..app.flags import unknown_flag
from ..errors import InputError

# typer's own, or click's in older versions: neither says where it is
UsageError: type[Exception] = typer.BadParameter.__base__ or typer.BadParameter


class Command(TyperCommand):
    """A command whose unknown flags name the nearest one, or the setting that does it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = [flag for parameter in self.params for flag in parameter.opts if flag.startswith("-")]
        with in_one_sentence(list(args), known):
            return super().parse_args(ctx, args)


class Group(TyperGroup):
    """The same for commands of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with in_one_sentence(list(args), ["--help", "--version"]):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with in_one_sentence(args, []):
            return super().resolve_command(ctx, args)


@contextmanager
def in_one_sentence(typed: Sequence[str], known: Sequence[str]) -> Iterator[None]:
    """Turn what typer has to complain about into our own kind of error."""
    try:
        yield
    except UsageError as problem:
        if type(problem).__name__ == "NoArgsIsHelpError":  # no complaint: it shows the help
            raise
        if not hasattr(problem, "possibilities"):
            raise InputError(f"{problem.format_message().rstrip('.')}.") from None  # type: ignore[attr-defined]
        raise unknown_flag(problem.option_name, typed, known) from None  # type: ignore[attr-defined]
